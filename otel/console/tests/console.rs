//! The console sees a pool as it sees Tokio's own resources. The tests read what `console-subscriber` sends to
//! tokio-console, over gRPC.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::thread;
use std::time::Duration;

use cenote_pool::{FnManager, Pool};
use console_api::field::{Name, Value};
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::resources::resource::kind::Kind;
use console_api::resources::{Resource, Stats};
use console_subscriber::{ConsoleLayer, Server};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Streaming;
use tracing_subscriber::layer::SubscriberExt;

const LIMIT: Duration = Duration::from_secs(30);

/// A client of tokio-console's server, on a thread that the subscriber under test does not see.
struct Console {
    runtime: Runtime,
    updates: Streaming<Update>,
    pools: BTreeMap<u64, Shown>,
}

/// What the console knows about a pool.
#[derive(Debug)]
struct Shown {
    resource: Resource,
    attributes: BTreeMap<String, String>,
    dropped: bool,
}

impl Console {
    fn connect(server: Server) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let updates = runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let parts = server.into_parts();
            tokio::spawn(parts.aggregator.run());
            let serve = tonic::transport::Server::builder()
                .add_service(parts.instrument_server)
                .serve_with_incoming(TcpListenerStream::new(listener));
            tokio::spawn(serve);
            let client = InstrumentClient::connect(format!("http://{address}")).await;
            let updates = client
                .expect("a connection")
                .watch_updates(InstrumentRequest {})
                .await;
            updates.expect("a stream of updates").into_inner()
        });
        Console {
            runtime,
            updates,
            pools: BTreeMap::new(),
        }
    }

    /// Reads updates until the pools are as expected. The server sends one in each interval, and says nothing
    /// about a resource that has not changed, so that a wrong expectation ends by the time limit.
    fn read_until(&mut self, expected: impl Fn(&[&Shown]) -> bool + Sync) -> Vec<&Shown> {
        let Console {
            runtime,
            updates,
            pools,
        } = self;
        let read = async {
            while !expected(&pools.values().collect::<Vec<_>>()) {
                let update = updates.message().await.expect("no error");
                note(pools, update.expect("the stream goes on"));
            }
        };
        let read = async { tokio::time::timeout(LIMIT, read).await };
        // On another thread: this one may run a runtime, and has the subscriber under test.
        let read = thread::scope(|scope| {
            let reader = scope.spawn(|| runtime.block_on(read));
            reader.join().expect("no panic")
        });
        assert!(read.is_ok(), "not seen within {LIMIT:?}: {pools:#?}");
        pools.values().collect()
    }
}

fn note(pools: &mut BTreeMap<u64, Shown>, update: Update) {
    let resources = update.resource_update.expect("a part about resources");
    assert_eq!(resources.dropped_events, 0);
    for resource in resources.new_resources {
        if resource.concrete_type != "Pool" {
            continue; // Tokio's own
        }
        let id = resource.id.expect("an id").id;
        let shown = Shown {
            resource,
            attributes: BTreeMap::new(),
            dropped: false,
        };
        pools.insert(id, shown);
    }
    for (id, stats) in resources.stats_update {
        if let Some(shown) = pools.get_mut(&id) {
            shown.note(&stats);
        }
    }
}

impl Shown {
    fn note(&mut self, stats: &Stats) {
        self.dropped = stats.dropped_at.is_some();
        for attribute in &stats.attributes {
            let field = attribute.field.as_ref().expect("a field");
            let Some(Name::StrName(name)) = &field.name else {
                panic!("an attribute without a name: {field:?}");
            };
            let value = match &field.value {
                Some(Value::U64Val(value)) => value.to_string(),
                Some(Value::BoolVal(value)) => value.to_string(),
                Some(Value::StrVal(value)) => value.clone(),
                other => panic!("{name} is {other:?}"),
            };
            self.attributes.insert(name.clone(), value);
        }
    }

