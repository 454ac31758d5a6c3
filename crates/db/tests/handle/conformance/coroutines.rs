//! Coroutines: who is one, and what happens when it ends.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use cenote::{Coroutine, Error, Kind, Result};
use tokio::sync::{Barrier, oneshot};

use super::support::{
    Shop, block_on_plain_thread, connection_id, count, insert, numbers, poll_once, quiet, run_in,
    shop, until,
};

#[tokio::test]
async fn a_coroutine_has_a_number_that_is_never_given_out_again() {
    assert_eq!(cenote::current(), None);
    let one = cenote::scope(async { cenote::current() });
    let other = cenote::scope(async { cenote::current() });
    let (first, second) = (one.id(), other.id());
    assert!(first < second, "numbers are given out in order");
    assert_eq!(other.await, Some(second));
    assert_eq!(one.await, Some(first));
    assert_eq!(cenote::current(), None);
    let spawned = cenote::spawn(async { cenote::current() }).await.unwrap();
    assert!(spawned > Some(second));
    assert_eq!(first.to_string(), format!("coroutine {}", first.get()));
}

#[tokio::test]
async fn a_scope_is_current_only_while_it_is_polled() {
    let mut scope = pin!(cenote::scope(async {
        assert!(cenote::current().is_some());
        tokio::task::yield_now().await;
        assert!(cenote::current().is_some());
        pending::<()>().await;
    }));
    for _ in 0..3 {
        assert!(poll_once(scope.as_mut()).await.is_pending());
        assert_eq!(cenote::current(), None);
    }
}

/// Two scopes that one thread polls in turn never see each other's bindings.
#[tokio::test]
async fn scopes_that_are_polled_in_turn_keep_their_bindings_apart() -> Result<()> {
    let shop = shop(2).await;
    // One that ends before the other begins would leave its connection to it.
    let both_pin = Barrier::new(2);
    let scope = |n: i64| {
        let (shop, both_pin) = (&shop, &both_pin);
        cenote::scope(async move {
            let _pin = shop.pin().await?;
            let id = connection_id(shop).await?;
            both_pin.wait().await;
            for _ in 0..5 {
                tokio::task::yield_now().await;
                insert(shop, n).await?;
                assert_eq!(connection_id(shop).await?, id);
            }
            Ok::<i64, Error>(id)
        })
    };
    let (one, other) = tokio::join!(scope(1), scope(2));
    assert_ne!(one?, other?);
    Ok(())
}

/// Counts the ends, and how the pool looks then.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<usize>>>);

impl Ends {
    fn on(&self, shop: &Shop) -> impl FnOnce() + Send + 'static + use<> {
        let (ends, db) = (Arc::clone(&self.0), shop.db.clone());
        move || ends.lock().unwrap().push(db.status().active)
    }

    fn seen(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn completion_callbacks_run_after_the_connections_returned() -> Result<()> {
    let shop = shop(1).await;
    for fails in [false, true] {
        let ends = Ends::default();
        let scope = cenote::scope(async {
            let pin = shop.pin().await?;
            assert_eq!(ends.seen(), [0; 0]);
            std::mem::forget(pin);
            match fails {
                true => Err(Error::other("no")),
                false => Ok(()),
            }
        });
        let done = scope.on_end(ends.on(&shop)).await;
        assert_eq!(done.is_err(), fails);
        assert_eq!(ends.seen(), [0]);
    }
    Ok(())
}

#[tokio::test]
async fn completion_callbacks_run_when_it_panics() {
    let shop = shop(1).await;
    let ends = Ends::default();
    let scope = cenote::spawn({
        let db = shop.db.clone();
        async move {
            let pin = db.pin().await.unwrap();
            std::mem::forget(pin);
            panic!("it breaks");
        }
    });
    assert!(scope.await.unwrap_err().is_panic());
    let scope = cenote::scope(async {
        let pin = shop.pin().await.unwrap();
        std::mem::forget(pin);
        panic!("it breaks");
    });
    let scope = scope.on_end(ends.on(&shop));
    let caught = Caught(Some(Box::pin(scope))).await;
    assert!(caught.is_err());
    assert_eq!(ends.seen(), [0]);
    assert_eq!(cenote::current(), None, "a panic leaves no frame behind");
    assert_eq!(shop.status().active, 0);
}

/// Catches a panic of a future, which is dropped then, as a task does.
struct Caught<F: Future>(Option<Pin<Box<F>>>);

impl<F: Future> Future for Caught<F> {
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut().expect("it is not polled again");
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => {
                self.0 = None;
                Poll::Ready(Err(panic))
            }
        }
    }
}

#[tokio::test]
async fn completion_callbacks_run_when_it_is_dropped() -> Result<()> {
    let shop = shop(1).await;
    let ends = Ends::default();
    drop(cenote::scope(async {}).on_end(ends.on(&shop)));
    assert_eq!(ends.seen(), [0], "before its first poll");

    let ends = Ends::default();
    let mut scope = Box::pin(
        cenote::scope(async {
            let _pin = shop.pin().await.unwrap();
            pending::<()>().await;
        })
        .on_end(ends.on(&shop)),
    );
    while shop.status().active == 0 {
        assert!(poll_once(scope.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
    }
    assert!(poll_once(scope.as_mut()).await.is_pending());
    assert_eq!(ends.seen(), [0; 0]);
    drop(scope);
    assert_eq!(ends.seen(), [0], "half-way");
    Ok(())
}

#[tokio::test]
async fn all_completion_callbacks_run_in_order_though_one_panics() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |n: i32| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(n)
    };
    cenote::scope(async {})
        .on_end(note(1))
        .on_end(|| panic!("a callback breaks"))
        .on_end(note(2))
        .await;
    assert_eq!(*order.lock().unwrap(), [1, 2]);
}

