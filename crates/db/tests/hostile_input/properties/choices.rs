//! Bytes read as decisions: so a fuzzer that knows bytes only builds what a grammar allows.

use std::borrow::Cow;

/// What is left of an input. When it is used up, every decision is the first one.
pub struct Choices<'d>(&'d [u8]);

impl<'d> Choices<'d> {
    pub fn new(data: &'d [u8]) -> Self {
        Choices(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// As many bytes as the next one says, up to `most`.
    pub fn bytes(&mut self, most: u8) -> &'d [u8] {
        let wanted = usize::from(self.byte() % (most + 1));
        let (taken, rest) = self.0.split_at(wanted.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As [`bytes`](Choices::bytes), as text.
    pub fn text(&mut self, most: u8) -> Cow<'d, str> {
        String::from_utf8_lossy(self.bytes(most))
    }

    /// All that is left.
    pub fn rest(self) -> &'d [u8] {
        self.0
    }

    /// All that is left, as text.
    pub fn rest_as_text(self) -> Cow<'d, str> {
        String::from_utf8_lossy(self.0)
    }
}
