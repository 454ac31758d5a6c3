//! Placeholders are found where the database finds them; nothing else of a text is changed, least of all
//! what stands in a string.

use std::borrow::Cow;

use cenote::sql::{Dialect, PlaceholderStyle, Placeholders, Scanned, Statements, scan};

use super::choices::Choices;

pub const DIALECTS: [&Dialect; 4] = [
    &Dialect::SQLITE,
    &Dialect::POSTGRES,
    &Dialect::MYSQL,
    &Dialect::ODBC,
];

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let dialect = choices.pick(&DIALECTS);
    match choices.byte() % 2 {
        0 => any_text(dialect, &choices.rest_as_text()),
        _ => built(dialect, choices),
    }
}

fn any_text(dialect: &Dialect, sql: &str) {
    let Ok(scanned) = scan(dialect, sql) else {
        return;
    };
    makes_sense(sql, &scanned);
    // `??` becomes `?`, which would be a placeholder the next time.
    if !sql.contains("??") {
        is_stable(dialect, sql, &scanned);
    }
    if dialect == &Dialect::SQLITE {
        sqlite_agrees(sql, &scanned);
    }
}

/// What a scan says does not contradict itself.
fn makes_sense(sql: &str, scanned: &Scanned<'_>) {
    let class = &scanned.class;
    let single = class.statements == Statements::One;
    assert!(
        !class.only_session || class.touches_session && single,
        "{sql:?}"
    );
    assert!(
        !class.reads_only || !class.touches_session && single,
        "{sql:?}"
    );
    assert!(
        class.transaction.is_none() || class.contains_transaction_control && single,
        "{sql:?}"
    );
    assert!(
        class.touches_session || class.statements != Statements::Several,
        "{sql:?}"
    );
    if scanned.placeholders == Placeholders::None && !sql.contains("??") {
        assert_eq!(scanned.sql, sql);
    }
}

/// Scanning what was sent finds the same, and changes nothing more.
fn is_stable(dialect: &Dialect, sql: &str, scanned: &Scanned<'_>) {
    let again = scan(dialect, &scanned.sql)
        .unwrap_or_else(|error| panic!("{sql:?} became {:?}: {error}", scanned.sql));
    assert!(
        matches!(again.sql, Cow::Borrowed(_)),
        "{sql:?} became {:?} and then {:?}",
        scanned.sql,
        again.sql
    );
    // In a script or a definition, a `$1` is no placeholder, even if it was a `?` before.
    let is_theirs = dialect.placeholders == PlaceholderStyle::NumberedDollar
        && again.placeholders == Placeholders::None;
    let counts = [&again, scanned].map(|it| it.placeholders.count());
    assert!(is_theirs || counts[0] == counts[1], "{sql:?}: {counts:?}");
    assert_eq!(again.class, scanned.class, "{sql:?}");
}

thread_local! {
    static SQLITE: rusqlite::Connection = {
        let connection = rusqlite::Connection::open_in_memory().expect("it needs nothing");
        let table = "CREATE TABLE t (a, b, c); CREATE TABLE u (a, b)";
        connection.execute_batch(table).expect("it is empty");
        connection
    };
}

/// What SQLite itself finds in a text that it understands.
fn sqlite_agrees(sql: &str, scanned: &Scanned<'_>) {
    // It reads no further than to a NUL; the driver refuses such a text.
    if sql.contains('\0') {
        return;
    }
    SQLITE.with(|connection| match connection.prepare(&scanned.sql) {
        Ok(prepared) => {
            let count = prepared.parameter_count();
            assert_eq!(count, scanned.placeholders.count(), "{sql:?}");
            assert!(prepared.readonly() || !scanned.class.reads_only, "{sql:?}");
        }
        Err(rusqlite::Error::MultipleStatement) => {
            assert_eq!(scanned.class.statements, Statements::Several, "{sql:?}");
        }
        Err(_) => {}
    });
}

/// How the placeholders of one text are written.
#[derive(Clone, Copy)]
enum Writing {
    Question,
    Native,
    Named,
}

const NAMES: [&str; 5] = ["a", "b", "A", "_1", "größe"];

const WORDS: [&str; 18] = [
    "SELECT", "a", "x1", "a$1", "12", "1.5e3", ",", "(", ")", "=", "->>", "::int", ":=", "<>",
    "||", "t.c", "%", "été",
];

