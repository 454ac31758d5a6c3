//! The proxy does to real bytes what it says, and nothing else.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use cenote_testkit::poll::poll_once;
use cenote_testkit::proxy::{
    Address, CutAfter, Direction, Fault, Network, OnConnect, Proxy, Script, Traffic,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

trait Pipe: AsyncRead + AsyncWrite + Unpin {}
impl<P: AsyncRead + AsyncWrite + Unpin> Pipe for P {}

/// A server that leaves it to the test what it says.
struct Server {
    listener: TcpListener,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server { listener }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    async fn proxy(&self) -> Proxy {
        Proxy::in_front_of(self.address()).await.unwrap()
    }

    /// Both ends of a new connection through the proxy.
    async fn connect(&self, proxy: &Proxy) -> (TcpStream, TcpStream) {
        let client = connect(proxy).await;
        let (server, _) = self.listener.accept().await.unwrap();
        (client, server)
    }
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let address = proxy.address().socket().unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Waits for what another task does, which needs no time but its turn.
async fn until(proxy: &Proxy, is_so: impl Fn(Traffic) -> bool) {
    for _ in 0..100_000 {
        if is_so(proxy.traffic()) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came: {:?}", proxy.traffic());
}

/// Sends one way and reads it there.
async fn passes(from: &mut impl Pipe, to: &mut impl Pipe, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    let (written, filled) = tokio::join!(from.write_all(bytes), to.read_exact(&mut read));
    written.unwrap();
    filled.unwrap();
    assert!(read == bytes, "other bytes came than were sent");
}

fn is_silent(stream: &mut impl Pipe) -> bool {
    poll_once(pin!(stream.read_u8())).is_pending()
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

#[tokio::test]
async fn bytes_come_through_unchanged_both_ways_whatever_the_pieces() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let bytes = noise(20_000);
    for slice in [None, Some(1), Some(7), Some(0), Some(100_000)] {
        proxy.set(Network {
            slice,
            ..Network::ideal()
        });
        let (mut client, mut at_server) = server.connect(&proxy).await;
        passes(&mut client, &mut at_server, &bytes).await;
        passes(&mut at_server, &mut client, &bytes).await;
    }
}

#[tokio::test]
async fn a_slice_of_one_is_a_piece_for_each_byte() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    passes(&mut client, &mut at_server, &noise(1000)).await;
    let whole = proxy.traffic().pieces;
    assert!(whole < 10, "{whole} pieces");
    proxy.set(Network {
        slice: Some(1),
        ..Network::ideal()
    });
    passes(&mut client, &mut at_server, &noise(1000)).await;
    assert_eq!(proxy.traffic().pieces, whole + 1000);
}

#[tokio::test]
async fn a_goodbye_is_passed_on_and_the_other_way_stays_open() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    client.write_all(b"last words").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    at_server.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last words");
    passes(&mut at_server, &mut client, b"and the answer").await;
    drop(at_server);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    until(&proxy, |traffic| traffic.open == 0).await;
}

#[tokio::test(start_paused = true)]
async fn delay_applies_each_way_and_no_fault_takes_no_time() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    let took = async |client: &mut TcpStream, at_server: &mut TcpStream| {
        let begun = Instant::now();
        passes(client, at_server, b"ping").await;
        passes(at_server, client, b"pong").await;
        begun.elapsed()
    };
    assert_eq!(took(&mut client, &mut at_server).await, Duration::ZERO);
    let delay = Duration::from_secs(100);
    proxy.set(Network {
        delay,
        ..Network::ideal()
    });
    let slow = took(&mut client, &mut at_server).await;
    assert!(slow >= 2 * delay && slow < 3 * delay, "{slow:?}");
    proxy.set(Network {
        jitter: delay,
        ..Network::ideal()
    });
    let jittery = took(&mut client, &mut at_server).await;
    assert!(
        jittery > Duration::ZERO && jittery < 2 * delay,
        "{jittery:?}"
    );
}

