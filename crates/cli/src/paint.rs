//! Colours, where they are wanted.

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

/// Cuts a painted text off after so many columns; what paints it takes none.
pub(crate) fn cropped(text: &str, columns: usize) -> String {
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

    #[test]
    fn a_painted_text_is_cropped_by_what_is_seen_and_its_colour_ends() {
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
