//! Counts the answers that the server still owes.
//!
//! Each message in the outbox adds the answers that it needs, and each answer counts one off. An answer that no message
//! asked for, or a ReadyForQuery before all messages are answered, means that client and server are out of step: every later
//! call would get the answer of the one before. So it breaks the connection.

/// The outstanding answers to one batch, which ends with its Sync.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) closes: u32,
    pub(crate) parses: u32,
    /// ParameterDescriptions, each with the RowDescription or NoData that follows.
    parameters: u32,
    columns: u32,
    binds: u32,
    /// For a simple query: the results that have arrived.
    executes: u32,
    /// The batch is one simple query, which has at least one result.
    is_query: bool,
    /// The server reported an error: it skips the rest of the batch.
    failed: bool,
    /// The batch has its Sync: the server ends its answer with ReadyForQuery.
    ready: bool,
}

impl Unanswered {
    pub(crate) fn describe(&mut self) {
        self.parameters += 1;
        self.columns += 1;
    }

    pub(crate) fn bind(&mut self) {
        self.binds += 1;
    }

    pub(crate) fn execute(&mut self) {
        self.executes += 1;
    }

    pub(crate) fn sync(&mut self) {
        debug_assert!(!self.ready, "one batch at a time");
        self.ready = true;
    }

    pub(crate) fn query(&mut self) {
        self.sync();
        self.is_query = true;
    }

    /// Whether the batch is a simple query.
    pub(crate) fn is_query(&self) -> bool {
        self.is_query
    }

    /// Whether the server still owes a ReadyForQuery.
    pub(crate) fn is_pending(&self) -> bool {
        self.ready
    }

    /// Counts off a message that is neither a ReadyForQuery nor one that may arrive at any time. Returns false
    /// if nothing asked for it.
    #[inline]
    pub(crate) fn take(&mut self, tag: u8) -> bool {
        if tag == b'E' {
            self.failed = true;
            return true;
        }
        if self.failed {
            return false;
        }
        match tag {
            // A row needs an Execute whose Bind has been answered.
            b'D' => self.executes > self.binds || self.is_query,
            b'C' | b'I' if self.is_query => {
                self.executes = self.executes.saturating_add(1);
                true
            }
            b'C' | b'I' | b's' => self.executes > self.binds && count_off(&mut self.executes),
            // The Execute after the previous Bind has been answered by then.
            b'2' => self.executes <= self.binds && count_off(&mut self.binds),
            b'1' => count_off(&mut self.parses),
            b'3' => count_off(&mut self.closes),
            b't' => count_off(&mut self.parameters),
            b'T' => self.is_query || count_off(&mut self.columns),
            b'n' => count_off(&mut self.columns),
            b'G' | b'H' | b'd' | b'c' => self.is_query,
            _ => false,
        }
    }

    /// Counts off a ReadyForQuery. Returns false if none is due, or the batch is not answered yet.
    #[inline]
    pub(crate) fn take_ready(&mut self) -> bool {
        let done = std::mem::take(self);
        let is_answered = match done.is_query {
            true => done.executes > 0,
            false => {
                let rest = [done.closes, done.parses, done.parameters, done.columns];
                done.binds | done.executes == 0 && rest == [0; 4]
            }
        };
        done.ready && (done.failed || is_answered)
    }
}

#[inline]
fn count_off(count: &mut u32) -> bool {
    match count.checked_sub(1) {
        Some(rest) => {
            *count = rest;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of a batch: a Close, a BEGIN, then a new statement.
    fn batch() -> Unanswered {
        let mut batch = Unanswered::default();
        batch.closes += 1;
        batch.parses += 2;
        batch.describe();
        for _ in 0..2 {
            batch.bind();
            batch.execute();
        }
        batch.sync();
        batch
    }

    fn query() -> Unanswered {
        let mut query = Unanswered::default();
        query.query();
        query
    }

    fn sync() -> Unanswered {
        let mut sync = Unanswered::default();
        sync.sync();
        sync
    }

    /// Whether these messages, and then a ReadyForQuery, are the answer.
    fn is_answer(mut to: Unanswered, tags: &[u8]) -> bool {
        tags.iter().all(|tag| to.take(*tag)) && to.take_ready()
    }

    #[test]
    fn answer_to_a_batch_is_counted_off() {
        let right = b"312C1tT2DDC";
        assert!(is_answer(batch(), right));
        assert!(is_answer(batch(), b"312C1tn2s"));
        for end in 0..right.len() {
            assert!(!is_answer(batch(), &right[..end]), "it ends early: {end}");
            let failed = [&right[..end], b"E"].concat();
            assert!(is_answer(batch(), &failed), "an error ends it: {end}");
            let surplus = [&failed[..], b"C"].concat();
            assert!(!is_answer(batch(), &surplus), "nothing follows it: {end}");
        }
    }

    #[test]
    fn answer_that_nothing_asked_for_is_refused() {
        for tags in [
            &b"312C1tT2DCC"[..],
            b"312C1tT2DCD",
            b"312CC",
            b"33",
            b"312D1tT2CC",
            b"312C1tT2G",
            b"D",
            b"C",
            b"T",
        ] {
            assert!(!is_answer(batch(), tags), "{tags:?}");
            assert!(!is_answer(sync(), tags), "{tags:?}");
        }
        assert!(is_answer(sync(), b"") && is_answer(sync(), b"E"));
        assert!(!Unanswered::default().take_ready());
    }

    #[test]
    fn simple_query_has_at_least_one_result() {
        for tags in [
            &b"C"[..],
            b"I",
            b"TDDCC",
            b"E",
            b"CE",
            b"GE",
            b"HddcC",
            b"TC",
        ] {
            assert!(is_answer(query(), tags), "{tags:?}");
        }
        for tags in [&b""[..], b"T", b"1", b"2C", b"nC", b"EC", b"s", b"tC"] {
            assert!(!is_answer(query(), tags), "{tags:?}");
        }
    }
}