/// Sends requests of one byte without waiting for answers; the server answers each with the same byte. Returns the time
/// until the last answer.
async fn pipelined(client: TcpStream, at_server: TcpStream, requests: usize) -> Duration {
    let begun = Instant::now();
    let (mut from_client, mut to_client) = tokio::io::split(at_server);
    let (mut from_server, mut to_server) = tokio::io::split(client);
    let send = async {
        for request in 0..requests {
            to_server.write_all(&[request.to_le_bytes()[0]]).await?;
            // So that each request is read alone.
            tokio::task::yield_now().await;
        }
        to_server.shutdown().await
    };
    let mut answers = Vec::new();
    let echo = async {
        let echoed = tokio::io::copy(&mut from_client, &mut to_client).await?;
        to_client.shutdown().await?;
        Ok::<_, io::Error>(echoed)
    };
    let receive = from_server.read_to_end(&mut answers);
    let (echoed, sent, received) = tokio::join!(echo, send, receive);
    received.unwrap();
    assert_eq!(echoed.unwrap(), requests as u64);
    sent.unwrap();
    let expected = (0..requests).map(|request| request.to_le_bytes()[0]);
    assert!(answers.into_iter().eq(expected), "answers in order");
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_are_on_their_way_together() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let delay = Duration::from_secs(100);
    for jitter in [Duration::ZERO, delay / 2] {
        proxy.set(Network {
            delay,
            jitter,
            ..Network::ideal()
        });
        let (client, at_server) = server.connect(&proxy).await;
        let took = pipelined(client, at_server, 500).await;
        let longest = 2 * (delay + jitter) + Duration::from_secs(1);
        assert!(took >= 2 * delay && took < longest, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_leaves_the_throughput_as_it_is() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let delay = Duration::from_secs(100);
    proxy.set(Network {
        delay,
        ..Network::ideal()
    });
    let (mut client, mut at_server) = server.connect(&proxy).await;
    let begun = Instant::now();
    // Stored and forwarded read by read, this would take 60 delays or more.
    passes(&mut client, &mut at_server, &noise(1_000_000)).await;
    let took = begun.elapsed();
    assert!(took >= delay && took < 5 * delay, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_arrives_behind_the_bytes_before_it() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let delay = Duration::from_secs(100);
    proxy.set(Network {
        delay,
        ..Network::ideal()
    });
    let (mut client, mut at_server) = server.connect(&proxy).await;
    client.write_all(b"last words").await.unwrap();
    // A delay that is removed lets nothing overtake.
    until(&proxy, |traffic| traffic.from_client == 10).await;
    proxy.heal();
    let begun = Instant::now();
    client.write_all(b", and more").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    at_server.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last words, and more");
    assert!(begun.elapsed() < 2 * delay, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn without_a_delay_nothing_is_read_ahead() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, _at_server) = server.connect(&proxy).await;
    proxy.set(Network {
        black_hole: Some(Direction::ToServer),
        ..Network::ideal()
    });
    client.write_all(&noise(100_000)).await.unwrap();
    until(&proxy, |traffic| traffic.from_client > 0).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let read = proxy.traffic().from_client;
    assert!(read <= 16 * 1024, "{read} bytes were read ahead");
}

#[tokio::test(start_paused = true)]
async fn a_narrow_line_takes_its_time() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    proxy.set(Network {
        bandwidth: Some(100),
        slice: Some(10),
        ..Network::ideal()
    });
    let (mut client, mut at_server) = server.connect(&proxy).await;
    let begun = Instant::now();
    passes(&mut client, &mut at_server, &noise(1_000)).await;
    let took = begun.elapsed().as_secs();
    assert!((9..=11).contains(&took), "{took} s");
}

#[tokio::test]
async fn a_cut_is_a_goodbye_and_a_reset_is_an_error() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    passes(&mut client, &mut at_server, b"hello").await;
    proxy.cut();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(at_server.read(&mut [0]).await.unwrap(), 0);

    let (mut client, mut at_server) = server.connect(&proxy).await;
    passes(&mut client, &mut at_server, b"hello").await;
    proxy.reset();
    for end in [&mut client, &mut at_server] {
        let error = end.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    // What was ordered before it came is not meant for the next.
    let (mut client, mut at_server) = server.connect(&proxy).await;
    passes(&mut client, &mut at_server, b"hello").await;
    assert_eq!(proxy.traffic().open, 1);
}

#[tokio::test]
async fn black_hole_holds_back_one_direction_until_it_closes() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    proxy.set(Network {
        black_hole: Some(Direction::ToClient),
        ..Network::ideal()
    });
    passes(&mut client, &mut at_server, b"a question").await;
    at_server.write_all(b"the answer").await.unwrap();
    until(&proxy, |traffic| traffic.from_server == 10).await;
    assert!(is_silent(&mut client));
    assert_eq!(proxy.traffic().to_client, 0);
    passes(&mut client, &mut at_server, b"another question").await;
    proxy.heal();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"the answer");

    proxy.set(Network {
        black_hole: Some(Direction::ToServer),
        ..Network::ideal()
    });
    client.write_all(b"lost").await.unwrap();
    // A close is withheld as well.
    drop(client);
    until(&proxy, |traffic| traffic.from_client >= 30).await;
    assert!(is_silent(&mut at_server));
    proxy.heal();
    let mut heard = Vec::new();
    at_server.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"lost");
}

