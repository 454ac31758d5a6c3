//! PostgreSQL's operators with a question mark, in texts that have their values in them.

/// Writes PostgreSQL's operators with a `?` as cenote reads them. The values are in the text already, so that no `?` is a placeholder.
pub(crate) fn with_doubled_question_marks(sql: String) -> String {
    if !sql.contains('?') {
        return sql;
    }
    let mut out = String::with_capacity(sql.len() + 8);
    let mut rest = sql.as_str();
    while let Some(next) = rest.chars().next() {
        let len = match next {
            '\'' => quoted(rest, '\'', out.ends_with(['E', 'e'])),
            '"' => quoted(rest, '"', false),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '$' => dollar_quoted(rest),
            _ => next.len_utf8(),
        };
        out.push_str(&rest[..len]);
        if next == '?' {
            out.push('?');
        }
        rest = &rest[len..];
    }
    out
}

/// Returns the length of a text or name in quotes.
fn quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if has_escapes => drop(chars.next()),
            // A doubled one begins the next piece, which is quoted too.
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of `$tag$ … $tag$`, or of the `$` if it begins no quote.
fn dollar_quoted(text: &str) -> usize {
    let is_tag = |c: char| c.is_alphanumeric() || c == '_';
    let Some(end) = text[1..].find(|c| !is_tag(c)).map(|at| at + 1) else {
        return 1;
    };
    let is_quote =
        text[end..].starts_with('$') && !text[1..].starts_with(|c: char| c.is_ascii_digit());
    if !is_quote {
        return 1;
    }
    let tag = &text[..=end];
    match text[tag.len()..].find(tag) {
        Some(at) => at + 2 * tag.len(),
        None => text.len(),
    }
}
