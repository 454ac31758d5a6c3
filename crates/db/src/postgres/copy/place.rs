//! Finds the row and the column of a COPY in the context of the server's error.

/// Returns the row, counted from 0, and the column that a context names: `COPY t, line 3, column n: "x"`.
///
/// The words between are those of the server's language. What follows the colon is data.
pub(in crate::postgres) fn of_context(context: &str) -> Option<(u64, Option<&str>)> {
    context
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .find_map(of_copy)
}

fn of_copy(line: &str) -> Option<(u64, Option<&str>)> {
    line.match_indices(", ").find_map(|(at, comma)| {
        let (_word, rest) = line[at + comma.len()..].split_once(' ')?;
        let digits = rest.len()
            - rest
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .len();
        let (number, rest) = rest.split_at(digits);
        let row = number.parse::<u64>().ok()?.checked_sub(1)?;
        match rest.strip_prefix(", ") {
            Some(column) => Some((row, name_of(column))),
            None if rest.is_empty() || rest.trim_start().starts_with(':') => Some((row, None)),
            None => None,
        }
    })
}

/// Returns the name in `column name: "value"`.
fn name_of(column: &str) -> Option<&str> {
    let (_word, rest) = column.split_once(' ')?;
    let name = rest.find(": ").map_or(rest, |colon| &rest[..colon]);
    Some(name.trim_end()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_and_column_are_found_in_every_form() {
        for (context, expected) in [
            ("COPY t, line 3, column n: \"x\"", Some((2, Some("n")))),
            (
                "COPY t, line 3, column a b: null input",
                Some((2, Some("a b"))),
            ),
            ("COPY t, line 1, column n", Some((0, Some("n")))),
            ("COPY t, line 7: \"1,2, line 9\"", Some((6, None))),
            ("COPY t, line 12", Some((11, None))),
            ("COPY t, Zeile 3, Spalte n: »x«", Some((2, Some("n")))),
            ("COPY t, ligne 3, colonne n : « x »", Some((2, Some("n")))),
            (
                "PL/pgSQL function f() line 3 at RAISE\nCOPY t, line 2",
                Some((1, None)),
            ),
            ("COPY a, b, line 4", Some((3, None))),
            ("COPY t, line 0", None),
            ("COPY t", None),
            ("SQL function \"f\" statement 1", None),
            ("COPY t, line 99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(of_context(context), expected, "{context}");
        }
    }
}
