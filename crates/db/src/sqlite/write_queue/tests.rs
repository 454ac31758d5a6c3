use std::time::Duration;

use super::*;
use crate::sqlite::statement::OwnedSql;

const KIND: SessionKind = SessionKind(0);

fn write_queue() -> Arc<WriteQueue> {
    Arc::new(WriteQueue::default())
}

fn control(call: u64) -> Arc<Control> {
    let control = Arc::new(Control::new(Duration::from_secs(3600)));
    control.begin(call);
    control
}

/// Enters and gets the permit, at once or on a thread that waits.
fn permit(write_queue: &Arc<WriteQueue>) -> WritePermit {
    write_queue.enter_blocking(&control(1)).unwrap()
}

fn request(sql: &str) -> Arc<OwnedRequest> {
    Arc::new(OwnedRequest {
        sql: OwnedSql::new(sql),
        params: Vec::new(),
        script: false,
        cache: true,
        rows: false,
    })
}

/// Queues with a request while the permit is taken.
fn queued_for(write_queue: &Arc<WriteQueue>, sql: &str, timeout: Duration) -> Ticket {
    match write_queue.enter(Some((KIND, &request(sql))), timeout) {
        EnterOutcome::Queued(ticket) => ticket,
        EnterOutcome::Permit(_) => panic!("the permit was free"),
    }
}

fn queued(write_queue: &Arc<WriteQueue>, sql: &str) -> Ticket {
    queued_for(write_queue, sql, Duration::from_secs(3600))
}

fn answer(ticket: &Ticket) -> Option<Result<QueueAnswer>> {
    match ticket.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn offered(ticket: &Ticket) -> Option<WritePermit> {
    answer(ticket).map(|answer| answer.unwrap().into_permit())
}

fn texts(batch: &WriteBatch) -> Vec<String> {
    let texts = batch.requests().map(|request| request.sql.to_string());
    texts.collect()
}

/// Waits until so many are queued.
fn until_queued(write_queue: &WriteQueue, count: usize) {
    while write_queue.waiting() != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_file_has_one_write_queue_whatever_its_name_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.db");
    std::fs::write(&file, "").unwrap();
    let other_name = folder.path().join(".").join("one.db");
    let (one, is_new) = WriteQueue::of(DatabaseId::of_file(file.to_str().unwrap()).unwrap());
    assert!(is_new);
    let (same, is_new) = WriteQueue::of(DatabaseId::of_file(other_name.to_str().unwrap()).unwrap());
    assert!(!is_new && Arc::ptr_eq(&one, &same));
    let (other, _) = WriteQueue::of(DatabaseId::Name("another".to_owned()));
    assert!(!Arc::ptr_eq(&one, &other));
}

#[test]
fn permits_come_in_the_order_of_arrival() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let served = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for n in 0..8 {
            let (write_queue, served) = (&write_queue, &served);
            threads.spawn(move || {
                let turn = permit(write_queue);
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
fn no_acquire_overtakes_a_waiter() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| permit(&write_queue));
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
    let first = permit(&write_queue);
    let cancelled = control(5);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| write_queue.enter_blocking(&cancelled));
        until_queued(&write_queue, 1);
        cancelled.cancel(5);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.message(), error::cancelled().message());
    });
    assert_eq!(write_queue.waiting(), 0);
    drop(first);
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn waiting_ends_with_the_busy_timeout() {
    let write_queue = write_queue();
    let _first = permit(&write_queue);
    let hasty = Arc::new(Control::new(Duration::ZERO));
    hasty.begin(1);
    let error = write_queue.enter_blocking(&hasty).unwrap_err();
    assert_eq!(error.message(), error::write_queue_timeout(None).message());
    assert_eq!(write_queue.waiting(), 0);
}

