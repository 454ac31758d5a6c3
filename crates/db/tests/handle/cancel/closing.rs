//! Closing a handle, dropped half-way: it is closed all the same.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote::pool::Runtime;
use cenote::{Kind, Result};
use cenote_testkit::poll::{drop_after, yield_now};

use super::fake::{ALL_MANNERS, World};

/// A transaction in another task, which is stopped before its last statement.
fn held_transaction(world: &World) -> Arc<Mutex<Option<Result<()>>>> {
    let done = Arc::new(Mutex::new(None));
    let (tell, db) = (Arc::clone(&done), world.db.clone());
    world.fake.hold("VALUES (2)");
    world.runtime.spawn(Box::pin(async move {
        let transaction = db.transaction(async || {
            db.exec("INSERT INTO t VALUES (1)", ()).await?;
            db.exec("INSERT INTO t VALUES (2)", ()).await?;
            Ok(())
        });
        let told = transaction.await;
        *tell.lock().expect("nobody panics with it") = Some(told);
    }));
    world.runtime.run();
    assert_eq!(world.fake.held().len(), 1);
    done
}

#[test]
fn dropped_close_and_drain_closes_and_lets_transactions_finish() {
    for manners in ALL_MANNERS {
        for polls in 0.. {
            let world = World::new(manners, 2);
            let transaction = held_transaction(&world);
            let closing = async {
                let close = world.db.close_and_drain(Duration::from_secs(60));
                let release = async {
                    for _ in 0..3 {
                        yield_now().await;
                    }
                    world.fake.release();
                };
                tokio::join!(close, release).0
            };
            let closed = world.run(drop_after(polls, closing));
            if polls > 0 {
                let refused = world.run(world.db.exec("INSERT INTO t VALUES (3)", ()));
                let kind = refused.map_err(|error| error.kind());
                assert_eq!(kind.err(), Some(Kind::Closed), "{manners:?}, {polls} polls");
            }
            world.fake.release();
            world.runtime.run();
            let finished = transaction.lock().expect("nobody panics with it").take();
            finished.expect("it has ended").expect("it may finish");
            assert_eq!(world.rows("t"), [1, 2], "{manners:?}, {polls} polls");
            assert_eq!(world.wrong(), None, "{manners:?}, {polls} polls");
            if let Some(closed) = closed {
                closed.expect("all connections came back");
                assert_eq!(world.db.status().total, 0);
                break;
            }
        }
    }
}
