//! The terminal: colours, and a few lines redrawn in place.

use std::fmt::Write as _;
use std::io::{self, Write};

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_ALL: &str = "\x1b[2J\x1b[H";

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    /// Returns the size of the terminal, or 80 by 24 if it is unknown.
    pub(crate) fn of_terminal() -> Self {
        match terminal_size::terminal_size() {
            Some((width, height)) if width.0 > 0 && height.0 > 0 => Size {
                columns: usize::from(width.0),
                rows: usize::from(height.0),
            },
            _ => Size {
                columns: 80,
                rows: 24,
            },
        }
    }
}

/// Draws lines in place. Dropped, it shows the cursor again.
#[derive(Debug)]
pub(crate) struct Screen<W: Write> {
    out: W,
    /// How many lines the last frame had, to go back by. None before the first.
    drawn: Option<(usize, Size)>,
}

impl<W: Write> Screen<W> {
    pub(crate) fn new(out: W) -> Self {
        Screen { out, drawn: None }
    }

    /// Draws lines over the last ones. Leaves out what does not fit.
    pub(crate) fn draw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        let mut frame = String::new();
        match self.drawn {
            None => frame.push_str(HIDE_CURSOR),
            Some((0, _)) => {}
            Some((back, then)) if then == size => {
                let _ = write!(frame, "\x1b[{back}A");
            }
            // The terminal has moved the old lines.
            Some(_) => frame.push_str(CLEAR_ALL),
        }
        // The cursor stands on a line of its own below them.
        let lines = &lines[..lines.len().min(size.rows.saturating_sub(1))];
        for line in lines {
            let line = cropped(line, size.columns);
            let _ = write!(frame, "\r{line}{CLEAR_REST_OF_LINE}\n");
        }
        frame.push_str(CLEAR_BELOW);
        self.drawn = Some((lines.len(), size));
        // In one write, so that no half frame is visible.
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }

    /// Erases what was drawn, and shows the cursor.
    pub(crate) fn erase(&mut self) -> io::Result<()> {
        if let Some((back, _)) = self.drawn.take() {
            if back > 0 {
                write!(self.out, "\x1b[{back}A")?;
            }
            write!(self.out, "\r{CLEAR_BELOW}{SHOW_CURSOR}")?;
        }
        self.out.flush()
    }

    /// Writes text that stays.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            // The last frame stays; there is no other place for an error.
            let _ = self.out.write_all(SHOW_CURSOR.as_bytes());
            let _ = self.out.flush();
        }
    }
}

/// Colours texts for a terminal, or leaves them alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// With colours, unless `NO_COLOR` is set to something.
    pub(crate) fn by_environment() -> Self {
        Paint {
            on: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Without colours.
    pub(crate) fn none() -> Self {
        Paint { on: false }
    }

    fn with(self, code: &str, text: &str) -> String {
        match self.on && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn blue(self, text: &str) -> String {
        self.with("34", text)
    }
}

/// Cuts a painted text after `columns` visible columns.
fn cropped(text: &str, columns: usize) -> String {
    let mut kept = String::new();
    let mut left = columns;
    let mut in_escape = false;
    for letter in text.chars() {
        if in_escape || letter == '\x1b' {
            in_escape = letter != 'm';
            kept.push(letter);
        } else if left > 0 {
            left -= 1;
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size {
        columns: 4,
        rows: 3,
    };

    fn drawn(work: impl FnOnce(&mut Screen<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        work(&mut Screen::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_cursor_is_given_back_however_it_ends() {
        let erased = drawn(|screen| {
            screen.draw(&lines(&["a"]), SMALL).unwrap();
            screen.erase().unwrap();
        });
        assert_eq!(erased.matches(HIDE_CURSOR).count(), 1);
        assert_eq!(erased.matches(SHOW_CURSOR).count(), 1);
        let dropped = drawn(|screen| screen.draw(&lines(&["a"]), SMALL).unwrap());
        assert!(dropped.ends_with(SHOW_CURSOR), "{dropped:?}");
        let unused = drawn(|_| {});
        assert_eq!(unused, "");
    }

    #[test]
    fn a_second_frame_goes_over_the_first() {
        let text = drawn(|screen| {
            screen.draw(&lines(&["a", "b"]), SMALL).unwrap();
            screen.draw(&lines(&["c"]), SMALL).unwrap();
        });
        assert!(text.contains("\x1b[2A\rc"), "{text:?}");
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let text = drawn(|screen| {
            let long = lines(&["123456", "two", "three", "four"]);
            screen.draw(&long, SMALL).unwrap();
        });
        assert!(text.contains("\r1234\x1b[K"), "{text:?}");
        assert!(text.contains("two") && !text.contains("three"), "{text:?}");
    }

    #[test]
    fn after_a_change_of_size_it_begins_at_the_top() {
        let text = drawn(|screen| {
            screen.draw(&lines(&["a"]), SMALL).unwrap();
            let size = Size {
                columns: 9,
                rows: 9,
            };
            screen.draw(&lines(&["b"]), size).unwrap();
        });
        assert!(text.contains(&format!("{CLEAR_ALL}\rb")), "{text:?}");
    }

    #[test]
    fn a_painted_text_is_cropped_by_its_visible_columns() {
        let paint = Paint { on: true };
        let text = format!("{} and more", paint.green("green"));
        assert_eq!(cropped(&text, 3), "\x1b[32mgre\x1b[0m");
        assert_eq!(cropped("█░·", 2), "█░");
        assert_eq!(cropped("all of it", 80), "all of it");
    }

    #[test]
    fn without_colours_nothing_is_added() {
        assert_eq!(Paint::none().red("x"), "x");
    }
}
