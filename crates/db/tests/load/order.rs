//! First come, first served: ten thousand tasks on ten connections, to the last one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use cenote::Db;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::figures::{Latencies, MEGABYTE, alone, growth, length, memory};
use crate::servers::dsn;

const TASKS: usize = 10_000;
const CONNECTIONS: usize = 10;

/// On one thread, so that the order of arrival is defined.
struct Queue {
    db: Db,
    until: Instant,
    arrivals: Cell<u64>,
    /// The numbers under which tasks came, in the order in which they were served.
    served: RefCell<Vec<u64>>,
    waits: RefCell<Vec<Duration>>,
    turns: RefCell<Vec<u32>>,
}

impl Queue {
    async fn live(&self, task: usize) {
        while Instant::now() < self.until {
            let (number, came) = (self.arrivals.get(), Instant::now());
            self.arrivals.set(number + 1);
            // Its first poll follows at once, and puts it into the queue.
            let connection = self.db.connection().await.unwrap();
            self.served.borrow_mut().push(number);
            self.waits.borrow_mut().push(came.elapsed());
            self.turns.borrow_mut()[task] += 1;
            let one: i64 = connection
                .query_as_one("SELECT ?::int8", (1,))
                .await
                .unwrap();
            assert_eq!(one, 1);
        }
    }
}

#[tokio::test]
async fn ten_thousand_tasks_on_ten_connections_are_served_in_order() {
    let _alone = alone().await;
    let length = length(Duration::from_secs(6));
    let db = Db::builder(&dsn())
        .max(CONNECTIONS)
        .acquire_timeout(None)
        .open()
        .await
        .unwrap();
    let most = usize::try_from(length.as_secs() + 1).unwrap() * 50_000;
    let queue = Rc::new(Queue {
        db: db.clone(),
        until: Instant::now() + length,
        arrivals: Cell::new(0),
        // With room for all, so that what grows is not the measuring.
        served: RefCell::new(vec![0; most]),
        waits: RefCell::new(vec![Duration::ZERO; most]),
        turns: RefCell::new(vec![0; TASKS]),
    });
    queue.served.borrow_mut().clear();
    queue.waits.borrow_mut().clear();
    let local = LocalSet::new();
    for task in 0..TASKS {
        let queue = Rc::clone(&queue);
        local.spawn_local(async move { queue.live(task).await });
    }
    let watched = local.run_until(async {
        // From when everybody waits, and the first thousand have been served.
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        while queue.served.borrow().len() < 1_000 {
            looks.tick().await;
        }
        let (waiting, before) = (db.status().waiting, memory());
        tokio::time::sleep_until(queue.until).await;
        (waiting, before, memory())
    });
    let (waiting, before, after) = watched.await;
    assert!(waiting > TASKS - 2 * CONNECTIONS, "{waiting} waited");
    local.await;

    let served = queue.served.borrow();
    assert!(served.len() < most, "more than was reckoned with");
    // Only a task that was polled so late that its reservation was revoked comes after later ones.
    let revoked = db.pool().unwrap().counters().revoked;
    let late = served.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(
        late as u64 <= revoked,
        "{late} came out of order, {revoked} were polled late"
    );
    let turns = queue.turns.borrow();
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    let slack = 1 + u32::from(revoked > 0);
    assert!(
        *least > 0 && most - least <= slack,
        "{least} to {most} turns"
    );
    let grown = growth(before, after);
    assert!(grown < 16 * MEGABYTE, "{} MB more", grown / MEGABYTE);
    let status = db.status();
    assert_eq!(
        (status.waiting, status.active, status.idle),
        (0, 0, status.total)
    );
    println!(
        "{TASKS} tasks on {CONNECTIONS} connections for {length:?}: {least} to {most} turns each, \
         {} KB more memory; {}",
        grown / 1024,
        Latencies::new(queue.waits.borrow().clone())
    );
}
