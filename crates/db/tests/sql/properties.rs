//! What holds for every text, however odd.

use std::borrow::Cow;

use cenote::sql::{Dialect, PlaceholderStyle, Placeholders, Scanned, Statements, scan};
use proptest::prelude::*;
use proptest::sample::select;

const ALL: [&Dialect; 4] = [
    &Dialect::SQLITE,
    &Dialect::POSTGRES,
    &Dialect::MYSQL,
    &Dialect::ODBC,
];

/// The tests leave no files behind: what fails is shown.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn any_dialect() -> impl Strategy<Value = &'static Dialect> {
    select(&ALL[..])
}

/// Text of the characters and words that a scanner stumbles over.
fn odd_text() -> impl Strategy<Value = String> {
    let odd = select(
        &[
            "'",
            "''",
            "\"",
            "`",
            "[",
            "]",
            "$",
            "$$",
            "$a$",
            "$1",
            "?",
            "??",
            "?1",
            ":",
            "::",
            ":=",
            ":a",
            ":b",
            "@",
            "@@",
            "@a",
            "#",
            "-",
            "--",
            "-- ",
            "/",
            "*",
            "/*",
            "*/",
            "/*!",
            "/*M!",
            "\\",
            "\\'",
            "E'",
            "e'",
            "U&\"",
            ";",
            "(",
            ")",
            ",",
            ".",
            "=",
            "\n",
            "\r",
            "\t",
            " ",
            "\u{feff}",
            "\0",
            "é",
            "字",
            "1",
            "1e",
            "a",
            "_",
            "a$1",
            "{",
            "}",
            "ARRAY[",
            "SELECT ",
            "SET ",
            "set_config(",
            ", true)",
            "get_lock(",
            "BEGIN ",
            "END",
            "COMMIT ",
            "CREATE ",
            "TRIGGER ",
            "TEMP ",
            "INTO ",
            "EXPLAIN ",
            "PRAGMA ",
            "ROLLBACK ",
            "TO ",
        ][..],
    );
    prop::collection::vec(odd, 0..60).prop_map(|pieces| pieces.concat())
}

/// What must hold for whatever a scan says.
fn check_sense(sql: &str, scanned: &Scanned<'_>) -> Result<(), TestCaseError> {
    let class = &scanned.class;
    let single = class.statements == Statements::One;
    prop_assert!(
        !class.only_session || class.touches_session && single,
        "{}",
        sql
    );
    prop_assert!(
        !class.reads_only || !class.touches_session && single,
        "{}",
        sql
    );
    prop_assert!(
        class.transaction.is_none() || class.contains_transaction_control && single,
        "{}",
        sql
    );
    prop_assert!(
        class.touches_session || class.statements != Statements::Several,
        "{}",
        sql
    );
    if scanned.placeholders == Placeholders::None && !sql.contains("??") {
        prop_assert_eq!(&*scanned.sql, sql);
    }
    Ok(())
}

/// Scanning what was sent must find the same, and change nothing more.
fn check_again(dialect: &Dialect, sql: &str, scanned: &Scanned<'_>) -> Result<(), TestCaseError> {
    let again = scan(dialect, &scanned.sql);
    prop_assert!(again.is_ok(), "{} became {}", sql, scanned.sql);
    let again = again.expect("it was just looked at");
    prop_assert!(
        matches!(again.sql, Cow::Borrowed(_)),
        "{} became {} and then {}",
        sql,
        scanned.sql,
        again.sql
    );
    // In a script or a definition, a `$1` is no placeholder, even if it was a `?` before.
    let is_theirs = dialect.placeholders == PlaceholderStyle::NumberedDollar
        && again.placeholders == Placeholders::None;
    let counts = [&again, scanned].map(|it| it.placeholders.count());
    prop_assert!(is_theirs || counts[0] == counts[1], "{}: {:?}", sql, counts);
    prop_assert_eq!(again.class, scanned.class);
    Ok(())
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn no_text_makes_it_panic(dialect in any_dialect(), sql in any::<String>()) {
        if let Ok(scanned) = scan(dialect, &sql) {
            check_sense(&sql, &scanned)?;
        }
    }

    #[test]
    fn no_odd_text_makes_it_panic(dialect in any_dialect(), sql in odd_text()) {
        if let Ok(scanned) = scan(dialect, &sql) {
            check_sense(&sql, &scanned)?;
        }
    }

    /// Up to `??`, which becomes a question mark that a second scan would take for
    /// a placeholder.
    #[test]
    fn what_was_rewritten_means_the_same_and_is_not_rewritten_again(
        dialect in any_dialect(),
        sql in odd_text().prop_map(|sql| sql.replace("??", "?")),
    ) {
        if !sql.contains("??") && let Ok(scanned) = scan(dialect, &sql) {
            check_again(dialect, &sql, &scanned)?;
        }
    }

    #[test]
    fn text_without_a_sign_of_placeholders_comes_back_byte_for_byte(
        dialect in any_dialect(),
        sql in prop_oneof![odd_text(), any::<String>()],
    ) {
        let sql = sql.replace(['?', ':', '$', '@'], "");
        let scanned = scan(dialect, &sql).expect("there is nothing to refuse");
        prop_assert!(matches!(scanned.sql, Cow::Borrowed(_)));
        prop_assert_eq!(&*scanned.sql, sql.as_str());
        prop_assert_eq!(scanned.placeholders, Placeholders::None);
    }

}

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn nesting_is_no_matter_how_deep(
        dialect in any_dialect(),
        piece in select(&["(", "[", "/*", "/*!", "$a$", "'", "a[b(", "E'\n", "{", "((SELECT", ":a["][..]),
        depth in 0_usize..20_000,
    ) {
        let sql = piece.repeat(depth);
        if let Ok(scanned) = scan(dialect, &sql) {
            check_sense(&sql, &scanned)?;
        }
    }
}