#[test]
fn a_batch_ends_before_the_first_waiter_without_a_request() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let tickets = ["one", "two"].map(|sql| queued(&write_queue, sql));
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| permit(&write_queue));
        until_queued(&write_queue, 3);
        let last = queued(&write_queue, "three");
        let mut batch = first.take_batch(KIND, 10);
        assert_eq!(texts(&batch), ["one", "two"]);
        for ticket in &tickets {
            batch.answer_next(Ok(Outcome::default()));
            let answer = answer(ticket).unwrap().unwrap();
            assert!(matches!(answer, QueueAnswer::Written(_)));
        }
        drop(first);
        let second = thread.join().unwrap();
        assert!(answer(&last).is_none());
        drop(second);
        assert!(offered(&last).is_some());
    });
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn a_batch_takes_no_request_of_another_session_kind() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let _ticket = queued(&write_queue, "one");
    let of_another = first.take_batch(SessionKind::new(), 9);
    assert!(texts(&of_another).is_empty());
    assert_eq!(texts(&first.take_batch(KIND, 9)), ["one"]);
}

#[test]
fn waiters_of_an_undone_batch_go_first_and_alone() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let tickets = ["one", "two", "three"].map(|sql| queued(&write_queue, sql));
    drop(first.take_batch(KIND, 2));
    assert!(!first.can_batch(KIND));
    assert!(texts(&first.take_batch(KIND, 9)).is_empty());
    drop(first);
    for ticket in &tickets {
        drop(offered(ticket).unwrap());
    }
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn a_dropped_ticket_passes_its_permit_on() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let (gone, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    drop(gone);
    assert!(offered(&next).is_some());
}

#[test]
fn a_ticket_that_has_left_is_not_batched() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let ticket = queued(&write_queue, "one");
    assert!(ticket.leave());
    assert!(ticket.leave());
    assert!(texts(&first.take_batch(KIND, 9)).is_empty());
}

#[test]
fn a_batched_ticket_leaves_when_its_batch_is_undone() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let ticket = queued(&write_queue, "one");
    let batch = first.take_batch(KIND, 9);
    assert!(!ticket.leave());
    assert!(answer(&ticket).is_none());
    drop(batch);
    assert!(answer(&ticket).unwrap().is_err());
    assert!(ticket.leave());
    assert_eq!(write_queue.waiting(), 0);
}

#[test]
fn a_dropped_ticket_in_a_batch_does_not_keep_the_permit() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let ticket = queued(&write_queue, "one");
    let batch = first.take_batch(KIND, 9);
    drop(ticket);
    drop(batch);
    drop(first);
    assert!(write_queue.try_enter().is_some());
}

#[test]
fn a_waiter_whose_time_is_up_gets_an_error_and_is_removed() {
    let write_queue = write_queue();
    let _first = permit(&write_queue);
    let hasty = queued_for(&write_queue, "one", Duration::ZERO);
    let patient = queued(&write_queue, "two");
    assert!(write_queue.check_times());
    let error = answer(&hasty).unwrap().unwrap_err();
    assert_eq!(error.message(), error::write_queue_timeout(None).message());
    assert!(answer(&patient).is_none());
    assert_eq!(write_queue.waiting(), 1);
    assert!(patient.leave());
    assert!(!write_queue.check_times());
}

#[test]
fn an_uncollected_permit_is_passed_on_and_its_task_batchable() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let (idle, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    // It is the idle one's turn, for a while.
    assert!(write_queue.check_times());
    assert!(answer(&next).is_none());
    let turn = loop {
        assert!(write_queue.check_times());
        if let Some(turn) = offered(&next) {
            break turn;
        }
        std::thread::yield_now();
    };
    assert!(answer(&idle).is_none());
    assert_eq!(texts(&turn.take_batch(KIND, 9)), ["one"]);
}

#[test]
fn a_permit_is_not_revoked_without_another_waiter() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let idle = queued(&write_queue, "one");
    drop(first);
    let began = timing::now();
    while timing::now() - began < UNCOLLECTED * 2 {
        assert!(!write_queue.check_times());
    }
    assert!(offered(&idle).is_some());
}

#[test]
fn a_ticket_that_leaves_gives_its_permit_up_at_once() {
    let write_queue = write_queue();
    let first = permit(&write_queue);
    let (gone, next) = (queued(&write_queue, "one"), queued(&write_queue, "two"));
    drop(first);
    assert!(gone.leave());
    assert!(offered(&next).is_some());
}