#[tokio::test]
async fn an_ignored_connection_accepts_bytes_and_never_answers() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    proxy.on_connect(OnConnect::Ignore);
    let mut client = connect(&proxy).await;
    client.write_all(&noise(100_000)).await.unwrap();
    until(&proxy, |traffic| traffic.accepted == 1).await;
    assert!(is_silent(&mut client));
    assert!(
        poll_once(pin!(server.listener.accept())).is_pending(),
        "the server knows nothing of it"
    );
    // It stays mute, but those who come now are let through.
    proxy.heal();
    assert!(is_silent(&mut client));
    let (mut next, mut at_server) = server.connect(&proxy).await;
    passes(&mut next, &mut at_server, b"hello").await;
    proxy.reset();
    assert!(client.read(&mut [0]).await.is_err());
}

#[tokio::test]
async fn refused_client_is_reset_counted_and_never_reaches_the_server() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    proxy.on_connect(OnConnect::Reset);
    for n in 1..=3 {
        let mut client = connect(&proxy).await;
        let error = client.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(proxy.traffic().accepted, n);
    }
    assert_eq!(proxy.arrivals().len(), 3);
    assert!(poll_once(pin!(server.listener.accept())).is_pending());
}

#[tokio::test]
async fn first_bytes_of_a_client_are_kept_up_to_64() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut talks, mut hears) = server.connect(&proxy).await;
    passes(&mut hears, &mut talks, b"welcome").await;
    assert!(proxy.greetings().is_empty(), "servers are not clients");
    passes(&mut talks, &mut hears, b"hello").await;
    passes(&mut talks, &mut hears, b"and more").await;
    let (mut talks, mut hears) = server.connect(&proxy).await;
    passes(&mut talks, &mut hears, &[7; 100]).await;
    assert_eq!(proxy.greetings(), [b"hello".to_vec(), vec![7; 64]]);
}

#[tokio::test]
async fn a_server_that_is_not_there_resets_the_client() {
    let gone = Server::start().await.address();
    let proxy = Proxy::in_front_of(gone).await.unwrap();
    let mut client = connect(&proxy).await;
    assert!(client.read(&mut [0]).await.is_err());
}

#[tokio::test]
async fn a_connection_is_reset_at_the_very_byte() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    for (direction, bytes) in [
        (Direction::ToServer, 0),
        (Direction::ToServer, 1),
        (Direction::ToClient, 1_000),
        (Direction::ToClient, 99_999),
    ] {
        proxy.set(Network {
            cut_after: Some(CutAfter { direction, bytes }),
            ..Network::ideal()
        });
        let (mut client, mut at_server) = server.connect(&proxy).await;
        let (from, to) = match direction {
            Direction::ToServer => (&mut client, &mut at_server),
            Direction::ToClient => (&mut at_server, &mut client),
        };
        let before = proxy.traffic();
        let noise = noise(100_000);
        let (_, heard) = tokio::join!(from.write_all(&noise), hear(to));
        let after = proxy.traffic();
        let carried = after.to_server + after.to_client - before.to_server - before.to_client;
        assert_eq!(carried, bytes, "{direction:?}");
        assert!(heard.unwrap_err().kind() == ErrorKind::ConnectionReset);
    }
}

