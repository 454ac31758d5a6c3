//! Promises about pipelines: several statements at once, each with its own result.

use cenote::driver::{Outcome, Param, Request, Status};
use cenote::{Kind, Result};

use super::Subject;
use super::client::{Client, at_every_poll, is_answered, row, value};
use super::status::failing;

/// Inserts, queries and a failing statement of a pipeline.
struct Texts {
    insert: String,
    select: String,
}

impl Texts {
    fn of(client: &Client<'_>) -> Self {
        Texts {
            insert: client.text(&client.subject.sql.insert).into_owned(),
            select: client.subject.sql.select.clone(),
        }
    }

    fn insert<'t>(&'t self, params: &'t [Param<'t>]) -> Request<'t> {
        let mut request = Request::new(&self.insert, params);
        request.rows = false;
        request
    }

    fn select(&self) -> Request<'_> {
        Request::new(&self.select, &[])
    }
}

/// Returns the number of rows of a query in a pipeline.
fn rows(result: &Result<Outcome>) -> usize {
    let outcome = result.as_ref().expect("a query can be run");
    outcome.rows.as_ref().expect("it has rows").len()
}

/// The statements run in order, and each has its own result: also the same text several times.
pub async fn each_statement_of_a_pipeline_has_its_own_result(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let texts = Texts::of(&client);
    for round in 0..3 {
        let (one, two) = (row(10 * round + 1), row(10 * round + 2));
        let requests = [
            texts.select(),
            texts.insert(&one),
            texts.select(),
            texts.insert(&two),
            texts.select(),
        ];
        let done = client.connection.run_pipeline(&requests, false).await;
        let results = done.expect("a pipeline can be run");
        assert_eq!(results.len(), 5);
        let before = usize::try_from(2 * round).expect("it is small");
        assert_eq!(rows(&results[0]), before);
        assert_eq!(rows(&results[2]), before + 1);
        assert_eq!(rows(&results[4]), before + 2);
        for insert in [&results[1], &results[3]] {
            let done = insert.as_ref().expect("a row can be inserted");
            assert_eq!(done.rows_affected, 1);
        }
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
    assert_eq!(client.ids().await, [1, 2, 11, 12, 21, 22]);
    let none = client.connection.run_pipeline(&[], false).await;
    assert!(none.expect("there is nothing to fail").is_empty());
}

/// Outside of a transaction an error concerns its own statement, also one of the client.
pub async fn an_error_in_a_pipeline_is_of_its_statement_alone(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::first(subject).await;
    let texts = Texts::of(&client);
    for round in 0..3 {
        let (one, two) = (row(10 * round + 1), row(10 * round + 2));
        // A text with too few parameters.
        let few = [value(7)];
        let requests = [
            texts.insert(&one),
            Request::new(wrong, &[]),
            texts.insert(&few),
            texts.insert(&two),
            texts.select(),
        ];
        let done = client.connection.run_pipeline(&requests, false).await;
        let results = done.expect("a pipeline can be run");
        let succeeded: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(succeeded, [true, false, false, true, true]);
        let error = results[1].as_ref().expect_err("it has failed");
        assert_eq!(error.kind(), Kind::Database, "{error}");
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
    assert_eq!(client.ids().await, [1, 2, 11, 12, 21, 22]);
}

/// In a transaction nothing runs behind an error, and the transaction can be rolled back.
pub async fn a_pipeline_stops_at_an_error_if_it_shall(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::first(subject).await;
    let texts = Texts::of(&client);
    for round in 0..3 {
        let (one, two) = (row(10 * round + 1), row(10 * round + 2));
        client.begin().await;
        let requests = [
            texts.insert(&one),
            Request::new(wrong, &[]),
            texts.insert(&two),
            texts.select(),
        ];
        let done = client.connection.run_pipeline(&requests, true).await;
        let results = done.expect("a pipeline can be run");
        let succeeded: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(succeeded, [true, false], "the rest has no result");
        assert_ne!(client.status(), Status::Unknown);
        if client.status() == Status::InTransaction {
            assert_eq!(client.ids().await, [10 * round + 1]);
        }
        client.roll_back().await;
        assert_eq!(client.ids().await, [0; 0]);

        client.begin().await;
        let requests = [texts.insert(&one), texts.select(), texts.insert(&two)];
        let done = client.connection.run_pipeline(&requests, true).await;
        let results = done.expect("a pipeline can be run");
        assert_eq!(rows(&results[1]), 1);
        assert!(results.iter().all(Result::is_ok) && results.len() == 3);
        assert_eq!(client.status(), Status::InTransaction);
        client.roll_back().await;
        client.is_usable().await;
    }
}

/// Of a dropped pipeline each statement has run or not; a later call sees nothing else of it.
pub async fn a_dropped_pipeline_leaves_nothing_but_its_effect(subject: &Subject) {
    let mut client = Client::first(subject).await;
    let texts = Texts::of(&client);
    for begins in [false, true] {
        at_every_poll(async |polls| {
            if begins {
                client.begin().await;
            }
            let sets: Vec<_> = (1..=5).map(row).collect();
            let mut requests: Vec<_> = sets.iter().map(|set| texts.insert(set)).collect();
            requests.insert(2, texts.select());
            let pipeline = client.connection.run_pipeline(&requests, begins);
            let answered = is_answered(polls, pipeline).await;
            let is_whole = answered || client.settle().await;
            let expected = match begins && is_whole {
                true => Status::InTransaction,
                false => Status::Idle,
            };
            let failed = client.status() == Status::Failed && begins && !answered;
            assert!(
                client.status() == expected || failed,
                "{:?}",
                client.status()
            );
            if begins && is_whole {
                client.roll_back().await;
            }
            client.is_usable().await;
            let ids = client.ids().await;
            match begins {
                true => assert_eq!(ids, [0; 0], "it was rolled back"),
                false => assert!(ids.len() == 5 || !answered, "what was answered was done"),
            }
            client.must(&subject.sql.delete).await;
            answered
        })
        .await;
    }
}
