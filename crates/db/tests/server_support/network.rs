//! Bad networks between a client and the server.

use std::net::SocketAddr;

use cenote_testkit::proxy::{Direction, Proxy, Weather};

use super::{dsn_at, port};

/// A network in front of the server, in this weather.
pub(crate) async fn network(weather: Weather) -> Proxy {
    let server = SocketAddr::from(([127, 0, 0, 1], port()));
    let proxy = Proxy::in_front_of(server).await.unwrap();
    proxy.set(weather);
    proxy
}

/// The server behind it, without TLS.
pub(crate) fn dsn_through(proxy: &Proxy) -> String {
    dsn_at(proxy.address().port().unwrap())
}

/// It carries so many bytes at a time.
pub(crate) fn choppy(bytes: usize) -> Weather {
    Weather {
        slice: Some(bytes),
        ..Weather::fair()
    }
}

/// It carries so many bytes in a second.
pub(crate) fn narrow(bytes: u64) -> Weather {
    Weather {
        bandwidth: Some(bytes),
        ..Weather::fair()
    }
}

/// Nothing that a client says arrives, though all stays connected.
pub(crate) fn silent() -> Weather {
    Weather {
        black_hole: Some(Direction::ToServer),
        ..Weather::fair()
    }
}
