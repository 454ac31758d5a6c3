//! The command and the live page judge the same figures alike.

use std::time::Duration;

use cenote_dashboard::sizing::curve::{knee, of_seconds};
use cenote_dashboard::sizing::{Load, Size, judge};
use cenote_size::ramp::Ramp;

/// Throughput of a server with this many places that takes 10 ms for each statement.
fn throughput(places: usize, connections: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let busy = places.min(connections) as f64;
    busy / 0.01
}

/// The seconds of a program with bursts: few connections are busy in some, all in others.
fn seconds(places: usize, max: usize) -> impl Iterator<Item = (f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let of = move |second: usize| {
        let busy = 1 + second % max;
        (busy as f64, throughput(places, busy))
    };
    (0..max * 10).map(of)
}

#[test]
fn command_and_page_recommend_the_same_size() {
    for places in 1..=12_usize {
        let mut ramp = Ramp::new(64, 7);
        while let Some(size) = ramp.next_size() {
            ramp.add(size, throughput(places, size));
        }
        let command = ramp.estimate().unwrap().size;
        let max = places * 2;
        let page = knee(&of_seconds(seconds(places, max))).unwrap();
        assert_eq!((command, page.connections), (places, places));
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let full = Load {
            max,
            period: Duration::from_secs(300),
            checkouts: 100_000,
            busy: max as f64,
            busy_peak: max,
            waiting: 10.0,
            waiting_peak: 20,
            waiting_to_write: 0.0,
            stuck: 0,
            useful: page.is_reached.then_some(page.connections),
        };
        let verdict = judge(&full);
        assert_eq!(
            (verdict.size, verdict.suggested),
            (Size::NotTheProblem, Some(command))
        );
        // Where the pool is smaller than the command recommends, both say that it is too small.
        if places > 3 {
            let small = Load {
                max: places - 2,
                busy: (places - 2) as f64,
                busy_peak: places - 2,
                useful: knee(&of_seconds(seconds(places, places - 2)))
                    .filter(|it| it.is_reached)
                    .map(|it| it.connections),
                ..full
            };
            assert_eq!(judge(&small).size, Size::TooSmall);
        }
    }
}
