//! A faulty network for tests: a proxy in front of a real server. It delays, throttles, splits or withholds
//! bytes, and closes or resets connections. The test controls it directly, or by a random script from a seed.
//!
//! The client connects to the proxy's address instead of the server's:
//!
//! ```
//! use std::time::Duration;
//! use cenote_testkit::proxy::{Address, Proxy, Network};
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
//! proxy.set(Network { slice: Some(1), ..Network::default() });   // byte by byte
//! client.write_all(b"hello").await?;
//! # let mut five = [0; 5];
//! # at_server.read_exact(&mut five).await?;
//! assert_eq!(proxy.traffic().pieces, 5);
//!
//! proxy.reset();                                                  // the connection is lost
//! assert!(client.read_u8().await.is_err());
//! # Ok(()) }
//! ```
//!
//! A [delay](Network::delay) is that of a long line: many messages are on their way at once, as on a real network, so that
//! pipelining shows. Without a delay the proxy forwards what it has read before it reads on.
//!
//! The proxy uses Tokio's clock: under a paused clock a delay of an hour takes no time. One seed always gives the
//! same jitter and the same scripts; the scheduler decides in which order two connections are accepted.

mod address;
mod connection;
mod front;
mod line;
mod network;
mod script;

pub use self::address::Address;
pub use self::front::{Proxy, Traffic};
pub use self::network::{CutAfter, Direction, Network, OnConnect};
pub use self::script::{Fault, Script, Step};
