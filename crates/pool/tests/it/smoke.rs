use crate::support::*;
use std::time::Duration;

#[test]
fn smoke() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 1);
    let mut w1 = hand(pool.acquire());
    let mut w2 = hand(pool.acquire_within(Duration::from_millis(50)));
    w1.waits();
    w2.waits();
    drop(lease);
    assert!(w1.is_woken() && !w2.is_woken());
    assert_eq!(pool.status().reserved, 1);
    assert_eq!(pool.status().idle, 1);
    let l1 = w1.done().unwrap();
    manual.advance_millis(50);
    let err = w2.done().unwrap_err();
    println!("{err}");
    drop(l1);
    assert_eq!(pool.status().idle, 1);
    let owned = now(pool.acquire_owned()).unwrap();
    drop(owned);
    let owned = now(pool.acquire_owned()).unwrap();
    drop((w1, w2));
    drop(pool);
    assert_eq!(log.gone(), []);
    drop(owned);
    assert_eq!(log.gone(), [1]);
}
