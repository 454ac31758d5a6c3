use std::time::Duration;

use super::*;
use crate::sqlite::session::Text;

const MAKE: SessionKind = SessionKind(0);

fn write_queue() -> Arc<WriteQueue> {
    Arc::new(WriteQueue::default())
}

fn control(call: u64) -> Arc<Control> {
    let control = Arc::new(Control::new(Duration::from_secs(3600)));
    control.begin(call);
    control
}

fn permit(turn: EnterOutcome) -> WritePermit {
    match turn {
        EnterOutcome::In(permit) => permit,
        other => panic!("not in the write queue: {other:?}"),
    }
}

fn order(sql: &str) -> Arc<Order> {
    Arc::new(Order {
        sql: Text::new(sql),
        params: Vec::new(),
        script: false,
        cache: true,
        rows: false,
    })
}

/// Joins a write queue that is taken.
fn queued(write_queue: &Arc<WriteQueue>, sql: &str) -> Ticket {
    match write_queue.join(MAKE, Some(&order(sql)), Duration::from_secs(3600)) {
        Joined::Queued(ticket) => ticket,
        Joined::EnterOutcome(_) => panic!("the write queue was free"),
    }
}

fn told(ticket: &Ticket) -> Option<Word> {
    match ticket.poll_word(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(word) => Some(word),
        Poll::Pending => None,
    }
}

/// Waits until so many are queued.
fn until_queued(write_queue: &WriteQueue, count: usize) {
    while write_queue.waiting() != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_file_has_one_lane_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.db");
    std::fs::write(&file, "").unwrap();
    let other_name = folder.path().join(".").join("one.db");
    let (one, is_new) = WriteQueue::of(Key::of_file(file.to_str().unwrap()).unwrap());
    assert!(is_new);
    let (same, is_new) = WriteQueue::of(Key::of_file(other_name.to_str().unwrap()).unwrap());
    assert!(!is_new && Arc::ptr_eq(&one, &same));
    let (other, _) = WriteQueue::of(Key::Name("another".to_owned()));
    assert!(!Arc::ptr_eq(&one, &other));
}

#[test]
fn turns_come_in_the_order_in_which_they_were_asked_for() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let served = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for n in 0..8 {
            let (write_queue, served) = (&write_queue, &served);
            threads.spawn(move || {
                let turn = permit(write_queue.enter(&control(1)));
                served.lock().unwrap().push(n);
                drop(turn);
            });
            until_queued(write_queue, n + 1);
        }
        drop(first);
    });
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn nobody_barges_in_before_one_that_waits() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| permit(write_queue.enter(&control(1))));
        until_queued(&write_queue, 1);
        drop(first);
        assert!(write_queue.try_enter().is_none());
        drop(waiting.join().unwrap());
    });
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn a_cancelled_call_leaves_the_queue() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let cancelled = control(5);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| write_queue.enter(&cancelled));
        until_queued(&write_queue, 1);
        cancelled.cancel(5);
        assert!(matches!(waiting.join().unwrap(), EnterOutcome::Cancelled));
    });
    assert_eq!(write_queue.waiting(), 0);
    drop(first);
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn waiting_ends_with_the_busy_timeout() {
    let write_queue = write_queue();
    let _first = permit(write_queue.enter(&control(1)));
    let hasty = Arc::new(Control::new(Duration::ZERO));
    hasty.begin(1);
    assert!(matches!(write_queue.enter(&hasty), EnterOutcome::TimedOut));
    assert_eq!(write_queue.waiting(), 0);
}