/// A piece of SQL whose nature the generator knows.
#[derive(Clone, Debug)]
enum Piece {
    /// Nothing in it is a placeholder, whatever it looks like.
    Opaque(String),
    /// One placeholder; the number picks its name.
    Placeholder(usize),
}

/// How the placeholders of one text are written.
#[derive(Clone, Copy, Debug)]
enum Writing {
    Question,
    Native,
    Named,
}

const NAMES: [&str; 5] = ["a", "b", "A", "_1", "größe"];

fn pieces(dialect: &'static Dialect) -> impl Strategy<Value = Vec<Piece>> {
    let opaque = opaque(dialect).prop_map(Piece::Opaque);
    let placeholder = (0..NAMES.len()).prop_map(Piece::Placeholder);
    prop::collection::vec(prop_oneof![3 => opaque, 1 => placeholder], 0..20)
}

/// What can stand in quotes and comments.
fn body() -> impl Strategy<Value = String> {
    let part = select(
        &[
            "?", ":a", "$1", "@x", "??", "'", "\"", "`", "]", "[", "\\", "-- ", "/", "*", "#", ";",
            "\n", "$b$", "$$", "é", " ", "SET x", "!", "a", "1",
        ][..],
    );
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn opaque(dialect: &'static Dialect) -> BoxedStrategy<String> {
    let is = |other: &Dialect| dialect == other;
    let (mysql, postgres, sqlite) = (
        is(&Dialect::MYSQL),
        is(&Dialect::POSTGRES),
        is(&Dialect::SQLITE),
    );
    let doubled = |text: &str, quote: &str| text.replace(quote, &quote.repeat(2));
    let words = select(
        &[
            "SELECT", "a", "x1", "a$1", "12", "1.5e3", ",", "(", ")", "=", "->>", "::int", ":=",
            "<>", "||", "t.c", ": ", "12:30", "%", "été",
        ][..],
    )
    // There `:3` would be a variable.
    .prop_filter("no `:3`", move |word| !sqlite || *word != "12:30")
    .prop_map(str::to_owned);
    let string = body().prop_map(move |text| {
        let text = doubled(&text, "'");
        let text = if mysql { doubled(&text, "\\") } else { text };
        format!("'{text}'")
    });
    let double_quotes = body().prop_map(move |text| {
        let text = doubled(&text, "\"");
        let text = if mysql { doubled(&text, "\\") } else { text };
        format!("\"{text}\"")
    });
    let dashes = body().prop_map(|text| format!("-- {}\n", text.replace('\n', "")));
    let block = body().prop_map(|text| format!("/* {} */", text.replace(['*', '/'], "")));
    let mut kinds = vec![
        words.boxed(),
        string.boxed(),
        double_quotes.boxed(),
        dashes.boxed(),
        block.boxed(),
    ];
    if mysql {
        kinds.push(
            body()
                .prop_map(|text| format!("#{}\n", text.replace('\n', "")))
                .boxed(),
        );
        let escaped = body().prop_map(|text| {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'");
            format!("'{text}'")
        });
        kinds.push(escaped.boxed());
    }
    if mysql || sqlite {
        kinds.push(
            body()
                .prop_map(move |text| format!("`{}`", doubled(&text, "`")))
                .boxed(),
        );
    }
    if sqlite {
        kinds.push(
            body()
                .prop_map(|text| format!("[{}]", text.replace(']', "")))
                .boxed(),
        );
    }
    if is(&Dialect::ODBC) {
        kinds.push(
            body()
                .prop_map(move |text| format!("[{}]", doubled(&text, "]")))
                .boxed(),
        );
    }
    if postgres {
        // The word keeps a string on the next line from going on with this one.
        let escaped = body().prop_map(|text| {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'");
            format!("E'{text}' x")
        });
        kinds.push(escaped.boxed());
        let quoted = (select(&["", "q", "_1", "é"][..]), body())
            .prop_map(|(tag, text)| format!("${tag}${}${tag}$", text.replace('$', "")));
        kinds.push(quoted.boxed());
        let inner = select(&["$b$ ?", "$1 ", ":a ' \""][..]);
        kinds.push(inner.prop_map(|text| format!("$q${text}$q$")).boxed());
        let nested = (1_usize..4, body()).prop_map(|(depth, text)| {
            let text = text.replace(['*', '/'], "");
            format!("{}{text}{}", "/* ".repeat(depth), " */?".repeat(depth - 1)) + " */"
        });
        kinds.push(nested.boxed());
        kinds.push(
            select(&["a[1:2]", "a[i:j]", "x[b[1]:c]"][..])
                .prop_map(str::to_owned)
                .boxed(),
        );
    }
    proptest::strategy::Union::new(kinds).boxed()
}

/// The text of the pieces, the text that has to be sent, and its placeholders.
fn write(
    dialect: &Dialect,
    writing: Writing,
    pieces: &[Piece],
    space: &str,
) -> (String, String, Placeholders<'static>) {
    let (mut written, mut sent) = (String::new(), String::new());
    let mut names: Vec<&'static str> = Vec::new();
    let mut count = 0;
    for piece in pieces {
        match piece {
            Piece::Opaque(text) => {
                written.push_str(text);
                sent.push_str(text);
            }
            Piece::Placeholder(pick) => {
                let name = NAMES[*pick];
                let position = match writing {
                    Writing::Question => {
                        count += 1;
                        written.push('?');
                        count
                    }
                    Writing::Native => {
                        let number = pick + 1;
                        count = count.max(number);
                        written.push_str(&native(dialect, number, writing));
                        number
                    }
                    Writing::Named => {
                        written.push_str(&format!(":{name}"));
                        let numbered = dialect.placeholders != PlaceholderStyle::Question;
                        let known = names.iter().position(|known| *known == name);
                        match known.filter(|_| numbered) {
                            Some(known) => known + 1,
                            None => {
                                names.push(name);
                                names.len()
                            }
                        }
                    }
                };
                sent.push_str(&native(dialect, position, writing));
            }
        }
        written.push_str(space);
        sent.push_str(space);
    }
    let some = pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Placeholder(_)));
    let placeholders = match writing {
        _ if !some => Placeholders::None,
        Writing::Named => Placeholders::Named(names),
        Writing::Question | Writing::Native => Placeholders::Positional(count),
    };
    (written, sent, placeholders)
}