/// B-042
#[tokio::test]
async fn a_task_that_is_aborted_in_its_transaction_is_rolled_back() -> Result<()> {
    let shop = shop(1).await;
    let (tell, told) = oneshot::channel();
    let task = cenote::spawn({
        let db = shop.db.clone();
        async move {
            db.transaction(async || {
                insert(&db, 1).await?;
                tell.send(()).unwrap();
                pending::<()>().await;
                Ok(())
            })
            .await
        }
    });
    told.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn a_task_that_panics_in_its_transaction_is_rolled_back() -> Result<()> {
    let shop = shop(1).await;
    let task = cenote::spawn({
        let db = shop.db.clone();
        async move {
            let done: Result<()> = db
                .transaction(async || {
                    insert(&db, 1).await?;
                    panic!("it breaks");
                })
                .await;
            done
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(count(&shop).await, 0);
    quiet(&shop).await;
    assert_eq!(shop.status().idle, 1);
    Ok(())
}

/// A `LocalSet` that is driven inside a scope polls tasks that are none of it.
#[tokio::test]
async fn a_local_set_inside_a_scope_counts_as_outside() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let own = cenote::current();
        let local = tokio::task::LocalSet::new();
        let db = shop.db.clone();
        local
            .run_until(async {
                // The future that drives it is of the scope.
                assert_eq!(cenote::current(), own);
                let inside = tokio::task::spawn_local(async move {
                    assert_eq!(cenote::current(), None);
                    assert!(!db.in_transaction());
                    assert_eq!(db.begin().await.unwrap_err().kind(), Kind::NoCoroutine);
                    count(&db).await
                });
                assert_eq!(inside.await.unwrap(), 0);
            })
            .await;
        assert_eq!(cenote::current(), own);
        tx.rollback().await
    })
    .await
}

#[tokio::test]
async fn what_is_detached_is_outside_of_the_coroutine_around_it() -> Result<()> {
    let shop = shop(2).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let seen = cenote::detached(async {
            assert_eq!(cenote::current(), None);
            assert!(!shop.in_transaction());
            assert!(shop.peek().is_none());
            assert_eq!(shop.begin().await.unwrap_err().kind(), Kind::NoCoroutine);
            count(&shop).await
        });
        assert_eq!(seen.await, 0);
        assert!(shop.in_transaction());
        Ok(())
    })
    .await?;
    cenote::detached(async { insert(&shop, 2).await }).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_host_supplies_an_identity_and_says_when_it_ends() -> Result<()> {
    let shop = shop(1).await;
    let host = Coroutine::new();
    let ends = Ends::default();
    host.on_end(ends.on(&shop));
    let tx = run_in(&host, shop.begin()).await;
    // Made outside of the host's coroutine.
    assert_eq!(tx.unwrap_err().kind(), Kind::Escaped);
    run_in(&host, async {
        assert_eq!(cenote::current(), Some(host.id()));
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        std::mem::forget(tx);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(cenote::current(), None);
    // In another piece of it, later: the transaction is still around.
    assert!(host.enter(|| shop.in_transaction()));
    assert_eq!(shop.status().active, 1);
    assert_eq!(ends.seen(), [0; 0]);
    host.end();
    assert_eq!(ends.seen().len(), 1);
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn dropping_a_hosts_coroutine_ends_it() -> Result<()> {
    let shop = shop(1).await;
    let host = Coroutine::new();
    let pin = run_in(&host, async { shop.pin().await }).await?;
    assert_eq!(shop.status().active, 1);
    drop(host);
    assert_eq!(shop.status().active, 0);
    drop(pin);
    Ok(())
}

/// D-lite-s010: begun before there was a runtime, committed under one.
#[test]
fn host_transaction_continues_when_a_runtime_starts_under_it() {
    let shop = block_on_plain_thread(shop(1));
    let host = Coroutine::new();
    let tx = block_on_plain_thread(run_in(&host, async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        Ok::<_, Error>(tx)
    }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let committed = runtime.unwrap().block_on(run_in(&host, async {
        assert!(shop.in_transaction());
        insert(&shop, 2).await?;
        tx?.commit().await
    }));
    committed.unwrap();
    host.end();
    assert_eq!(block_on_plain_thread(numbers(&shop)), [1, 2]);
}

#[tokio::test]
async fn a_coroutine_that_ended_binds_nothing_more() -> Result<()> {
    let shop = shop(1).await;
    let host = Coroutine::new();
    let mut call = Box::pin(run_in(&host, async { shop.exec("BEGIN", ()).await }));
    // Under way on its connection when the host says that it is over.
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    drop(call);
    host.end();
    quiet(&shop).await;
    insert(&shop, 1).await?;
    assert_eq!(shop.status().active, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_coroutines_keep_to_themselves() -> Result<()> {
    let shop = shop(4).await;
    static MIXED: AtomicUsize = AtomicUsize::new(0);
    let tasks: Vec<_> = (0..200_i64)
        .map(|n| {
            let db = shop.db.clone();
            cenote::spawn(async move {
                let statement = db.prepare("SELECT ?").await?;
                tokio::task::yield_now().await;
                let own: Vec<i64> = statement.query_as((n,)).await?;
                if own != [n] || db.last_error().is_some() {
                    MIXED.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap()?;
    }
    assert_eq!(MIXED.load(Ordering::Relaxed), 0);
    until("all are back", || shop.status().active == 0).await;
    assert!(shop.status().total <= 4);
    Ok(())
}
