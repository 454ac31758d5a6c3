use std::time::Duration;

use super::*;
use crate::sqlite::session::Text;

const MAKE: Make = Make(0);

fn lane() -> Arc<Lane> {
    Arc::new(Lane::default())
}

fn control(call: u64) -> Arc<Control> {
    let control = Arc::new(Control::new(Duration::from_secs(3600)));
    control.begin(call);
    control
}

fn pass(turn: Turn) -> Pass {
    match turn {
        Turn::In(pass) => pass,
        other => panic!("not in the lane: {other:?}"),
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

/// Joins a lane that is taken.
fn queued(lane: &Arc<Lane>, sql: &str) -> Ticket {
    match lane.join(MAKE, Some(&order(sql)), Duration::from_secs(3600)) {
        Joined::Queued(ticket) => ticket,
        Joined::Turn(_) => panic!("the lane was free"),
    }
}

fn told(ticket: &Ticket) -> Option<Word> {
    match ticket.poll_word(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(word) => Some(word),
        Poll::Pending => None,
    }
}

/// Waits until so many are queued.
fn until_queued(lane: &Lane, count: usize) {
    while lane.waiting() != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_file_has_one_lane_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.db");
    std::fs::write(&file, "").unwrap();
    let other_name = folder.path().join(".").join("one.db");
    let (one, is_new) = Lane::of(Key::of_file(file.to_str().unwrap()).unwrap());
    assert!(is_new);
    let (same, is_new) = Lane::of(Key::of_file(other_name.to_str().unwrap()).unwrap());
    assert!(!is_new && Arc::ptr_eq(&one, &same));
    let (other, _) = Lane::of(Key::Name("another".to_owned()));
    assert!(!Arc::ptr_eq(&one, &other));
}

#[test]
fn turns_come_in_the_order_in_which_they_were_asked_for() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let served = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for n in 0..8 {
            let (lane, served) = (&lane, &served);
            threads.spawn(move || {
                let turn = pass(lane.enter(&control(1)));
                served.lock().unwrap().push(n);
                drop(turn);
            });
            until_queued(lane, n + 1);
        }
        drop(first);
    });
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(lane.try_enter().is_some());
}

#[test]
fn nobody_barges_in_before_one_that_waits() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| pass(lane.enter(&control(1))));
        until_queued(&lane, 1);
        drop(first);
        assert!(lane.try_enter().is_none());
        drop(waiting.join().unwrap());
    });
    assert!(lane.try_enter().is_some());
}

#[test]
fn a_cancelled_call_leaves_the_queue() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let cancelled = control(5);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| lane.enter(&cancelled));
        until_queued(&lane, 1);
        cancelled.cancel(5);
        assert!(matches!(waiting.join().unwrap(), Turn::Cancelled));
    });
    assert_eq!(lane.waiting(), 0);
    drop(first);
    assert!(lane.try_enter().is_some());
}

#[test]
fn waiting_ends_with_the_busy_timeout() {
    let lane = lane();
    let _first = pass(lane.enter(&control(1)));
    let hasty = Arc::new(Control::new(Duration::ZERO));
    hasty.begin(1);
    assert!(matches!(lane.enter(&hasty), Turn::TimedOut));
    assert_eq!(lane.waiting(), 0);
}

#[test]
fn those_who_joined_are_taken_along_up_to_the_first_who_did_not() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let tickets = ["one", "two"].map(|sql| queued(&lane, sql));
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| pass(lane.enter(&control(1))));
        until_queued(&lane, 3);
        let last = queued(&lane, "three");
        let companions = first.companions(MAKE, 10);
        let sql: Vec<_> = companions
            .iter()
            .map(|c| c.order().sql.to_string())
            .collect();
        assert_eq!(sql, ["one", "two"]);
        for companion in companions {
            companion.answer(Ok(Outcome::default()));
        }
        for ticket in &tickets {
            assert!(matches!(told(ticket), Some(Word::Done(done)) if done.is_ok()));
        }
        drop(first);
        let second = thread.join().unwrap();
        assert!(told(&last).is_none());
        drop(second);
        assert!(matches!(told(&last), Some(Word::Turn(_))));
    });
    assert!(lane.try_enter().is_some());
}

