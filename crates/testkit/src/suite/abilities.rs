//! Measures what a driver can do, for the table in its documentation.

use std::fmt::Write;

use cenote::Kind;
use cenote::driver::{Begin, Isolation, Reset, Savepoint, Status, Value};

use super::client::Client;
use super::status::failing;
use super::values::samples;
use super::{Lack, Subject};

/// One thing in which drivers differ, and what this driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ability {
    /// The question: the first cell of a row.
    pub about: &'static str,
    /// The driver's cell in that row.
    pub answer: String,
}

/// Measures everything in which drivers differ. Needs an empty database.
///
/// # Cancel safety
///
/// Dropped, its connections are dropped.
///
/// # Panics
///
/// If the driver breaks a rule of the contract; the [suite](super) then has a clearer message.
pub async fn abilities(subject: &Subject) -> Vec<Ability> {
    let mut found = Vec::new();
    let mut add = |about, answer: String| found.push(Ability { about, answer });
    let mut client = Client::first(subject).await;
    add(
        "BEGIN travels with the first statement",
        yes_or_no(client.connection.begins_lazily()),
    );
    add("savepoints", savepoints(&mut client).await);
    add("isolation levels", isolation(&mut client).await);
    add(
        "a read-only transaction",
        read_only(&mut client).await.to_owned(),
    );
    add(
        "an error in a transaction",
        error_in_transaction(&mut client).await.to_owned(),
    );
    add(
        "the layer serialises writers",
        yes_or_no(subject.template.one_writer()),
    );
    add(
        "readers ignore uncommitted rows without waiting",
        yes_or_no(is_hidden(&mut client).await),
    );
    add("`BEGIN` as text", control(subject).await.to_owned());
    add("a changed session", touched(subject).await.to_owned());
    add("a dropped call", dropped(subject).await.to_owned());
    add(
        "scripts of several statements",
        yes_or_no(runs_scripts(subject).await),
    );
    add("`last_insert_id`", number(subject).await.to_owned());
    add("an invalid statement", wrong(subject).await.to_owned());
    add("`Db::set_default`", setting(subject).await.to_owned());
    for (about, answer) in values(subject).await {
        add(about, answer);
    }
    found
}

/// Compares the table of a page with what a driver does. The table is in Markdown, has a column of this name and one
/// row for each [`Ability`], and no other rows.
///
/// # Cancel safety
///
/// Dropped, its connections are dropped.
///
/// # Panics
///
/// If they differ; the message shows the correct cells.
pub async fn check_table(subject: &Subject, page: &str, column: &str) {
    let found = abilities(subject).await;
    let lines: Vec<Option<Vec<&str>>> = page.lines().map(cells).collect();
    let place_in = |head: &Vec<&str>| head.iter().skip(1).position(|cell| *cell == column);
    let found_at = lines.iter().enumerate().find_map(|(line, head)| {
        let place = place_in(head.as_ref()?)? + 1;
        Some((line, place))
    });
    let (line, place) = found_at.unwrap_or_else(|| panic!("the page has no column {column}"));
    // Behind its head and the line below that.
    let rows: Vec<_> = lines[line..]
        .iter()
        .skip(2)
        .map_while(Option::as_ref)
        .collect();
    for row in &rows {
        let is_known = found.iter().any(|ability| ability.about == row[0]);
        assert!(is_known, "the page has a row that nobody tries: {}", row[0]);
    }
    let told = |about: &str| {
        let row = rows.iter().find(|row| row[0] == about);
        row.and_then(|row| row.get(place)).copied()
    };
    let differs = found
        .iter()
        .any(|ability| told(ability.about) != Some(ability.answer.as_str()));
    let right = found.iter().fold(String::new(), |mut right, ability| {
        let Ability { about, answer } = ability;
        let written = told(about).unwrap_or("nothing");
        let note = match written == answer {
            true => String::new(),
            false => format!("   <- the page says: {written}"),
        };
        let _ = writeln!(right, "| {about} | {answer} |{note}");
        right
    });
    assert!(!differs, "the column {column} should be\n{right}");
}

