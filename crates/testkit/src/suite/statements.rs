//! Promises about running, preparing and caching statements.

use cenote::driver::{Request, Status};

use super::client::{Client, record, row};
use super::status::failing;
use super::{Lack, Subject};

/// The outcome has the number of inserted or deleted rows.
pub async fn affected_rows_are_counted(subject: &Subject) {
    let mut client = Client::first(subject).await;
    for id in 1..=3 {
        client.add(id).await;
    }
    let done = client.must(&subject.sql.delete).await;
    assert_eq!(done.rows_affected, 3);
    let done = client.must(&subject.sql.delete).await;
    assert_eq!(done.rows_affected, 0);
}

/// A request that wants no rows gets none.
pub async fn rows_that_are_not_wanted_are_not_given(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.add(1).await;
    let mut request = Request::new(&subject.sql.select, &[]);
    request.rows = false;
    let done = client.connection.run(request).await;
    assert!(done.expect("a query can be run").rows.is_none());
    client.is_usable().await;
}

/// A query without rows has its columns.
pub async fn an_empty_result_has_its_columns(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let done = client.must(&subject.sql.select).await;
    let rows = done.rows.expect("a query has rows, be there none");
    assert_eq!((rows.len(), rows.columns().len()), (0, 2));
    check_names(rows.columns());
}

fn check_names(columns: &cenote::Columns) {
    let names: Vec<_> = columns
        .as_slice()
        .iter()
        .map(|column| &column.name)
        .collect();
    assert!(
        names
            .iter()
            .zip(["id", "name"])
            .all(|(name, wanted)| name.eq_ignore_ascii_case(wanted)),
        "the columns are called {names:?}"
    );
}

/// The affected rows of all sets of a batch are added up.
pub async fn a_batch_adds_up_its_affected_rows(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let sets: Vec<_> = (1..=30).map(row).collect();
    let done = client.connection.run_batch(&insert, &sets).await;
    assert_eq!(done.expect("a batch can be run").rows_affected, 30);
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, (1..=30).collect::<Vec<_>>());
}

/// A batch of queries returns the rows of all sets.
pub async fn a_batch_returns_the_rows_of_all_sets(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=3).await;
    let select = client.text(&subject.sql.select).into_owned();
    let done = client
        .connection
        .query_batch(&select, &[vec![], vec![]])
        .await;
    let rows = done.expect("a query can be run for each set");
    let count: usize = rows.iter().map(cenote::driver::Batch::len).sum();
    assert_eq!(count, 6);
    assert_eq!(client.status(), Status::Idle);
}

/// A batch without sets is no error.
pub async fn a_batch_of_nothing_does_nothing(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let done = client.connection.run_batch(&insert, &[]).await;
    assert_eq!(done.expect("there is nothing to fail").rows_affected, 0);
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, [0; 0]);
}

/// A batch stops at the first error, which names the set. Outside of a transaction no set takes effect. In a transaction
/// the status is known then, and it can be rolled back.
pub async fn a_batch_stops_at_the_first_error(subject: &Subject) {
    if !subject.can(Lack::Constraints) {
        return;
    }
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let sets: Vec<_> = [1, 2, 1, 3].map(row).into();
    let done = client.connection.run_batch(&insert, &sets).await;
    let error = done.expect_err("a key is there twice");
    assert!(error.is_unique_violation(), "{error}");
    assert_eq!(error.set_index(), Some(2), "{error}");
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, [0; 0], "all sets, or none");
    let done = client.connection.query_batch(&insert, &sets).await;
    let error = done.expect_err("a key is there twice");
    assert_eq!(error.set_index(), Some(2), "{error}");
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, [0; 0], "all sets, or none");

    client.begin().await;
    let done = client.connection.run_batch(&insert, &sets).await;
    done.expect_err("a key is there twice");
    assert_ne!(client.status(), Status::Unknown);
    client.roll_back().await;
    assert_eq!(client.ids().await, [0; 0]);
}

/// Preparing returns the number of parameters and the columns, and does not run the statement.
pub async fn prepare_returns_parameters_and_columns(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let insert = client.text(&subject.sql.insert).into_owned();
    let prepared = client.connection.prepare(&insert).await;
    let prepared = prepared.expect("an insert can be prepared");
    assert_eq!((prepared.params, prepared.columns.len()), (2, 0));
    let prepared = client.connection.prepare(&subject.sql.select).await;
    let prepared = prepared.expect("a query can be prepared");
    assert_eq!((prepared.params, prepared.columns.len()), (0, 2));
    check_names(&prepared.columns);
    assert_eq!(client.status(), Status::Idle);
    assert_eq!(client.ids().await, [0; 0]);
}

