//! A bad network, on purpose: a proxy in front of a real server that delays, throttles, slices,
//! swallows, cuts and resets, by hand or by a script drawn from a seed.
//!
//! The client is told the proxy's address instead of the server's, and nothing else changes:
//!
//! ```
//! use std::time::Duration;
//! use cenote_testkit::proxy::{Address, Proxy, Weather};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let server = listener.local_addr()?;
//! let proxy = Proxy::in_front_of(server).await?;
//! let mut client = TcpStream::connect(proxy.address().socket().expect("it is TCP")).await?;
//! # let (mut at_server, _) = listener.accept().await?;
//! proxy.set(Weather { slice: Some(1), ..Weather::default() });   // byte by byte
//! client.write_all(b"hello").await?;
//! # let mut five = [0; 5];
//! # at_server.read_exact(&mut five).await?;
//! assert_eq!(proxy.traffic().pieces, 5);
//!
//! proxy.reset();                                                  // and the cable is out
//! assert!(client.read_u8().await.is_err());
//! # Ok(()) }
//! ```
//!
//! Time is Tokio's: under a paused clock a delay of an hour takes no time.
//! What a seed decides (jitter, scripts) is the same again with the same seed; in which order two
//! connections come is up to the scheduler.

mod address;
mod front;
mod link;
mod script;
mod weather;

pub use self::address::Address;
pub use self::front::{Proxy, Traffic};
pub use self::script::{Fault, Script, Step};
pub use self::weather::{CutAfter, Direction, Doors, Weather};