    fn is(&self, expected: &[(&str, &str)]) -> bool {
        let value = |name: &str| self.attributes.get(name).map(String::as_str);
        expected
            .iter()
            .all(|&(name, wanted)| value(name) == Some(wanted))
    }
}

/// Runs `work` with a subscriber for this thread, and gives it the console.
fn with_console(work: impl FnOnce(&mut Console)) {
    let (layer, server) = ConsoleLayer::builder()
        .publish_interval(Duration::from_millis(20))
        .build();
    let mut console = thread::spawn(|| Console::connect(server))
        .join()
        .expect("no panic");
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || work(&mut console));
}

fn in_tokio<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn pool(max: usize) -> Pool<FnManager<u8, Infallible>> {
    let builder = Pool::from_fn(async || Ok(0)).name("orders").max(max);
    builder.build().expect("valid")
}

#[test]
fn console_shows_the_pool_with_its_line_and_name() {
    with_console(|console| {
        let line = line!() + 1;
        let builder = Pool::from_fn(async || Ok::<_, Infallible>(())).name("orders");
        let _pool = builder.build().expect("valid");
        let pools = console.read_until(|pools| pools.iter().any(|pool| pool.attributes.len() > 7));
        let resource = &pools[0].resource;
        let kind = resource.kind.as_ref().and_then(|kind| kind.kind.clone());
        assert_eq!(kind, Some(Kind::Other("Pool".to_owned())));
        let location = resource.location.as_ref().expect("a location");
        assert_eq!(location.line, Some(line));
        assert!(
            location
                .file
                .as_deref()
                .is_some_and(|file| file.ends_with("console.rs"))
        );
        assert!(!resource.is_internal);
        assert!(pools[0].is(&[("name", "orders"), ("max", "10"), ("breaker", "closed")]));
    });
}

#[test]
fn console_shows_the_line_that_opens_a_database() {
    with_console(|console| {
        in_tokio(async {
            let line = line!() + 1;
            let db = cenote::Db::open("sqlite:file:console?mode=memory&cache=shared").await;
            assert!(db.is_ok(), "{db:?}");
            let pools = console.read_until(|pools| !pools.is_empty());
            let location = pools[0].resource.location.as_ref().expect("a location");
            assert_eq!(location.line, Some(line));
            assert!(location.file().ends_with("console.rs"));
        });
    });
}

#[test]
fn console_shows_every_number_of_the_status() {
    with_console(|console| {
        in_tokio(async {
            let pool = pool(2);
            let leases = (pool.acquire().await, pool.acquire().await);
            let waiter = tokio::spawn({
                let pool = pool.clone();
                async move { pool.acquire_owned().await }
            });
            while pool.status().waiting == 0 {
                tokio::task::yield_now().await;
            }
            console.read_until(|pools| {
                pools.len() == 1 && pools[0].is(&[("active", "2"), ("idle", "0"), ("waiting", "1")])
            });
            drop(leases);
            let lease = waiter.await;
            console.read_until(|pools| {
                pools[0].is(&[("active", "1"), ("idle", "1"), ("waiting", "0")])
            });
            // A waiter that leaves is no event of the pool, and still a change.
            let all = (lease, pool.acquire().await);
            let mut waiter = Box::pin(pool.acquire());
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(
                    waiter.as_mut().poll(cx).is_pending()
                ))
                .await
            );
            console.read_until(|pools| pools[0].is(&[("waiting", "1")]));
            drop(waiter);
            console.read_until(|pools| pools[0].is(&[("waiting", "0"), ("active", "2")]));
            pool.resize(3).expect("valid");
            console.read_until(|pools| pools[0].is(&[("max", "3")]));
            pool.open_breaker();
            console.read_until(|pools| pools[0].is(&[("breaker", "open")]));
            drop(all);
            pool.close().await.expect("closed");
            let closed = [("closed", "true"), ("active", "0"), ("idle", "0")];
            console.read_until(|pools| pools[0].is(&closed));
            drop(pool);
            console.read_until(|pools| pools[0].dropped);
        });
    });
}
