//! The types of parameters on PostgreSQL.
//!
//! cenote declares no types, and the server takes a parameter for text where the statement does not determine its type, as in
//! `SELECT $1`. SeaORM expects the type of the value there, which sqlx declares. So each placeholder gets a cast to it. Text
//! stays without: the server then converts it to what it needs.

use sea_orm::Value;

/// Adds casts to the placeholders of a statement, except in literals, quoted names and comments.
pub(crate) fn with_casts(sql: String, values: &[Value]) -> String {
    let types: Vec<_> = values.iter().map(type_name).collect();
    if types.iter().all(Option::is_none) {
        return sql;
    }
    let mut cast = String::with_capacity(sql.len() + 12 * types.len());
    let mut at = 0;
    while at < sql.len() {
        let (before, rest) = sql.split_at(at);
        let token = &rest[..token_length(before, rest)];
        cast.push_str(token);
        let number = token.strip_prefix('$').and_then(|it| it.parse().ok());
        let place = number.and_then(|number: usize| number.checked_sub(1));
        if let Some(Some(name)) = place.and_then(|place| types.get(place)) {
            cast.push_str("::");
            cast.push_str(name);
        }
        at += token.len();
    }
    cast
}

/// Returns the length of the first token: a literal, a quoted name, a comment, a placeholder, or text up to the next of them.
fn token_length(before: &str, rest: &str) -> usize {
    let ends = |found: Option<usize>, length: usize| found.map_or(rest.len(), |at| at + length);
    let follows_word = before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$');
    match rest.as_bytes() {
        [b'\'', ..] => quoted(rest, '\'', before.ends_with(['e', 'E'])),
        [b'"', ..] => quoted(rest, '"', false),
        [b'-', b'-', ..] => ends(rest.find('\n'), 1),
        [b'/', b'*', ..] => comment(rest),
        [b'$', ..] if !follows_word => {
            let word = rest[1..].find(|c: char| !c.is_alphanumeric() && c != '_');
            let word = word.map_or(rest.len(), |length| length + 1);
            let is_tag = rest[word..].starts_with('$')
                && !rest[1..].starts_with(|c: char| c.is_ascii_digit());
            match is_tag {
                true => {
                    let tag = &rest[..=word];
                    ends(rest[tag.len()..].find(tag), 2 * tag.len())
                }
                false => word,
            }
        }
        _ => {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let next = rest[first..].find(['\'', '"', '-', '/', '$']);
            ends(next, first)
        }
    }
}

/// Returns the length of a text in quotes, in which two quotes stand for one.
fn quoted(rest: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && has_escapes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    rest.len()
}

/// Returns the length of a comment, which may contain others.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = rest[at..].find(['/', '*']) {
        at += found;
        match rest.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Returns the type of a value; none for text, and for values that are refused.
fn type_name(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Bool(_) => "bool",
        Value::TinyInt(_) | Value::SmallInt(_) | Value::TinyUnsigned(_) => "int2",
        Value::Int(_) | Value::SmallUnsigned(_) => "int4",
        Value::BigInt(_) | Value::Unsigned(_) | Value::BigUnsigned(_) => "int8",
        Value::Float(_) => "float4",
        Value::Double(_) => "float8",
        Value::Bytes(_) => "bytea",
        Value::Json(_) => "jsonb",
        Value::ChronoDate(_) => "date",
        Value::ChronoTime(_) => "time",
        Value::ChronoDateTime(_) => "timestamp",
        Value::ChronoDateTimeUtc(_)
        | Value::ChronoDateTimeLocal(_)
        | Value::ChronoDateTimeWithTimeZone(_) => "timestamptz",
        Value::Uuid(_) => "uuid",
        Value::Decimal(_) => "numeric",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_get_the_type_of_their_value() {
        let values = [Value::Bool(Some(true)), "x".into(), Value::Int(None)];
        for (sql, expected) in [
            ("SELECT $1, $2, $3", "SELECT $1::bool, $2, $3::int4"),
            (
                "a=$1 OR b IN($3,$1)",
                "a=$1::bool OR b IN($3::int4,$1::bool)",
            ),
            ("$1", "$1::bool"),
            ("$4 $0 $ $", "$4 $0 $ $"),
            ("ä$1 a$1 $1ä", "ä$1 a$1 $1ä"),
        ] {
            assert_eq!(with_casts(sql.to_owned(), &values), expected);
        }
        assert_eq!(with_casts("$1".to_owned(), &["x".into()]), "$1");
    }

    #[test]
    fn literals_names_and_comments_stay_as_they_are() {
        for kept in [
            "'$1 '' $1'",
            "E'\\'$1'",
            "\"$1 \"\" $1\"",
            "-- $1\n",
            "/* $1 /* */ $1 */",
            "$$ $1 ' $$",
            "$a_1$ $1 $$ $a_1$",
            "'$1",
            "/* $1",
            "$a$ $1",
            "-- $1",
        ] {
            let sql = format!("{kept} $1");
            let is_open = kept == "'$1" || kept == "/* $1" || kept == "$a$ $1" || kept == "-- $1";
            let cast = if is_open { "" } else { "::bool" };
            let values = [Value::Bool(Some(true))];
            assert_eq!(with_casts(sql.clone(), &values), format!("{sql}{cast}"));
        }
    }
}
