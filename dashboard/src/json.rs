//! Writes JSON.

use std::fmt::Write as _;

/// An object that is being written.
pub(crate) struct Object<'o> {
    out: &'o mut String,
    is_empty: bool,
}

/// Writes an object.
pub(crate) fn object(out: &mut String, fields: impl FnOnce(&mut Object<'_>)) {
    out.push('{');
    fields(&mut Object {
        out,
        is_empty: true,
    });
    out.push('}');
}

impl Object<'_> {
    fn key(&mut self, key: &str) -> &mut String {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        text(self.out, key);
        self.out.push(':');
        self.out
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        text(self.key(key), value);
    }

    /// Writes a text, or null.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.key(key).push_str("null"),
        }
    }

    pub(crate) fn whole(&mut self, key: &str, value: u64) {
        let _ = write!(self.key(key), "{value}");
    }

    /// Writes a whole number, or null.
    pub(crate) fn maybe_whole(&mut self, key: &str, value: Option<u64>) {
        match value {
            Some(value) => self.whole(key, value),
            None => self.key(key).push_str("null"),
        }
    }

    pub(crate) fn number(&mut self, key: &str, value: f64) {
        number(self.key(key), value);
    }

    pub(crate) fn flag(&mut self, key: &str, value: bool) {
        self.key(key).push_str(if value { "true" } else { "false" });
    }

    pub(crate) fn object(&mut self, key: &str, fields: impl FnOnce(&mut Object<'_>)) {
        object(self.key(key), fields);
    }

    pub(crate) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut String, T),
    ) {
        let out = self.key(key);
        out.push('[');
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            write(out, item);
        }
        out.push(']');
    }
}

/// Writes a number with up to three decimals. JSON has no infinity.
pub(crate) fn number(out: &mut String, value: f64) {
    let value = if value.is_finite() { value } else { 0.0 };
    let start = out.len();
    let _ = write!(out, "{value:.3}");
    let kept = out[start..]
        .trim_end_matches('0')
        .trim_end_matches('.')
        .len();
    out.truncate(start + kept);
}

/// Writes a text in quotes. Line breaks never appear as such, so that a text fits into one line of an event stream.
pub(crate) fn text(out: &mut String, value: &str) {
    out.push('"');
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Neither controls nor what JavaScript or HTML might take for something else.
            '\0'..' ' | '<' | '>' | '&' | '\u{7f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_a_json_parser() {
        let hostile = "</script>\u{2028}\"\\\n\r\t\0\u{7f}é🌵&amp;<b>";
        let mut out = String::new();
        object(&mut out, |o| {
            o.text("a\"b", hostile);
            o.maybe("none", None);
            o.maybe_whole("no number", None);
            o.maybe_whole("seven", Some(7));
            o.number("x", 1.5);
            o.number("y", f64::NAN);
            o.number("z", 1200.0);
            o.whole("n", u64::MAX);
            o.flag("yes", true);
            o.list("l", [1.25, 0.0], number);
        });
        assert!(!out.contains(['\n', '\r', '<', '\u{2028}']), "{out}");
        let read: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(read["a\"b"], hostile);
        assert!(read["none"].is_null() && read["no number"].is_null());
        assert_eq!(read["seven"], 7);
        assert_eq!(read["x"], 1.5);
        assert_eq!(read["y"], 0);
        assert_eq!(read["z"], 1200);
        assert_eq!(read["n"], u64::MAX);
        assert_eq!(read["yes"], true);
        assert_eq!(read["l"], serde_json::json!([1.25, 0]));
    }
}
