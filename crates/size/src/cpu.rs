//! How busy this program and this machine are, as the kernel of Linux counts it. Elsewhere it is unknown.

/// The kernel counts for programs in hundredths of a second, on every architecture that Rust runs on.
const TICKS: f64 = 100.0;

/// What the kernel has counted at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Seconds of processor time that this program used.
    own: Option<f64>,
    /// Ticks of all processors: busy ones, and all.
    machine: Option<(f64, f64)>,
}

impl Cpu {
    pub(crate) fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).ok();
        Cpu {
            own: read("/proc/self/stat").and_then(|text| own(&text)),
            machine: read("/proc/stat").and_then(|text| machine(&text)),
        }
    }

    /// Returns how many processors this program used since an earlier moment, `seconds` ago.
    pub(crate) fn own_since(&self, earlier: &Cpu, seconds: f64) -> Option<f64> {
        let used = self.own? - earlier.own?;
        (seconds > 0.0).then(|| (used / seconds).max(0.0))
    }

    /// Returns the share of this machine's processors that were busy since an earlier moment.
    pub(crate) fn machine_since(&self, earlier: &Cpu) -> Option<f64> {
        let ((busy, all), (busy_then, all_then)) = (self.machine?, earlier.machine?);
        (all > all_then).then(|| ((busy - busy_then) / (all - all_then)).clamp(0.0, 1.0))
    }
}

/// Reads `/proc/self/stat`. The name of the program, in brackets, may contain anything.
fn own(text: &str) -> Option<f64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

/// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line
        .split_whitespace()
        .take(8)
        .map_while(|number| number.parse().ok())
        .collect();
    let all = ticks.iter().sum();
    let idle: f64 = ticks.get(3..5)?.iter().sum();
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_program_are_read_behind_its_name() {
        let text = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0";
        assert_eq!(own(text), Some(3.0));
        assert_eq!(own("nonsense"), None);
    }

    #[test]
    fn waiting_for_the_disk_is_not_busy() {
        let text = "cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 2 3";
        assert_eq!(machine(text), Some((30.0, 100.0)));
        assert_eq!(machine("intr 1"), None);
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let at = |own, busy| Cpu {
            own: Some(own),
            machine: Some((busy, 100.0 + busy * 2.0)),
        };
        assert_eq!(at(3.0, 50.0).own_since(&at(1.0, 0.0), 4.0), Some(0.5));
        assert_eq!(at(3.0, 50.0).machine_since(&at(1.0, 0.0)), Some(0.5));
        assert_eq!(Cpu::default().own_since(&at(1.0, 0.0), 1.0), None);
    }
}
