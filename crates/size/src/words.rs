//! What a workload needs to know of a statement's text. The driver reads the text itself; this only finds mistakes early.

/// How statements begin, for the hint that SQL is indented.
pub(crate) const STATEMENTS: [&str; 12] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "BEGIN", "COMMIT", "START", "CALL", "REPLACE",
    "MERGE", "VALUES",
];

/// Statements that change the session or the transaction, which the workload has other means for.
const CONTROLS: [&str; 14] = [
    "BEGIN",
    "START",
    "COMMIT",
    "ROLLBACK",
    "END",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "SET",
    "RESET",
    "USE",
    "LOCK",
    "UNLOCK",
    "DISCARD",
];

/// Returns whether a name can contain this character.
pub(crate) fn is_part_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the first word if the statement changes the session or the transaction.
pub(crate) fn controls_session(sql: &str) -> Option<&'static str> {
    let first = first_word(sql);
    CONTROLS.into_iter().find(|word| *word == first)
}

/// Returns whether a statement returns rows, by its first word.
pub(crate) fn returns_rows(sql: &str) -> bool {
    let reads = [
        "SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN", "TABLE", "PRAGMA",
    ];
    let upper = sql.to_ascii_uppercase();
    reads.contains(&first_word(sql).as_str()) || upper.contains("RETURNING")
}

fn first_word(sql: &str) -> String {
    let start = sql.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '(');
    let word = start
        .split(|letter: char| !letter.is_ascii_alphabetic())
        .next();
    word.unwrap_or_default().to_ascii_uppercase()
}

/// Returns the placeholders of a statement in order, each with the number of line breaks before it. `?` stands for
/// itself. Strings, quoted names, comments and casts (`::`) are left out.
pub(crate) fn placeholders(sql: &str) -> Vec<(usize, &str)> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let newlines = |end: usize| sql[..end].matches('\n').count();
        at = match bytes[at] {
            quote @ (b'\'' | b'"' | b'`') => end_of(bytes, at + 1, &[quote]),
            b'-' if bytes[at..].starts_with(b"--") => end_of(bytes, at + 2, b"\n"),
            b'/' if bytes[at..].starts_with(b"/*") => end_of(bytes, at + 2, b"*/"),
            b':' if bytes[at..].starts_with(b"::") => at + 2,
            b':' => {
                let name = &sql[at + 1..];
                let length = name
                    .find(|letter| !is_part_of_name(letter))
                    .unwrap_or(name.len());
                let is_name =
                    length > 0 && !name.starts_with(|letter: char| letter.is_ascii_digit());
                // In an array slice, such as a[1:n], no placeholder follows a number.
                if is_name {
                    found.push((newlines(at), &name[..length]));
                }
                at + 1 + length
            }
            b'?' => {
                found.push((newlines(at), "?"));
                at + 1
            }
            _ => at + 1,
        };
    }
    found
}

/// Returns the place behind the next `mark`, or the end.
fn end_of(bytes: &[u8], from: usize, mark: &[u8]) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let at = rest.windows(mark.len()).position(|window| window == mark);
    at.map_or(bytes.len(), |at| from + at + mark.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_outside_of_strings_and_casts() {
        let sql = "SELECT ':no', \":no\", a::text -- :no\n, /* :no ' */ :yes, :also_1, x = :yes";
        assert_eq!(placeholders(sql), [(1, "yes"), (1, "also_1"), (1, "yes")]);
        assert_eq!(placeholders("SELECT '12:30', 'it''s :no', ?"), [(0, "?")]);
        assert_eq!(placeholders("SELECT 'never closed :no"), []);
        assert_eq!(placeholders(":"), []);
        assert_eq!(placeholders("SELECT 'ä' || :ö"), []);
    }

    #[test]
    fn first_words_say_what_a_statement_does() {
        assert!(returns_rows("  (select 1)"));
        assert!(returns_rows("insert into a values (1) returning id"));
        assert!(!returns_rows("UPDATE a SET b = 1"));
        assert_eq!(controls_session("set x = 1"), Some("SET"));
        assert_eq!(controls_session("BEGIN"), Some("BEGIN"));
        assert_eq!(controls_session("SELECT 1"), None);
    }
}