/// Returns the cells of a line, if it is a row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn yes_or_no(truth: bool) -> String {
    match truth {
        true => "yes".to_owned(),
        false => "no".to_owned(),
    }
}

async fn savepoints(client: &mut Client<'_>) -> String {
    client.begin().await;
    let set = client
        .connection
        .savepoint(Savepoint::Set("cenote_a"))
        .await;
    client.roll_back().await;
    yes_or_no(set.is_ok())
}

async fn isolation(client: &mut Client<'_>) -> String {
    let levels = [
        (Isolation::ReadUncommitted, "read uncommitted"),
        (Isolation::ReadCommitted, "read committed"),
        (Isolation::RepeatableRead, "repeatable read"),
        (Isolation::Serializable, "serializable"),
    ];
    let mut taken = Vec::new();
    for (level, name) in levels {
        let mut begin = Begin::default();
        begin.isolation = Some(level);
        if client.connection.begin_with(&begin, None).await.is_ok() {
            taken.push(name);
            client.roll_back().await;
        }
    }
    match taken.len() {
        0 => "none".to_owned(),
        4 => "all, or a stronger one".to_owned(),
        _ => taken.join(", "),
    }
}

async fn read_only(client: &mut Client<'_>) -> &'static str {
    let mut begin = Begin::default();
    begin.read_only = true;
    let begun = client.connection.begin_with(&begin, None).await;
    begun.expect("a read-only transaction can be begun");
    let written = client.insert(1).await;
    client.roll_back().await;
    match written {
        Ok(_) => "can write",
        Err(_) => "refuses to write",
    }
}

async fn error_in_transaction(client: &mut Client<'_>) -> &'static str {
    let Some(wrong) = failing(client.subject) else {
        return "not tried";
    };
    client.begin().await;
    client.must_not(wrong).await;
    let status = client.status();
    client.roll_back().await;
    match status {
        Status::InTransaction => "leaves it open",
        _ => "fails it; a savepoint recovers",
    }
}

/// Returns whether other connections read the old row meanwhile. Not tried where they would wait for long.
async fn is_hidden(client: &mut Client<'_>) -> bool {
    let subject = client.subject;
    if !subject.can(Lack::Isolation) {
        return false;
    }
    let mut other = Client::another(subject).await;
    client.begin().await;
    client.add(1).await;
    let seen = other.ids().await;
    client.roll_back().await;
    seen.is_empty()
}

async fn runs_scripts(subject: &Subject) -> bool {
    let mut client = Client::another(subject).await;
    let seven = &*subject.sql.seven;
    client.script(&[seven, seven]).await.is_ok()
}

async fn number(subject: &Subject) -> &'static str {
    let Some([create, insert]) = &subject.sql.numbered else {
        return "not tried";
    };
    let mut client = Client::another(subject).await;
    client.must(create).await;
    match client.must(insert).await.last_insert_id {
        Some(_) => "returned",
        None => "not returned; use RETURNING",
    }
}

async fn control(subject: &Subject) -> &'static str {
    let Some([begin, _, rollback]) = &subject.sql.control else {
        return "not tried";
    };
    let mut client = Client::another(subject).await;
    client.must(begin).await;
    let status = client.status();
    client.must(rollback).await;
    client.close().await;
    match status {
        Status::InTransaction => "detected",
        _ => "not detected: the connection is closed on release",
    }
}

async fn touched(subject: &Subject) -> &'static str {
    let mut client = Client::another(subject).await;
    let reset = client.connection.reset().await;
    client.close().await;
    match reset.expect("a session can be reset") {
        Reset::Done => "reset",
        Reset::Replace => "replaced by a new connection",
    }
}