/// Reads until there is no more.
async fn hear(from: &mut TcpStream) -> io::Result<usize> {
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await
}

#[cfg(unix)]
#[tokio::test]
async fn unix_sockets_on_either_side_are_no_different() {
    use tokio::net::{UnixListener, UnixStream};

    let folder = tempfile::tempdir().unwrap();
    let (real, fake) = (folder.path().join("real"), folder.path().join("fake"));
    let listener = UnixListener::bind(&real).unwrap();
    let proxy = Proxy::listen(fake.clone(), real, 1).await.unwrap();
    assert_eq!(proxy.address(), &Address::Unix(fake.clone()));
    proxy.set(Network {
        slice: Some(3),
        ..Network::ideal()
    });
    let mut client = UnixStream::connect(&fake).await.unwrap();
    let (mut at_server, _) = listener.accept().await.unwrap();
    passes(&mut client, &mut at_server, &noise(10_000)).await;
    passes(&mut at_server, &mut client, &noise(10_000)).await;
    proxy.cut();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(at_server.read(&mut [0]).await.unwrap(), 0);

    let mut client = UnixStream::connect(&fake).await.unwrap();
    drop(proxy);
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    assert!(!fake.exists(), "its file is gone with it");
}

#[tokio::test]
async fn dropped_proxy_stops_listening_and_its_connections_end() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let (mut client, mut at_server) = server.connect(&proxy).await;
    passes(&mut client, &mut at_server, b"hello").await;
    let address = proxy.address().socket().unwrap();
    drop(proxy);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(at_server.read(&mut [0]).await.unwrap(), 0);
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn a_script_is_played_in_its_order_and_at_its_times() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let slow = Network {
        delay: Duration::from_secs(1),
        ..Network::ideal()
    };
    let script = Script::new()
        .then(Duration::from_secs(10), Fault::Network(slow))
        .then(Duration::from_secs(5), Fault::OnConnect(OnConnect::Reset))
        .then(Duration::from_secs(1), Fault::Heal);
    let begun = Instant::now();
    let mut playing = pin!(proxy.play(&script));
    for (until, network) in [(9, Network::ideal()), (11, slow), (15, slow)] {
        let early = tokio::time::timeout_at(begun + Duration::from_secs(until), &mut playing);
        assert!(early.await.is_err());
        assert_eq!(proxy.network(), network);
    }
    let mut refused = connect(&proxy).await;
    assert!(refused.read(&mut [0]).await.is_err());
    playing.await;
    assert_eq!(begun.elapsed().as_secs(), 16);
    assert_eq!(proxy.network(), Network::ideal());
    assert_eq!(script.to_string().lines().count(), 3);
}

#[test]
fn same_seed_gives_the_same_script_with_every_kind_of_fault() {
    let length = Duration::from_secs(60);
    let script = Script::random(5, length);
    assert_eq!(script, Script::random(5, length));
    assert_ne!(script, Script::random(6, length));
    let total: Duration = script.steps().iter().map(|step| step.after).sum();
    assert!(total >= length && total < length + Duration::from_secs(1));
    assert_eq!(script.steps().last().unwrap().fault, Fault::Heal);
    let text = script.to_string();
    for kind in [
        "Cut",
        "Reset",
        "OnConnect(Reset)",
        "OnConnect(Ignore)",
        "delay: 1",
        "bandwidth: Some",
        "slice: Some",
        "black_hole: Some(ToServer)",
        "black_hole: Some(ToClient)",
        "cut_after: Some",
    ] {
        assert!(text.contains(kind), "{kind} is in none of\n{text}");
    }
}
