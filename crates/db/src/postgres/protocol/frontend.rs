//! Messages to the server, written directly into the outbox.

use postgres_types::Type;

use super::super::error;
use crate::{Error, Kind, Result};

/// Writes a message with this tag; `write` writes its body.
fn message(
    out: &mut Vec<u8>,
    tag: u8,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    let written = write(out).and_then(|()| set_length(out, start + 1));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Writes the length of a message whose length field is at this position.
pub(crate) fn set_length(out: &mut [u8], at: usize) -> Result<()> {
    let len = i32::try_from(out.len() - at);
    let len = len.map_err(|_| {
        let message = "the SQL and its parameters exceed 2 GB, PostgreSQL's limit for a message";
        Error::new(Kind::Parameters, message)
    })?;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Writes a text and its final NUL.
fn text(out: &mut Vec<u8>, text: &str, what: &str) -> Result<()> {
    if text.as_bytes().contains(&0) {
        return Err(error::has_nul(what));
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

/// Prepares a statement under this name; no types are declared.
pub(crate) fn parse(out: &mut Vec<u8>, name: &str, sql: &str) -> Result<()> {
    message(out, b'P', |out| {
        text(out, name, "the name of a statement")?;
        text(out, sql, "the SQL")?;
        out.extend_from_slice(&[0, 0]);
        Ok(())
    })
}

/// Prepares the unnamed statement for parameters of these types.
pub(crate) fn parse_unnamed(out: &mut Vec<u8>, sql: &str, types: &[Type]) -> Result<()> {
    let count = u16::try_from(types.len()).map_err(|_| {
        let message = format!(
            "{} parameters exceed PostgreSQL's limit of 65535",
            types.len()
        );
        Error::new(Kind::Parameters, message)
    })?;
    message(out, b'P', |out| {
        out.push(0);
        text(out, sql, "the SQL")?;
        out.extend_from_slice(&count.to_be_bytes());
        for kind in types {
            out.extend_from_slice(&kind.oid().to_be_bytes());
        }
        Ok(())
    })
}

/// Makes the server undo the batch so far, by a deliberate syntax error.
pub(crate) fn undo_batch(out: &mut Vec<u8>) -> Result<()> {
    parse(out, "", "this batch was cancelled")
}

/// Requests the parameters and columns of a statement.
pub(crate) fn describe_statement(out: &mut Vec<u8>, name: &str) -> Result<()> {
    message(out, b'D', |out| {
        out.push(b'S');
        text(out, name, "the name of a statement")
    })
}

/// Closes a statement, if it exists.
pub(crate) fn close_statement(out: &mut Vec<u8>, name: &str) -> Result<()> {
    message(out, b'C', |out| {
        out.push(b'S');
        text(out, name, "the name of a statement")
    })
}

/// Closes the unnamed portal, if it exists.
pub(crate) fn close_portal(out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'C', 0, 0, 0, 6, b'P', 0]);
}

/// Returns the beginning of a Bind message: the unnamed portal, and the statement of this name.
pub(crate) fn bind_head(name: &str) -> Vec<u8> {
    let mut head = vec![b'B', 0, 0, 0, 0, 0];
    head.extend_from_slice(name.as_bytes());
    head.push(0);
    head
}

/// Runs the unnamed portal for at most this many rows; 0 means all.
pub(crate) fn execute(out: &mut Vec<u8>, limit: i32) {
    let [a, b, c, d] = limit.to_be_bytes();
    out.extend_from_slice(&[b'E', 0, 0, 0, 9, 0, a, b, c, d]);
}

/// Ends a batch.
pub(crate) fn sync(out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'S', 0, 0, 0, 4]);
}

/// Runs SQL by the simple protocol.
pub(crate) fn query(out: &mut Vec<u8>, sql: &str) -> Result<()> {
    message(out, b'Q', |out| text(out, sql, "the SQL"))
}

/// Sends data of a COPY FROM STDIN: `write` writes it. If `write` panics, nothing is appended.
pub(crate) fn copy_data(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let unfinished = Unfinished {
        start: out.len(),
        out,
    };
    let written = message(unfinished.out, b'd', write);
    std::mem::forget(unfinished);
    written
}

/// Removes a message whose writer panics.
struct Unfinished<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.out.truncate(self.start);
    }
}

/// Ends a COPY FROM STDIN.
pub(crate) fn copy_done(out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'c', 0, 0, 0, 4]);
}

/// Fails a COPY FROM STDIN, for this reason.
pub(crate) fn copy_fail(out: &mut Vec<u8>, reason: &str) -> Result<()> {
    message(out, b'f', |out| text(out, reason, "a message"))
}

/// Tells the server that the connection will be closed.
pub(crate) fn terminate(out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'X', 0, 0, 0, 4]);
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use postgres_protocol::message::frontend as theirs;

    use super::*;

    /// The messages equal those of `postgres-protocol`.
    #[test]
    fn messages_equal_those_of_postgres_protocol() {
        let mut ours = Vec::new();
        let mut others = BytesMut::new();
        parse(&mut ours, "name", "SELECT $1").unwrap();
        theirs::parse("name", "SELECT $1", [], &mut others).unwrap();
        parse_unnamed(&mut ours, "SELECT $1", &[Type::INT4, Type::TEXT]).unwrap();
        theirs::parse("", "SELECT $1", [23, 25], &mut others).unwrap();
        describe_statement(&mut ours, "name").unwrap();
        theirs::describe(b'S', "name", &mut others).unwrap();
        close_statement(&mut ours, "name").unwrap();
        theirs::close(b'S', "name", &mut others).unwrap();
        close_portal(&mut ours);
        theirs::close(b'P', "", &mut others).unwrap();
        execute(&mut ours, 257);
        theirs::execute("", 257, &mut others).unwrap();
        sync(&mut ours);
        theirs::sync(&mut others);
        query(&mut ours, "SELECT 1").unwrap();
        theirs::query("SELECT 1", &mut others).unwrap();
        copy_data(&mut ours, |out| {
            out.extend_from_slice(b"1\t2\n");
            Ok(())
        })
        .unwrap();
        let data = theirs::CopyData::new(&b"1\t2\n"[..]).unwrap();
        data.write(&mut others);
        copy_done(&mut ours);
        theirs::copy_done(&mut others);
        copy_fail(&mut ours, "no reason").unwrap();
        theirs::copy_fail("no reason", &mut others).unwrap();
        terminate(&mut ours);
        theirs::terminate(&mut others);
        assert_eq!(ours, &others[..]);
    }

    #[test]
    fn nul_is_refused_and_nothing_is_written() {
        let mut out = b"before".to_vec();
        assert!(parse(&mut out, "", "SELECT '\0'").is_err());
        assert!(query(&mut out, "\0").is_err());
        assert_eq!(out, b"before");
    }
}
