//! Why the command failed, in one line, and its exit code.

use std::fmt;
use std::io;

use cenote_bank::Error;

/// A failure: a line for standard error, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    fn new(code: u8, text: impl fmt::Display) -> Self {
        // One line, whatever stands in the DSN or in what a database says.
        let line = text.to_string().replace(char::is_control, " ");
        Failure { code, line }
    }

    /// The arguments are wrong.
    pub(crate) fn usage(text: impl fmt::Display) -> Self {
        Failure::new(2, format!("{text}; see cenote --help"))
    }

    /// A migration failed, or the files contradict the history.
    pub(crate) fn migration(text: impl fmt::Display) -> Self {
        Failure::new(1, text)
    }

    /// The exit code says more than the others do.
    pub(crate) fn with_code(code: u8, text: impl fmt::Display) -> Self {
        Failure::new(code, text)
    }

    /// The database cannot be reached, or refuses.
    pub(crate) fn database(text: impl fmt::Display) -> Self {
        Failure::new(3, text)
    }

    /// Anything else.
    pub(crate) fn other(text: impl fmt::Display) -> Self {
        Failure::new(4, text)
    }

    /// The user interrupted a run before its checks.
    pub(crate) fn interrupted() -> Self {
        Failure::new(
            130,
            "interrupted: nothing was checked, and tables may be left behind",
        )
    }

    /// The user interrupted `cenote migrate`.
    pub(crate) fn interrupted_migration() -> Self {
        Failure::new(
            130,
            "interrupted: what was under way is rolled back where it can be; see --status",
        )
    }

    /// The user interrupted `cenote check`.
    pub(crate) fn interrupted_check() -> Self {
        Failure::new(130, "interrupted")
    }

    /// The user interrupted the end of `cenote size`.
    pub(crate) fn interrupted_size() -> Self {
        Failure::new(
            130,
            "interrupted: tables of the bank may be left behind; --force drops them in the next run",
        )
    }

    /// The exit code, as `--help` says it.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(text) => Failure::usage(text),
            Error::Database(text) => Failure::database(text),
            error => Failure::other(error),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::other(format!("the output cannot be written: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_it_is_about() {
        let failure = Failure::database("cannot open \"a\nb\": \u{1b}[31mno");
        assert_eq!(failure.to_string(), "cannot open \"a b\":  [31mno");
        assert_eq!(failure.code(), 3);
    }
}
