//! How long the sessions of a server on this machine ran or waited for a processor, as Linux counts it.
//!
//! A server shows a session as working only once the session has read its request. On a busy processor the sessions take turns:
//! those whose requests wait in their sockets look idle. The kernel counts them as waiting for the processor.

use std::time::{Duration, Instant};

/// What the kernel has counted for some threads.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Scheduled {
    threads: Vec<u32>,
    /// The time that they ran or waited for a processor.
    time: Duration,
    at: Instant,
}

impl Scheduled {
    /// Looks at the threads of a server with one of these names. `None` if one of them cannot be seen: the server runs elsewhere.
    pub(crate) fn of(threads: Vec<u32>, programs: &[&str]) -> Option<Self> {
        let is_theirs = |id: &u32| program(*id).is_some_and(|it| programs.contains(&it.as_str()));
        let are_theirs = !threads.is_empty() && threads.iter().all(is_theirs);
        are_theirs.then(|| Self::now(threads))?
    }

    #[allow(clippy::disallowed_methods, reason = "the kernel's time is real")]
    fn now(threads: Vec<u32>) -> Option<Self> {
        let time = threads.iter().map(|id| time(*id)).sum::<Option<_>>()?;
        Some(Scheduled {
            threads,
            time,
            at: Instant::now(),
        })
    }

    /// Returns how many of them ran or waited for a processor since then, on average. `None` if one of them has ended, or the
    /// kernel does not count.
    pub(crate) fn since(self) -> Option<f64> {
        let Scheduled { threads, time, at } = self;
        let now = Self::now(threads)?;
        let seconds = (now.at - at).as_secs_f64();
        let took = now.time.checked_sub(time)?.as_secs_f64();
        (took > 0.0 && seconds > 0.0).then_some(took / seconds)
    }
}

/// Returns the name of the program that a thread belongs to.
fn program(thread: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim();
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn time(thread: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    run_and_wait(&text)
}

/// Reads `/proc/PID/schedstat`: nanoseconds on a processor, nanoseconds of waiting for one, and the number of turns.
fn run_and_wait(text: &str) -> Option<Duration> {
    let mut fields = text.split_whitespace();
    let mut next = || fields.next()?.parse().ok();
    let (ran, waited): (u64, u64) = (next()?, next()?);
    Some(Duration::from_nanos(ran.checked_add(waited)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_on_a_processor_and_that_of_waiting_for_one() {
        assert_eq!(run_and_wait("100 20 3\n"), Some(Duration::from_nanos(120)));
        assert_eq!(run_and_wait("100"), None);
        assert_eq!(run_and_wait(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_threads_of_the_named_program_are_looked_at() {
        let own = std::process::id();
        let name = program(own).unwrap();
        assert!(Scheduled::of(vec![own], &[&name]).is_some());
        assert!(Scheduled::of(vec![own], &["another"]).is_none());
        assert!(Scheduled::of(vec![own, u32::MAX], &[&name]).is_none());
        assert!(Scheduled::of(Vec::new(), &[&name]).is_none());
    }

    /// The kernel counts in ticks of up to 10 ms.
    #[cfg(target_os = "linux")]
    #[test]
    fn thread_that_calculates_counts_as_one() {
        let path = std::fs::read_link("/proc/thread-self").unwrap();
        let own: u32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let before = Scheduled::of(vec![own], &[&program(own).unwrap()]).unwrap();
        while before.at.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let busy = before.since().unwrap();
        assert!((0.8..1.1).contains(&busy), "{busy}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn thread_that_ended_makes_the_share_unknown() {
        let own = std::process::id();
        let mut before = Scheduled::of(vec![own], &[&program(own).unwrap()]).unwrap();
        before.threads = vec![u32::MAX];
        assert_eq!(before.since(), None);
    }
}