async fn dropped(subject: &Subject) -> &'static str {
    let Some(endless) = &subject.sql.endless else {
        return "not tried";
    };
    let mut client = Client::another(subject).await;
    super::dropped::begin_endless(&mut client, endless, 2).await;
    match client.settle().await {
        true => "cancelled",
        false => "cancelled, and the connection is closed",
    }
}

async fn wrong(subject: &Subject) -> &'static str {
    let Some(wrong) = &subject.sql.syntax_error else {
        return "not tried";
    };
    let mut client = Client::another(subject).await;
    match client.connection.prepare(wrong).await {
        Err(_) => "fails when it is prepared",
        Ok(_) => "fails when it runs",
    }
}

async fn setting(subject: &Subject) -> &'static str {
    let mut client = Client::another(subject).await;
    let unknown = "cenote_no_such_setting";
    match client.connection.set(unknown, &Value::Int(1)).await {
        Err(error) if error.kind() == Kind::Unsupported => "no",
        _ => "yes",
    }
}

/// Returns the type as which values of each type come back.
async fn values(subject: &Subject) -> Vec<(&'static str, String)> {
    let about = |name| match name {
        "bools" => "`true` is read as",
        "uints" => "a number above `i64::MAX`",
        "floats" => "a float keeps its last digit",
        "decimals" => "a decimal",
        "dates" => "a date",
        "times" => "a time",
        "moments" => "a datetime",
        "stamps" => "a timestamp",
        "uuids" => "a UUID",
        "jsons" => "JSON",
        _ => "",
    };
    let mut found = Vec::new();
    let mut client = Client::another(subject).await;
    for sample in samples(subject) {
        let about = about(sample.name);
        if about.is_empty() {
            continue;
        }
        if !sample.create(&mut client).await {
            found.push((about, "refused".to_owned()));
            continue;
        }
        let sent = sample.values.last().expect("there are samples").clone();
        let got = sample.round_trip(&mut client, &sent).await;
        let answer = match &sent {
            Value::Float(_) => yes_or_no(got == sent),
            _ => got.type_name().to_owned(),
        };
        found.push((about, answer));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    fn fake() -> Subject {
        Subject::new(Fake::new().driver(), "fake:")
            .expect("the DSN is right")
            .sql(|sql| {
                sql.syntax_error = Some("FAIL 42601".into());
                sql.undefined_table = Some("FAIL 42P01".into());
                sql.types = super::super::Types::none();
            })
    }

    async fn page(change: impl Fn(&Ability) -> String) -> String {
        let found = abilities(&fake()).await;
        let rows = found
            .iter()
            .map(|ability| format!("| {} | {} |\n", ability.about, change(ability)));
        format!(
            "Words.\n\n| | Fake |\n|---|---|\n{}",
            rows.collect::<String>()
        )
    }

    #[tokio::test]
    async fn a_correct_table_passes() {
        let page = page(|ability| ability.answer.clone()).await;
        check_table(&fake(), &page, "Fake").await;
    }

    #[tokio::test]
    #[should_panic(expected = "the page says: whatever you like")]
    async fn a_wrong_cell_is_reported_with_its_expected_value() {
        let page = page(|ability| match ability.about {
            "savepoints" => "whatever you like".to_owned(),
            _ => ability.answer.clone(),
        })
        .await;
        check_table(&fake(), &page, "Fake").await;
    }

    #[tokio::test]
    #[should_panic(expected = "a row that nobody tries: it flies")]
    async fn a_row_about_an_unknown_ability_is_reported() {
        let page = page(|ability| ability.answer.clone()).await + "| it flies | yes |\n";
        check_table(&fake(), &page, "Fake").await;
    }

    #[tokio::test]
    #[should_panic(expected = "the page has no column Other")]
    async fn a_missing_column_is_reported() {
        let page = page(|ability| ability.answer.clone()).await;
        check_table(&fake(), &page, "Other").await;
    }
}
