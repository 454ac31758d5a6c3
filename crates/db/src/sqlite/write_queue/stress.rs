//! Many threads and tasks at once that write, wait, time out, are cancelled and leave.

use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use super::*;
use crate::sqlite::statement::OwnedSql;
use crate::{Error, Kind};

const CALLERS: u64 = 12;
const CALLS: u64 = 3000;

#[derive(Debug, Default)]
struct Counts {
    inside: AtomicUsize,
    own_turn: AtomicUsize,
    batched: AtomicUsize,
    gave_up: AtomicUsize,
}

struct Stress {
    write_queue: Arc<WriteQueue>,
    kinds: [SessionKind; 2],
    counts: Counts,
    /// What was written for others.
    written: Mutex<HashSet<String>>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Stress {
    fn write(&self, permit: WritePermit, kind: SessionKind, call: u64) {
        assert_eq!(self.counts.inside.fetch_add(1, SeqCst), 0);
        (0..call % 7).for_each(|_| std::thread::yield_now());
        let mut batch = permit.take_batch(kind, 4);
        std::thread::yield_now();
        let requests = batch.requests().map(|request| request.sql.to_string());
        let requests: Vec<_> = requests.collect();
        let answered = match call % 5 {
            0 => 0,
            1 => requests.len() / 2,
            _ => requests.len(),
        };
        for sql in requests.into_iter().take(answered) {
            assert!(self.written.lock().unwrap().insert(sql.clone()));
            batch.answer_next(Err(Error::new(Kind::Database, sql)));
        }
        drop(batch);
        assert_eq!(self.counts.inside.fetch_sub(1, SeqCst), 1);
        self.counts.own_turn.fetch_add(1, SeqCst);
        drop(permit);
    }

    fn give_up(&self) {
        self.counts.gave_up.fetch_add(1, SeqCst);
    }

    /// A connection's thread: it cannot be written for.
    fn enter(&self, control: &Arc<Control>, call: u64) {
        let entered = match control.begin(call) {
            true => self.write_queue.enter_blocking(control),
            false => Err(error::cancelled()),
        };
        match entered {
            Ok(permit) => self.write(permit, self.kinds[0], call),
            Err(_) => self.give_up(),
        }
        control.end();
    }

    /// A task: others may write for it, and it may leave after some polls.
    fn join(&self, caller: u64, call: u64) {
        let kind = self.kinds[usize::from(caller.is_multiple_of(4))];
        let sql = format!("{caller} {call}");
        let request = Arc::new(OwnedRequest {
            sql: OwnedSql::new(&sql),
            params: Vec::new(),
            script: false,
            cache: true,
            rows: false,
        });
        let patience = match call % 6 {
            0 => Duration::from_micros(50),
            _ => Duration::from_secs(3600),
        };
        let entered = self.write_queue.enter(Some((kind, &request)), patience);
        let ticket = match entered {
            EnterOutcome::Permit(permit) => return self.write(permit, kind, call),
            EnterOutcome::Queued(ticket) => ticket,
        };
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut leaves = call.is_multiple_of(3);
        loop {
            match ticket.poll(&mut cx) {
                Poll::Ready(Ok(QueueAnswer::Permit(permit))) => {
                    return self.write(permit, kind, call);
                }
                Poll::Ready(Err(error)) if error.message() == sql => {
                    self.counts.batched.fetch_add(1, SeqCst);
                    return;
                }
                Poll::Ready(Err(error)) => {
                    let expected = [error::write_queue_timeout(None), error::cancelled()];
                    assert!(expected.iter().any(|e| e.message() == error.message()));
                    break;
                }
                Poll::Ready(Ok(QueueAnswer::Written(_))) => panic!("every answer is an error"),
                Poll::Pending if leaves => {
                    leaves = false;
                    if ticket.leave() {
                        break;
                    }
                }
                Poll::Pending => std::thread::park(),
            }
        }
        self.give_up();
        std::thread::yield_now();
        // Nobody writes for one who has given up.
        assert!(!self.written.lock().unwrap().contains(&sql));
    }
}

#[test]
fn one_writes_at_a_time_and_each_waiter_gets_its_own_answer() {
    let stress = Stress {
        write_queue: Arc::default(),
        kinds: [SessionKind::new(), SessionKind::new()],
        counts: Counts::default(),
        written: Mutex::default(),
    };
    let is_over = AtomicBool::new(false);
    let patience = |n: u64| match n % 3 {
        0 => Duration::from_micros(50),
        _ => Duration::from_secs(3600),
    };
    let control = |n| (Arc::new(Control::new(patience(n))), AtomicU64::new(0));
    let controls: Vec<_> = (0..CALLERS).map(control).collect();
    std::thread::scope(|threads| {
        let callers = (0..).zip(&controls).map(|(n, (control, running))| {
            let stress = &stress;
            threads.spawn(move || {
                for call in 1..=CALLS {
                    running.store(call, SeqCst);
                    match (call + n).is_multiple_of(4) {
                        true => stress.enter(control, call),
                        false => stress.join(n, call),
                    }
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        threads.spawn(|| {
            while !is_over.load(SeqCst) {
                stress.write_queue.check_times();
                for (control, running) in controls.iter().step_by(2) {
                    control.cancel(running.load(SeqCst));
                }
                std::thread::yield_now();
            }
        });
        let ended = callers.into_iter().map(std::thread::ScopedJoinHandle::join);
        let ended: Vec<_> = ended.collect();
        is_over.store(true, SeqCst);
        assert!(ended.iter().all(std::result::Result::is_ok));
    });
    let Stress {
        write_queue,
        counts,
        ..
    } = stress;
    assert_eq!(write_queue.waiting(), 0);
    assert!(write_queue.try_enter().is_some());
    for count in [&counts.own_turn, &counts.batched, &counts.gave_up] {
        assert!(count.load(SeqCst) > 100, "{counts:?}");
    }
}