/// A text of which is known what in it is a placeholder, with anything at all in its strings,
/// names and comments.
fn built(dialect: &Dialect, mut choices: Choices<'_>) {
    let is_numbered = dialect.placeholders != PlaceholderStyle::Question;
    let writing = match choices.byte() % 3 {
        0 => Writing::Named,
        1 if is_numbered => Writing::Native,
        _ => Writing::Question,
    };
    let (mut written, mut sent) = (String::new(), String::new());
    let mut names: Vec<&str> = Vec::new();
    let mut count = 0;
    while !choices.is_empty() {
        if !choices.byte().is_multiple_of(4) {
            let piece = opaque(dialect, &mut choices);
            written += &piece;
            sent += &piece;
        } else {
            let pick = usize::from(choices.byte()) % NAMES.len();
            let position = match writing {
                Writing::Question => {
                    count += 1;
                    written.push('?');
                    count
                }
                Writing::Native => {
                    count = count.max(pick + 1);
                    written += &native(dialect, pick + 1, writing);
                    pick + 1
                }
                Writing::Named => {
                    written += &format!(":{}", NAMES[pick]);
                    let known = names.iter().position(|known| *known == NAMES[pick]);
                    match known.filter(|_| is_numbered) {
                        Some(known) => known + 1,
                        None => {
                            names.push(NAMES[pick]);
                            names.len()
                        }
                    }
                }
            };
            sent += &native(dialect, position, writing);
        }
        let space = choices.pick(&[" ", "\n", "\t ", " /**/ "]);
        written += space;
        sent += space;
    }
    let placeholders = match writing {
        Writing::Named if !names.is_empty() => Placeholders::Named(names),
        Writing::Question | Writing::Native if count > 0 => Placeholders::Positional(count),
        _ => Placeholders::None,
    };
    let scanned = scan(dialect, &written)
        .unwrap_or_else(|error| panic!("{}: {written:?}: {error}", dialect.name));
    assert_eq!(scanned.sql, sent, "{}: {written:?}", dialect.name);
    assert_eq!(
        scanned.placeholders, placeholders,
        "{}: {written:?}",
        dialect.name
    );
    makes_sense(&written, &scanned);
    is_stable(dialect, &written, &scanned);
}

fn native(dialect: &Dialect, position: usize, writing: Writing) -> String {
    match (dialect.placeholders, writing) {
        (PlaceholderStyle::NumberedDollar, _) => format!("${position}"),
        (PlaceholderStyle::NumberedQuestion, Writing::Native | Writing::Named) => {
            format!("?{position}")
        }
        _ => "?".to_owned(),
    }
}

/// A piece in which nothing is a placeholder, whatever it looks like.
fn opaque(dialect: &Dialect, choices: &mut Choices<'_>) -> String {
    let is = |other: &Dialect| dialect == other;
    let doubled = |text: &str, quote: char| text.replace(quote, &format!("{quote}{quote}"));
    let backslashed = |text: &str| text.replace('\\', r"\\").replace('\'', r"\'");
    let kind = choices.byte() % 10;
    let body = choices.text(24);
    let one_line = body.replace(['\n', '\r'], "");
    let no_comment = body.replace(['*', '/'], "");
    match kind {
        0 if is(&Dialect::MYSQL) => format!("'{}'", backslashed(&body)),
        0 | 1 if is(&Dialect::MYSQL) => format!("\"{}\"", doubled(&doubled(&body, '"'), '\\')),
        0 | 2 if is(&Dialect::MYSQL) => format!("'{}'", doubled(&doubled(&body, '\''), '\\')),
        // The word keeps a string on the next line from going on with this one.
        0 if is(&Dialect::POSTGRES) => format!("E'{}' x", backslashed(&body)),
        0 if is(&Dialect::SQLITE) => format!("[{}]", body.replace(']', "")),
        0 if is(&Dialect::ODBC) => format!("[{}]", doubled(&body, ']')),
        1 => format!("\"{}\"", doubled(&body, '"')),
        2 | 3 if !is(&Dialect::MYSQL) => format!("'{}'", doubled(&body, '\'')),
        4 => format!("-- {one_line}\n"),
        5 => format!("/* {no_comment} */"),
        6 if is(&Dialect::MYSQL) => format!("#{one_line}\n"),
        6 if is(&Dialect::POSTGRES) => {
            let tag = choices.pick(&["", "q", "_1", "é"]);
            format!("${tag}${}${tag}$", body.replace('$', ""))
        }
        7 if is(&Dialect::POSTGRES) => format!("/* {no_comment} /* ? */ :a '{no_comment} */"),
        6 | 7 if is(&Dialect::MYSQL) || is(&Dialect::SQLITE) => {
            format!("`{}`", doubled(&body, '`'))
        }
        8 if is(&Dialect::POSTGRES) => choices.pick(&["a[1:2]", "a[i:j]", "x[b[1]:c]"]).to_owned(),
        _ => choices.pick(&WORDS).to_owned(),
    }
}