/// A cached statement does the same as an uncached one, with other parameters each time.
pub async fn a_statement_can_be_run_again_and_again(subject: &Subject) {
    let mut client = Client::first(subject).await;
    for id in 1..=40 {
        client.add(id).await;
        assert_eq!(client.records().await.last(), Some(&record(id)));
    }
    if subject.can(Lack::Constraints) {
        // An error does not stay in the cache.
        client
            .insert(1)
            .await
            .expect_err("the key is there already");
        client.add(41).await;
    }
}

/// Returns texts that mean the same to the database and differ for a cache.
fn variants(sql: &str, how_many: usize) -> impl Iterator<Item = String> {
    (0..how_many).map(move |n| format!("{sql}{}", " ".repeat(n)))
}

/// With more statements than the cache holds, evicted ones are prepared again and work.
pub async fn more_statements_than_the_cache_holds_are_fine(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.close().await;
    client = Client::with_cache(subject, 2).await;
    run_variants(&mut client).await;
}

/// Without a cache all statements work the same.
pub async fn a_connection_without_a_cache_is_fine(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.close().await;
    client = Client::with_cache(subject, 0).await;
    run_variants(&mut client).await;
    let insert = client.text(&client.subject.sql.insert).into_owned();
    client
        .connection
        .prepare(&insert)
        .await
        .expect("it can be prepared");
    client.add(100).await;
}

async fn run_variants(client: &mut Client<'_>) {
    let subject = client.subject;
    let mut ids = Vec::new();
    for _round in 0..3 {
        for (insert, select) in
            variants(&subject.sql.insert, 6).zip(variants(&subject.sql.select, 6))
        {
            let id = i64::try_from(ids.len()).expect("there are few") + 1;
            let done = client.run(&insert, &row(id)).await;
            assert_eq!(done.expect("a row can be inserted").rows_affected, 1);
            ids.push(id);
            let rows = client.must(&select).await.rows;
            assert_eq!(rows.map(|rows| rows.len()), Some(ids.len()));
        }
    }
    assert_eq!(client.ids().await, ids);
}

/// A cached statement whose table was changed by another connection works as if it were new.
pub async fn a_cached_statement_survives_a_change_of_its_table(subject: &Subject) {
    let Some(add_column) = &subject.sql.add_column else {
        return;
    };
    let mut client = Client::first(subject).await;
    let mut other = Client::another(subject).await;
    let all = "SELECT * FROM cenote_suite";
    for _ in 0..3 {
        client.must(all).await;
        client.ids().await;
    }
    client.add(1).await;
    other.must(add_column).await;
    for _ in 0..2 {
        let rows = client.must(all).await.rows.expect("a query has rows");
        assert_eq!((rows.len(), rows.columns().len()), (1, 3));
        assert_eq!(client.ids().await, [1]);
    }
}

/// The statements of a script are run one after the other.
pub async fn a_script_runs_from_first_to_last(subject: &Subject) {
    if !subject.can(Lack::Scripts) {
        return;
    }
    let mut client = Client::first(subject).await;
    client.fill(1..=3).await;
    let (select, delete, seven) = (&subject.sql.select, &subject.sql.delete, &subject.sql.seven);
    let done = client.script(&[select, delete, seven]).await;
    done.expect("a script can be run");
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
    assert_eq!(client.ids().await, [0; 0]);
    if let Some([begin, commit, _]) = &subject.sql.control {
        client
            .script(&[seven, begin, seven])
            .await
            .expect("a script can be run");
        if !subject.can(Lack::Control) {
            assert_eq!(client.status(), Status::Unknown, "nobody can tell");
            return;
        }
        assert_eq!(client.status(), Status::InTransaction);
        client.add(1).await;
        client
            .script(&[seven, commit])
            .await
            .expect("a script can be run");
        assert_eq!(client.status(), Status::Idle);
        assert_eq!(client.ids().await, [1]);
    }
}

/// After an error nothing more of a script is run.
pub async fn a_script_stops_at_the_first_error(subject: &Subject) {
    let Some(wrong) = failing(subject).filter(|_| subject.can(Lack::Scripts)) else {
        return;
    };
    let mut client = Client::first(subject).await;
    client.fill(1..=3).await;
    let done = client
        .script(&[&subject.sql.seven, wrong, &subject.sql.delete])
        .await;
    done.expect_err("the second statement fails");
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
    assert_eq!(client.ids().await, [1, 2, 3]);
}