#[test]
fn those_who_joined_are_taken_along_up_to_the_first_who_did_not() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let tickets = ["one", "two"].map(|sql| queued(&write_queue, sql));
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| permit(write_queue.enter(&control(1))));
        until_queued(&write_queue, 3);
        let last = queued(&write_queue, "three");
        let batched = first.batched(MAKE, 10);
        let sql: Vec<_> = batched.iter().map(|c| c.order().sql.to_string()).collect();
        assert_eq!(sql, ["one", "two"]);
        for batched_write in batched {
            batched_write.answer(Ok(Outcome::default()));
        }
        for ticket in &tickets {
            assert!(matches!(told(ticket), Some(Word::Done(done)) if done.is_ok()));
        }
        drop(first);
        let second = thread.join().unwrap();
        assert!(told(&last).is_none());
        drop(second);
        assert!(matches!(told(&last), Some(Word::EnterOutcome(_))));
    });
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn nobody_is_taken_along_by_a_session_of_another_make() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let _ticket = queued(&write_queue, "one");
    assert_eq!(first.batched(SessionKind::new(), 9).len(), 0);
    assert_eq!(first.batched(MAKE, 9).len(), 1);
}

#[test]
fn companions_that_are_put_back_go_first_and_alone() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let tickets = ["one", "two", "three"].map(|sql| queued(&write_queue, sql));
    put_back(first.batched(MAKE, 2));
    assert_eq!(first.batched(MAKE, 9).len(), 0);
    drop(first);
    for ticket in &tickets {
        let Some(Word::EnterOutcome(turn)) = told(ticket) else {
            panic!("it is its turn");
        };
        drop(turn);
    }
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn a_turn_that_nobody_collects_is_the_next_ones() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let (gone, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    drop(gone);
    assert!(matches!(told(&next), Some(Word::EnterOutcome(_))));
}

#[test]
fn one_who_leaves_is_not_taken_along() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let ticket = queued(&write_queue, "one");
    assert!(ticket.leave());
    assert!(ticket.leave());
    assert_eq!(first.batched(MAKE, 9).len(), 0);
}

#[test]
fn one_who_is_in_hand_cannot_leave_until_it_is_put_back() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let ticket = queued(&write_queue, "one");
    let batched = first.batched(MAKE, 9);
    assert!(!ticket.leave());
    put_back(batched);
    assert!(ticket.leave());
}

#[test]
fn a_task_whose_time_is_up_is_told_so_and_is_out_of_the_queue() {
    let write_queue = write_queue();
    let _first = permit(write_queue.enter(&control(1)));
    let Joined::Queued(hasty) = write_queue.join(MAKE, Some(&order("one")), Duration::ZERO) else {
        panic!("the write queue is taken");
    };
    let patient = queued(&write_queue, "two");
    assert!(write_queue.watch());
    assert!(matches!(told(&hasty), Some(Word::TimedOut)));
    assert!(told(&patient).is_none());
    assert_eq!(write_queue.waiting(), 1);
    assert!(patient.leave());
    assert!(!write_queue.watch());
}

#[test]
fn uncollected_turn_is_passed_on_and_its_task_may_be_batched() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let (idle, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    // It is the idle one's turn, for a while.
    assert!(write_queue.watch());
    assert!(told(&next).is_none());
    let turn = loop {
        assert!(write_queue.watch());
        if let Some(Word::EnterOutcome(turn)) = told(&next) {
            break turn;
        }
        std::thread::yield_now();
    };
    assert!(told(&idle).is_none());
    let batched = turn.batched(MAKE, 9);
    assert_eq!(batched.len(), 1);
    assert_eq!(&*batched[0].order().sql, "one");
}

#[test]
fn a_turn_that_nobody_else_waits_for_is_not_taken_back() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let idle = queued(&write_queue, "one");
    drop(first);
    let began = timing::now();
    while timing::now() - began < UNCOLLECTED * 2 {
        assert!(!write_queue.watch());
    }
    assert!(matches!(told(&idle), Some(Word::EnterOutcome(_))));
}

#[test]
fn one_who_leaves_gives_its_turn_up_at_once() {
    let write_queue = write_queue();
    let first = permit(write_queue.enter(&control(1)));
    let (gone, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    assert!(gone.leave());
    assert!(matches!(told(&next), Some(Word::EnterOutcome(_))));
}
