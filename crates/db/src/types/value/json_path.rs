//! Names the key of a JSON document at which it does not fit a type.

/// An object or array around the current value.
enum Around {
    /// With the key of the current value, if the document has got that far.
    Object(Option<String>),
    /// With the index of the current value.
    Array(usize),
}

/// Returns the error of reading a document, with the key at which it occurred: `` at `limits.max[2]`: invalid type … ``.
pub(crate) fn explained(text: &str, error: &serde_json::Error) -> String {
    let path = path_at(text, error.line(), error.column());
    match path.is_empty() {
        true => error.to_string(),
        false => format!("at `{path}`: {error}"),
    }
}

/// Returns the path of the value that ends at this line and column, both counted from 1; empty for the document itself and without
/// a position.
fn path_at(text: &str, line: usize, column: usize) -> String {
    let Some(line) = line.checked_sub(1) else {
        return String::new();
    };
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    // Columns count bytes. The last one may be the first byte of what cannot be read.
    let end = text.len().min(start + column);
    let bytes = &text.as_bytes()[..end];
    let mut around: Vec<Around> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' => around.push(Around::Object(None)),
            b'[' => around.push(Around::Array(0)),
            b'}' | b']' => drop(around.pop()),
            b',' => match around.last_mut() {
                Some(Around::Object(key)) => *key = None,
                Some(Around::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let end = end_of_string(bytes, at);
                if let Some(Around::Object(key @ None)) = around.last_mut() {
                    // A key with escapes is shown as it is read.
                    let quoted = text.get(at..end).unwrap_or_default();
                    *key = serde_json::from_str(quoted).ok();
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for step in around {
        match step {
            Around::Object(Some(key)) if path.is_empty() => path.push_str(&key),
            Around::Object(Some(key)) => path.push_str(&format!(".{key}")),
            Around::Object(None) => {}
            Around::Array(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Returns the end of the string that begins here.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Limits {
        max: Vec<i64>,
        name: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Settings {
        theme: String,
        limits: Limits,
    }

    #[test]
    fn the_key_of_what_does_not_fit_is_named() {
        for (text, path) in [
            (r#"{"theme": 7}"#, "theme"),
            (
                r#"{"theme": "a,}\"b", "limits": {"max": [1, "x"]}}"#,
                "limits.max[1]",
            ),
            (
                "{\"theme\": \"ä\",\n \"limits\": {\"max\":\n [1, 2, {}]}}",
                "limits.max[2]",
            ),
            (
                r#"{"theme": "a", "limits": {"max": [], "name": 7}}"#,
                "limits.name",
            ),
            // A missing field is missing in its object.
            (r#"{"theme": "a", "limits": {"name": "b"}}"#, "limits"),
            (
                r#"{"theme": "a", "limits": {"max": [], "nam": "b"}}"#,
                "limits.nam",
            ),
            (r#"{"theme": "a"}"#, ""),
            ("[]", ""),
            ("7", ""),
        ] {
            let error = serde_json::from_str::<Settings>(text).unwrap_err();
            let found = path_at(text, error.line(), error.column());
            assert_eq!(found, path, "{text}: {error}");
        }
    }
}