fn native(dialect: &Dialect, position: usize, writing: Writing) -> String {
    match (dialect.placeholders, writing) {
        (PlaceholderStyle::NumberedDollar, _) => format!("${position}"),
        (PlaceholderStyle::NumberedQuestion, Writing::Native | Writing::Named) => {
            format!("?{position}")
        }
        (PlaceholderStyle::NumberedQuestion | PlaceholderStyle::Question, _) => "?".to_owned(),
    }
}

/// A dialect, a way to write placeholders that it has, pieces, and what is between them.
fn texts() -> impl Strategy<Value = (&'static Dialect, Writing, Vec<Piece>, &'static str)> {
    any_dialect().prop_flat_map(|dialect| {
        let numbered = dialect.placeholders != PlaceholderStyle::Question;
        let writings = if numbered {
            &[Writing::Question, Writing::Native, Writing::Named][..]
        } else {
            &[Writing::Question, Writing::Named][..]
        };
        let spaces = select(&[" ", "\n", "\t ", " /**/ "][..]);
        (Just(dialect), select(writings), pieces(dialect), spaces)
    })
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn placeholders_are_found_and_nothing_else_is_touched(
        (dialect, writing, pieces, space) in texts(),
    ) {
        let (written, sent, placeholders) = write(dialect, writing, &pieces, space);
        let scanned = scan(dialect, &written);
        prop_assert!(scanned.is_ok(), "{}: {}", dialect.name, written);
        let scanned = scanned.expect("it was just looked at");
        prop_assert_eq!(&*scanned.sql, sent.as_str(), "{}: {}", dialect.name, written);
        prop_assert_eq!(&scanned.placeholders, &placeholders, "{}: {}", dialect.name, written);
        if written == sent {
            prop_assert!(matches!(scanned.sql, Cow::Borrowed(_)));
        }
        check_sense(&written, &scanned)?;
        check_again(dialect, &written, &scanned)?;
    }

    /// The class is that of the statement, whatever is said in comments before it.
    #[test]
    fn comments_in_front_change_nothing(
        dialect in any_dialect(),
        comments in prop::collection::vec(body(), 0..4),
        statement in select(&["SELECT 1", "SET x = 1", "COMMIT", "DROP TABLE t", "CALL p()"][..]),
    ) {
        let mut sql = String::new();
        for (n, comment) in comments.iter().enumerate() {
            let hash = dialect.hash_comments && n == 1;
            if n % 2 == 0 {
                sql.push_str(&format!("/* {} */", comment.replace(['*', '/'], "")));
            } else {
                let start = if hash { "#" } else { "-- " };
                sql.push_str(&format!("{start}{}\n", comment.replace('\n', "")));
            }
        }
        sql.push_str(statement);
        let scanned = scan(dialect, &sql).expect("there are no placeholders");
        let plain = scan(dialect, statement).expect("there are no placeholders");
        prop_assert_eq!(scanned.class, plain.class, "{}", sql);
        prop_assert_eq!(scanned.placeholders, Placeholders::None);
    }
}

