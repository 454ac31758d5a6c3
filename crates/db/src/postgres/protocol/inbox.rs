//! The receive buffer, which splits bytes into messages.

/// The initial size of the buffer, and the size of a read unless a message is larger.
const FIRST: usize = 8 * 1024;
const LARGE: usize = 128 * 1024;

/// An empty buffer whose capacity exceeds this is freed.
const MAX_IDLE_CAPACITY: usize = 256 * 1024;

/// The protocol's limit for a message.
const LONGEST: usize = (1 << 30) - 1;

/// The limit for messages other than rows, texts and descriptions.
const LONGEST_SMALL: usize = 30_000;

/// The limit for a notification: a server sends 8000 bytes of payload, and one compiled for larger blocks 32 KiB.
const LONGEST_NOTIFICATION: usize = 64 * 1024;

/// The header of a message: the tag and four bytes of length.
const HEADER: usize = 5;

/// The received bytes that are not processed yet: `bytes[start..end]`.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read filled the buffer: the socket may have more.
    is_short: bool,
}

/// A message that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    /// The length of its body.
    len: usize,
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMessage;

impl Inbox {
    pub(crate) fn new() -> Self {
        Inbox {
            bytes: vec![0; FIRST],
            start: 0,
            end: 0,
            is_short: false,
        }
    }

    /// Returns the next message, if it has arrived completely.
    #[inline]
    pub(crate) fn frame(&self) -> Result<Option<Frame>, NoMessage> {
        let bytes = &self.bytes[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [tag, len @ ..] = *header;
        // The length includes itself.
        let len = (u32::from_be_bytes(len) as usize).checked_sub(4);
        let len = len.filter(|len| *len <= longest(tag)).ok_or(NoMessage)?;
        Ok((rest.len() >= len).then_some(Frame { tag, len }))
    }

    /// Returns the tag of the next message, as soon as its first byte has arrived.
    #[inline]
    pub(crate) fn next_tag(&self) -> Option<u8> {
        self.bytes[self.start..self.end].first().copied()
    }

    /// Returns the body of a message.
    #[inline]
    pub(crate) fn body(&self, frame: Frame) -> &[u8] {
        let start = self.start + HEADER;
        &self.bytes[start..start + frame.len]
    }

    /// Removes a message.
    #[inline]
    pub(crate) fn consume(&mut self, frame: Frame) {
        self.start += HEADER + frame.len;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Notes how many bytes were read into [`room`](Self::room).
    #[inline]
    pub(crate) fn note_read(&mut self, read: usize) {
        self.end += read;
        self.is_short = self.end == self.bytes.len();
    }

    /// Returns the free part of the buffer. Never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end && self.bytes.len() > MAX_IDLE_CAPACITY {
            *self = Inbox::new();
        }
        // Moves the rest to the front before it allocates: otherwise a stream of rows that always end with
        // an incomplete one would need memory for all of them.
        if self.end > self.bytes.len() / 2 && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // Grows with the bytes that have arrived, not with the length that a message claims.
        let is_full = self.end > self.bytes.len() / 2;
        if is_full || (self.is_short && self.bytes.len() < LARGE) {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        &mut self.bytes[self.end..]
    }
}

fn longest(tag: u8) -> usize {
    match tag {
        b'D' | b'T' | b't' | b'E' | b'N' | b'd' | b'V' => LONGEST,
        b'A' => LONGEST_NOTIFICATION,
        _ => LONGEST_SMALL,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives the inbox bytes as a socket does: as many at once as fit.
    fn give(inbox: &mut Inbox, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = inbox.room();
            let taken = room.len().min(bytes.len());
            room[..taken].copy_from_slice(&bytes[..taken]);
            inbox.note_read(taken);
            bytes = &bytes[taken..];
        }
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[tag][..], &len.to_be_bytes(), body].concat()
    }

    #[test]
    fn messages_that_always_lack_a_part_need_bounded_memory() {
        let mut inbox = Inbox::new();
        let stream = message(b'D', &[7; 78]).repeat(50_000);
        for piece in stream.chunks(1_000) {
            give(&mut inbox, piece);
            while let Some(frame) = inbox.frame().unwrap() {
                inbox.consume(frame);
            }
        }
        assert!(inbox.bytes.len() <= LARGE, "{}", inbox.bytes.len());
    }

    #[test]
    fn impossible_length_is_refused() {
        for (tag, len) in [(b'D', 3), (b'D', 1 << 31), (b'Z', 40_000), (b'D', u32::MAX)] {
            let mut inbox = Inbox::new();
            give(&mut inbox, &[tag]);
            give(&mut inbox, &len.to_be_bytes());
            assert_eq!(inbox.frame(), Err(NoMessage), "{tag} {len}");
        }
    }

    #[test]
    fn claimed_gigabyte_gets_memory_only_as_it_arrives() {
        let mut inbox = Inbox::new();
        give(&mut inbox, &[b'D', 0x3f, 0xff, 0xff, 0xff]);
        for come in [100, 10_000, 1_000_000] {
            give(&mut inbox, &vec![0; come]);
            assert_eq!(inbox.frame(), Ok(None));
            assert!(inbox.room().len() <= 4 * inbox.end + 2 * LARGE);
        }
    }

    #[test]
    fn buffer_shrinks_after_a_large_message() {
        let mut inbox = Inbox::new();
        give(&mut inbox, &message(b'D', &vec![7; 3_000_000]));
        let frame = inbox.frame().unwrap().unwrap();
        assert_eq!(inbox.body(frame).len(), 3_000_000);
        inbox.consume(frame);
        assert_eq!(inbox.room().len(), FIRST);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_from_any_pieces(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 1..12),
            pieces in prop::collection::vec(1_usize..30_000, 1..40),
        ) {
            let sent: Vec<u8> = bodies.iter().flat_map(|body| message(b'D', body)).collect();
            let mut inbox = Inbox::new();
            let mut read = Vec::new();
            let mut rest = &sent[..];
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                give(&mut inbox, now);
                rest = later;
                while let Some(frame) = inbox.frame().unwrap() {
                    read.push(inbox.body(frame).to_vec());
                    inbox.consume(frame);
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read, bodies);
        }

        #[test]
        fn hostile_bytes_decode_or_fail_in_memory_bounded_by_their_size(
            bytes in prop::collection::vec(any::<u8>(), 0..50_000),
        ) {
            let mut inbox = Inbox::new();
            give(&mut inbox, &bytes);
            while let Ok(Some(frame)) = inbox.frame() {
                prop_assert!(inbox.body(frame).len() <= bytes.len());
                inbox.consume(frame);
            }
            prop_assert!(inbox.bytes.len() <= 4 * bytes.len() + 2 * LARGE);
        }
    }
}
