//! Messages from the server, parsed in place.
//!
//! No content makes the parsers panic, or allocate more than the message's own size.

use postgres_types::Oid;

use crate::driver::Status;

/// The rest of a message's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'m>(pub(crate) &'m [u8]);

impl<'m> Reader<'m> {
    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'m [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Takes the text up to the next NUL, and the NUL.
    pub(crate) fn text(&mut self) -> Option<&'m [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns a text of the server, with invalid UTF-8 replaced: for messages and names.
pub(crate) fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The content of an ErrorResponse or NoticeResponse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Not translated: `ERROR`, `FATAL`, `PANIC`, `WARNING` …
    pub(crate) severity: String,
    pub(crate) state: String,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    /// The position in the SQL, in characters from 1.
    pub(crate) position: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) table: Option<String>,
    pub(crate) column: Option<String>,
    pub(crate) constraint: Option<String>,
    /// Where it happened, the innermost first. May contain values.
    pub(crate) context: Option<String>,
    /// The function in the server's source.
    pub(crate) routine: Option<String>,
}

impl Report {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let mut report = Report::default();
        loop {
            let field = reader.byte()?;
            if field == 0 {
                return Some(report);
            }
            let text = lossy(reader.text()?);
            match field {
                // The translated severity comes first; servers before 9.6 send no other.
                b'S' if report.severity.is_empty() => report.severity = text,
                b'V' => report.severity = text,
                b'C' => report.state = text,
                b'M' => report.message = text,
                b'D' => report.detail = Some(text),
                b'H' => report.hint = Some(text),
                b'P' => report.position = Some(text),
                b'W' => report.context = Some(text),
                b's' => report.schema = Some(text),
                b't' => report.table = Some(text),
                b'c' => report.column = Some(text),
                b'n' => report.constraint = Some(text),
                b'R' => report.routine = Some(text),
                _ => {}
            }
        }
    }

    /// Whether the server closes the connection after it.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(&*self.severity, "FATAL" | "PANIC")
    }

    /// Whether the server itself ended the session: by an administrator's command, or because it was idle. A
    /// pooler may send the same SQLSTATE while the server runs the statement, but names no routine.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(&*self.state, "57P01" | "57P05") && self.routine.is_some()
    }

    /// Whether it says that a commit was made, and that the server has stopped waiting for its standbys to confirm it. The
    /// routine tells: the message is translated, and a trigger can raise a warning with the same SQLSTATE.
    pub(crate) fn is_unconfirmed_commit(&self) -> bool {
        self.routine.as_deref() == Some("SyncRepWaitForLSN") && self.severity == "WARNING"
    }

    /// Whether the SQL is malformed.
    pub(crate) fn is_syntax_error(&self) -> bool {
        self.state == "42601"
    }
}

/// The content of a NotificationResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification<'m> {
    /// The process id of the session that sent it.
    pub(crate) process: i32,
    pub(crate) channel: &'m [u8],
    pub(crate) payload: &'m [u8],
}

impl<'m> Notification<'m> {
    pub(crate) fn read(body: &'m [u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let read = Notification {
            process: reader.i32()?,
            channel: reader.text()?,
            payload: reader.text()?,
        };
        reader.is_empty().then_some(read)
    }
}

/// One column of a RowDescription.
#[derive(Debug)]
pub(crate) struct Field<'m> {
    pub(crate) name: &'m [u8],
    pub(crate) type_id: Oid,
}

/// Returns the columns of a RowDescription.
pub(crate) fn fields(body: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut reader = Reader(body);
    let count = reader.u16()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let name = reader.text()?;
        let _table = reader.u32()?;
        let _attribute = reader.u16()?;
        let type_id = reader.u32()?;
        let _size = reader.u16()?;
        let _modifier = reader.i32()?;
        let _format = reader.u16()?;
        fields.push(Field { name, type_id });
    }
    reader.is_empty().then_some(fields)
}