/// What SQLite itself finds in a text, for comparison.
#[cfg(feature = "sqlite")]
mod sqlite_agrees {
    use super::*;

    /// A SELECT of these values that SQLite accepts, with comments between them.
    fn valid_select() -> impl Strategy<Value = (Writing, Vec<Piece>)> {
        let quoted = body().prop_map(|text| format!("'{}'", text.replace('\'', "''")));
        let number = (0..100_u32).prop_map(|number| number.to_string());
        let dashes = body().prop_map(|text| format!("--{}\n 1", text.replace('\n', "\r")));
        let block = body().prop_map(|text| format!("/*{}*/ 2", text.replace('*', "")));
        let alias = body().prop_map(|text| format!("3 AS \"{}\"", text.replace('"', "\"\"")));
        let backticks = body().prop_map(|text| format!("3 AS `{}`", text.replace('`', "``")));
        let brackets = body().prop_map(|text| format!("4 [{}]", text.replace(']', "")));
        let opaque = prop_oneof![quoted, number, dashes, block, alias, backticks, brackets];
        let piece = prop_oneof![
            2 => opaque.prop_map(Piece::Opaque),
            1 => (0..NAMES.len()).prop_map(Piece::Placeholder),
        ];
        let writing = select(&[Writing::Question, Writing::Native, Writing::Named][..]);
        (writing, prop::collection::vec(piece, 1..10))
    }

    proptest! {
        #![proptest_config(cases(500))]

        #[test]
        fn on_the_placeholders_and_on_the_columns((writing, pieces) in valid_select()) {
            let (list, _, _) = write(&Dialect::SQLITE, writing, &pieces, ",");
            let sql = format!("SELECT {}", list.trim_end_matches(','));
            let scanned = scan(&Dialect::SQLITE, &sql).expect("all is of one kind");
            let connection = rusqlite::Connection::open_in_memory().expect("it needs nothing");
            let prepared = connection.prepare(&scanned.sql);
            prop_assert!(prepared.is_ok(), "{} became {}: {:?}", sql, scanned.sql, prepared.err());
            let prepared = prepared.expect("it was just looked at");
            prop_assert_eq!(prepared.parameter_count(), scanned.placeholders.count(), "{}", sql);
            prop_assert_eq!(prepared.column_count(), pieces.len(), "{}", sql);
            prop_assert!(prepared.readonly() && scanned.class.reads_only, "{}", sql);
        }
    }
}