#[test]
fn nobody_is_taken_along_by_a_session_of_another_make() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let _ticket = queued(&lane, "one");
    assert_eq!(first.companions(Make::new(), 9).len(), 0);
    assert_eq!(first.companions(MAKE, 9).len(), 1);
}

#[test]
fn companions_that_are_put_back_go_first_and_alone() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let tickets = ["one", "two", "three"].map(|sql| queued(&lane, sql));
    put_back(first.companions(MAKE, 2));
    assert_eq!(first.companions(MAKE, 9).len(), 0);
    drop(first);
    for ticket in &tickets {
        let Some(Word::Turn(turn)) = told(ticket) else {
            panic!("it is its turn");
        };
        drop(turn);
    }
    assert!(lane.try_enter().is_some());
}

#[test]
fn a_turn_that_nobody_collects_is_the_next_ones() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let (gone, next) = (queued(&lane, "one"), queued(&lane, "two"));
    drop(first);
    drop(gone);
    assert!(matches!(told(&next), Some(Word::Turn(_))));
}

#[test]
fn one_who_leaves_is_not_taken_along() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let ticket = queued(&lane, "one");
    assert!(ticket.leave());
    assert!(ticket.leave());
    assert_eq!(first.companions(MAKE, 9).len(), 0);
}

#[test]
fn one_who_is_in_hand_cannot_leave_until_it_is_put_back() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let ticket = queued(&lane, "one");
    let companions = first.companions(MAKE, 9);
    assert!(!ticket.leave());
    put_back(companions);
    assert!(ticket.leave());
}

#[test]
fn a_task_whose_time_is_up_is_told_so_and_is_out_of_the_queue() {
    let lane = lane();
    let _first = pass(lane.enter(&control(1)));
    let Joined::Queued(hasty) = lane.join(MAKE, Some(&order("one")), Duration::ZERO) else {
        panic!("the lane is taken");
    };
    let patient = queued(&lane, "two");
    assert!(lane.watch());
    assert!(matches!(told(&hasty), Some(Word::TimedOut)));
    assert!(told(&patient).is_none());
    assert_eq!(lane.waiting(), 1);
    assert!(patient.leave());
    assert!(!lane.watch());
}

#[test]
fn a_turn_that_is_not_collected_is_passed_on_and_its_task_may_be_written_for() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let (idle, next) = (queued(&lane, "one"), queued(&lane, "two"));
    drop(first);
    // It is the idle one's turn, for a while.
    assert!(lane.watch());
    assert!(told(&next).is_none());
    let turn = loop {
        assert!(lane.watch());
        if let Some(Word::Turn(turn)) = told(&next) {
            break turn;
        }
        std::thread::yield_now();
    };
    assert!(told(&idle).is_none());
    let companions = turn.companions(MAKE, 9);
    assert_eq!(companions.len(), 1);
    assert_eq!(&*companions[0].order().sql, "one");
}

#[test]
fn a_turn_that_nobody_else_waits_for_is_not_taken_back() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let idle = queued(&lane, "one");
    drop(first);
    let began = pace::now();
    while pace::now() - began < UNCOLLECTED * 2 {
        assert!(!lane.watch());
    }
    assert!(matches!(told(&idle), Some(Word::Turn(_))));
}

#[test]
fn one_who_leaves_gives_its_turn_up_at_once() {
    let lane = lane();
    let first = pass(lane.enter(&control(1)));
    let (gone, next) = (queued(&lane, "one"), queued(&lane, "two"));
    drop(first);
    assert!(gone.leave());
    assert!(matches!(told(&next), Some(Word::Turn(_))));
}