/// Returns the types of a ParameterDescription.
pub(crate) fn parameter_types(body: &[u8]) -> Option<Vec<Oid>> {
    let mut reader = Reader(body);
    let count = reader.u16()?;
    let mut types = Vec::new();
    for _ in 0..count {
        types.push(reader.u32()?);
    }
    reader.is_empty().then_some(types)
}

/// The tag of a CommandComplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag<'m>(pub(crate) &'m [u8]);

impl<'m> Tag<'m> {
    #[inline]
    pub(crate) fn read(body: &'m [u8]) -> Option<Self> {
        match body {
            [tag @ .., 0] => Some(Tag(tag)),
            _ => None,
        }
    }

    /// Returns the number of changed rows; 0 for a command that changes none.
    #[inline]
    pub(crate) fn affected(self) -> u64 {
        match self.0.first() {
            Some(b'I' | b'U' | b'D' | b'M' | b'C') => self.affected_by_change(),
            _ => 0,
        }
    }

    fn affected_by_change(self) -> u64 {
        let changes = [&b"INSERT "[..], b"UPDATE ", b"DELETE ", b"MERGE ", b"COPY "];
        if !changes.iter().any(|verb| self.0.starts_with(verb)) {
            return 0;
        }
        let last = self.0.rsplit(|byte| *byte == b' ').next();
        let digits = last.and_then(|word| std::str::from_utf8(word).ok());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn is(self, words: &str) -> bool {
        self.0 == words.as_bytes()
    }
}

/// Returns name and value of a ParameterStatus.
pub(crate) fn parameter(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader(body);
    let name = reader.text()?;
    let value = reader.text()?;
    Some((name, value))
}

/// Returns the transaction status of a ReadyForQuery.
pub(crate) fn status(mut body: Reader<'_>) -> Status {
    match body.byte() {
        Some(b'I') => Status::Idle,
        Some(b'T') => Status::InTransaction,
        Some(b'E') => Status::Failed,
        _ => Status::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tag_contains_the_number_of_changed_rows() {
        for (tag, affected) in [
            ("INSERT 0 5", 5),
            ("UPDATE 3", 3),
            ("DELETE 0", 0),
            ("MERGE 2", 2),
            ("COPY 7", 7),
            ("SELECT 9", 0),
            ("CREATE TABLE", 0),
            ("INSERT 0 x", 0),
        ] {
            assert_eq!(Tag(tag.as_bytes()).affected(), affected, "{tag}");
        }
    }

    #[test]
    fn untranslated_severity_counts() {
        let report = Report::read(b"SFEHLER\0VFATAL\0C57P01\0Mbye\0\0").unwrap();
        assert!(report.is_fatal());
        assert_eq!((&*report.state, &*report.message), ("57P01", "bye"));
        assert!(Report::read(b"SERROR\0C42601").is_none());
    }

    #[test]
    fn description_longer_than_its_message_is_refused() {
        assert!(fields(&[0xff, 0xff, 0]).is_none());
        assert!(parameter_types(&[0xff, 0xff, 0, 0, 0, 1]).is_none());
        assert_eq!(parameter_types(&[0, 1, 0, 0, 0, 23]), Some(vec![23]));
    }

    #[test]
    fn notification_is_read_to_its_last_byte_or_refused() {
        let body = b"\0\0\x01\0jobs\0seven\0";
        let read = Notification {
            process: 256,
            channel: b"jobs",
            payload: b"seven",
        };
        assert_eq!(Notification::read(body), Some(read));
        for end in 0..body.len() {
            assert_eq!(Notification::read(&body[..end]), None, "{end}");
        }
        assert_eq!(Notification::read(b"\0\0\x01\0jobs\0seven\0\0"), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Report::read(&body);
            let _ = fields(&body);
            let _ = parameter_types(&body);
            let _ = Tag::read(&body).map(Tag::affected);
            let _ = parameter(&body);
            let _ = Notification::read(&body);
        }
    }
}
