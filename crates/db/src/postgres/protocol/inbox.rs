//! What has come from the server, and where one message ends.

/// So much is read at a time at first, and at most unless a message is larger.
const FIRST: usize = 8 * 1024;
const LARGE: usize = 128 * 1024;

/// A buffer that has grown beyond this goes when it is empty.
const KEPT: usize = 256 * 1024;

/// What a message may be at most: the protocol's own limit.
const LONGEST: usize = (1 << 30) - 1;

/// What one of another kind than rows, texts and descriptions may be at most.
const LONGEST_SMALL: usize = 30_000;

/// Before the body: the tag and four bytes of length.
const HEADER: usize = 5;

/// What has come and has not been read, `bytes[start..end]`.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read left no room: more may be waiting.
    is_short: bool,
}

/// A message that is there as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    /// Of its body.
    len: usize,
}

/// What has come cannot be a message.
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

    /// The next message, if all of it is there.
    #[inline]
    pub(crate) fn frame(&self) -> Result<Option<Frame>, NoMessage> {
        let bytes = &self.bytes[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [tag, len @ ..] = *header;
        // It counts itself.
        let len = (u32::from_be_bytes(len) as usize).checked_sub(4);
        let len = len.filter(|len| *len <= longest(tag)).ok_or(NoMessage)?;
        Ok((rest.len() >= len).then_some(Frame { tag, len }))
    }

    /// The tag of the next message, as soon as its first byte is there.
    #[inline]
    pub(crate) fn next_tag(&self) -> Option<u8> {
        self.bytes[self.start..self.end].first().copied()
    }

    /// The body of a message that is there.
    #[inline]
    pub(crate) fn body(&self, frame: Frame) -> &[u8] {
        let start = self.start + HEADER;
        &self.bytes[start..start + frame.len]
    }

    /// The message has been read.
    #[inline]
    pub(crate) fn consume(&mut self, frame: Frame) {
        self.start += HEADER + frame.len;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// So much was read into the room.
    #[inline]
    pub(crate) fn note_read(&mut self, read: usize) {
        self.end += read;
        self.is_short = self.end == self.bytes.len();
    }

    /// Where the next bytes go: never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end && self.bytes.len() > KEPT {
            *self = Inbox::new();
        }
        // What has been read makes room before more memory does: else rows of which always a part
        // is missing would need as much as all of them together.
        if self.end > self.bytes.len() / 2 && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // Never for more than has come already, whatever a length says.
        let is_full = self.end > self.bytes.len() / 2;
        if is_full || (self.is_short && self.bytes.len() < LARGE) {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        &mut self.bytes[self.end..]
    }
}

fn longest(tag: u8) -> usize {
    match tag {
        b'D' | b'T' | b't' | b'E' | b'N' | b'A' | b'd' | b'V' => LONGEST,
        _ => LONGEST_SMALL,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives the inbox bytes as a socket does, as many at once as there is room for.
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
    fn a_length_that_cannot_be_is_no_message() {
        for (tag, len) in [(b'D', 3), (b'D', 1 << 31), (b'Z', 40_000), (b'D', u32::MAX)] {
            let mut inbox = Inbox::new();
            give(&mut inbox, &[tag]);
            give(&mut inbox, &len.to_be_bytes());
            assert_eq!(inbox.frame(), Err(NoMessage), "{tag} {len}");
        }
    }

    #[test]
    fn a_message_that_promises_a_gigabyte_is_given_room_as_it_comes() {
        let mut inbox = Inbox::new();
        give(&mut inbox, &[b'D', 0x3f, 0xff, 0xff, 0xff]);
        for come in [100, 10_000, 1_000_000] {
            give(&mut inbox, &vec![0; come]);
            assert_eq!(inbox.frame(), Ok(None));
            assert!(inbox.room().len() <= 4 * inbox.end + 2 * LARGE);
        }
    }

    #[test]
    fn what_grew_for_a_large_message_shrinks_when_it_was_read() {
        let mut inbox = Inbox::new();
        give(&mut inbox, &message(b'D', &vec![7; 3_000_000]));
        let frame = inbox.frame().unwrap().unwrap();
        assert_eq!(inbox.body(frame).len(), 3_000_000);
        inbox.consume(frame);
        assert_eq!(inbox.room().len(), FIRST);
    }

    proptest! {
        #[test]
        fn messages_are_what_they_were_however_they_come_in_pieces(
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
