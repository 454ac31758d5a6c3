//! Lines of fields. A field can be missing, and can hold anything.

/// Writes fields as a line, with its end.
pub(crate) fn write(fields: &[Option<&str>]) -> String {
    let mut line = String::new();
    for (n, field) in fields.iter().enumerate() {
        if n > 0 {
            line.push('\t');
        }
        let Some(field) = field else {
            line.push_str("\\0");
            continue;
        };
        for c in field.chars() {
            match c {
                '\\' => line.push_str("\\\\"),
                '\t' => line.push_str("\\t"),
                '\n' => line.push_str("\\n"),
                c => line.push(c),
            }
        }
    }
    line.push('\n');
    line
}

/// Reads a line, without its end, back into fields.
pub(crate) fn read(line: &str) -> Vec<Option<String>> {
    line.split('\t').map(field).collect()
}

fn field(text: &str) -> Option<String> {
    if text == "\\0" {
        return None;
    }
    let mut field = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        field.push(match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some(c) => c,
                None => '\\',
            },
        });
    }
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_written_is_read_again() {
        let fields = [Some("a\tb\\n\n"), None, Some(""), Some("\\0"), Some("grün")];
        let line = write(&fields);
        let body = line.strip_suffix('\n').expect("a line ends");
        assert!(!body.contains('\n'));
        let again = read(body);
        let again: Vec<_> = again.iter().map(Option::as_deref).collect();
        assert_eq!(again, fields);
    }
}
