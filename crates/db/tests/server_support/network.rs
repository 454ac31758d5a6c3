//! Faulty networks between a client and the server.

use std::net::SocketAddr;

use cenote_testkit::proxy::{Direction, Network, Proxy};

use super::{dsn_at, port};

/// Starts a proxy in front of the server, with these faults.
pub(crate) async fn proxy_with(network: Network) -> Proxy {
    let server = SocketAddr::from(([127, 0, 0, 1], port()));
    let proxy = Proxy::in_front_of(server).await.unwrap();
    proxy.set(network);
    proxy
}

/// Returns the DSN of the server through this proxy, without TLS.
pub(crate) fn dsn_through(proxy: &Proxy) -> String {
    dsn_at(proxy.address().port().unwrap())
}

/// A network that splits data into pieces of this size.
pub(crate) fn choppy(bytes: usize) -> Network {
    Network {
        slice: Some(bytes),
        ..Network::ideal()
    }
}

/// A network with this bandwidth, in bytes per second.
pub(crate) fn narrow(bytes: u64) -> Network {
    Network {
        bandwidth: Some(bytes),
        ..Network::ideal()
    }
}

/// A network that withholds what the client sends, while the connections stay open.
pub(crate) fn silent() -> Network {
    Network {
        black_hole: Some(Direction::ToServer),
        ..Network::ideal()
    }
}
