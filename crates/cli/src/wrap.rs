//! Breaks long lines between words, so that a narrow terminal does not break them inside.

/// Breaks the lines that are longer than this many columns. What follows a break stands below the
/// last column of the line, or below its beginning.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        wrap_line(line, columns.max(20), &mut lines);
    }
    lines.join("\n")
}

fn wrap_line(line: &str, columns: usize, lines: &mut Vec<String>) {
    let indent = indent_of(line, columns);
    let mut rest = line.to_owned();
    while width(&rest) > columns {
        // The last space that fits, behind the indentation.
        let mut seen = 0;
        let mut at = None;
        let mut in_escape = false;
        for (byte, letter) in rest.char_indices() {
            if in_escape || letter == '\x1b' {
                in_escape = letter != 'm';
                continue;
            }
            if seen > columns {
                break;
            }
            if letter == ' ' && !rest[..byte].trim().is_empty() && seen > indent {
                at = Some(byte);
            }
            seen += 1;
        }
        let Some(at) = at else { break };
        let next = format!("{:indent$}{}", "", rest[at..].trim_start());
        lines.push(rest[..at].trim_end().to_owned());
        rest = next;
    }
    lines.push(rest);
}

/// The column at which the words of a line begin: behind its last gap of two spaces or more, if that
/// leaves room for words.
fn indent_of(line: &str, columns: usize) -> usize {
    let plain = plain(line);
    let leading = plain.chars().take_while(|letter| *letter == ' ').count();
    let gap = plain
        .trim_end()
        .rfind("  ")
        .map(|at| plain[..at + 2].chars().count());
    gap.filter(|gap| *gap >= leading && *gap <= columns / 2)
        .unwrap_or(leading)
}

/// The columns that a text takes, without the codes of its colours.
fn width(text: &str) -> usize {
    plain(text).chars().count()
}

fn plain(text: &str) -> String {
    let mut in_escape = false;
    let visible = text.chars().filter(|letter| {
        let hidden = in_escape || *letter == '\x1b';
        if hidden {
            in_escape = *letter != 'm';
        }
        !hidden
    });
    visible.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_below_their_column() {
        let text = "  --dsn DSN      the database, such as sqlite:/path/bank.db\nshort";
        let expected =
            "  --dsn DSN      the database, such as\n                 sqlite:/path/bank.db\nshort";
        assert_eq!(wrapped(text, 40), expected);
        assert_eq!(wrapped(text, 80), text);
    }

    #[test]
    fn a_word_that_does_not_fit_stays_whole() {
        let text = "see postgres://a-very-long-address.example/with/a/path for more";
        let lines: Vec<String> = wrapped(text, 30).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "see");
        assert!(lines[1].starts_with("postgres://a-very-long-address.example/with/a/path"));
    }

    #[test]
    fn colours_take_no_room() {
        let painted = "\x1b[32mgreen words\x1b[0m here and there";
        assert_eq!(wrapped(painted, 26), painted);
    }
}
