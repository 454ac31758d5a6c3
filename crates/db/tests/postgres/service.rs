//! The code of the guide's page on web services, on a real server.

use std::time::Duration;

use cenote::{Db, Error, Json, Kind, Result, Value, Violation};
use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::servers::own_tables;

#[derive(Serialize, Deserialize)]
struct Settings {
    theme: String,
}

#[derive(Serialize, Deserialize)]
struct Customer {
    id: Uuid,
    email: String,
    tags: Vec<String>,         // text[]
    settings: Settings,        // jsonb
    balance: Decimal,          // numeric
    created_at: DateTime<Utc>, // timestamptz
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    // an enum of PostgreSQL
    New,
    Paid,
    Sent,
}

impl From<State> for Value<'_> {
    fn from(state: State) -> Self {
        match state {
            State::New => "new",
            State::Paid => "paid",
            State::Sent => "sent",
        }
        .into()
    }
}

/// RETURNING gives what the database has chosen: the key, the time.
async fn add_customer(
    db: &Db,
    email: &str,
    tags: Vec<String>,
    settings: &Settings,
) -> Result<Customer> {
    db.query_as_one(
        "INSERT INTO customer (email, tags, settings) VALUES (?, ?, ?)
         RETURNING id, email, tags, settings, balance, created_at",
        (email, tags, Json(settings)),
    )
    .await
}

async fn customers_with(db: &Db, tag: &str, theme: &str) -> Result<Vec<Customer>> {
    db.query_as(
        "SELECT id, email, tags, settings, balance, created_at FROM customer
         WHERE ? = ANY(tags) AND settings ->> 'theme' = ? ORDER BY created_at",
        (tag, theme),
    )
    .await
}

async fn set_state(db: &Db, purchase: Uuid, state: State) -> Result<bool> {
    let sql = "UPDATE purchase SET state = ? WHERE id = ?";
    Ok(db.exec(sql, (state, purchase)).await?.rows_affected == 1)
}
#[derive(Serialize, Deserialize)]
struct Purchase {
    id: Uuid,
    customer: Uuid,
    total: Decimal,
    placed_at: DateTime<Utc>,
}

async fn purchases(
    db: &Db,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: i64,
) -> Result<Vec<Purchase>> {
    let columns = "SELECT id, customer, total, placed_at FROM purchase";
    match after {
        None => {
            let sql = format!("{columns} ORDER BY placed_at, id LIMIT ?");
            db.query_as(&sql, (limit,)).await
        }
        Some((placed_at, id)) => {
            let sql =
                format!("{columns} WHERE (placed_at, id) > (?, ?) ORDER BY placed_at, id LIMIT ?");
            db.query_as(&sql, (placed_at, id, limit)).await
        }
    }
}
async fn charge(db: &Db, customer: Uuid, total: Decimal) -> Result<()> {
    let sql = "UPDATE customer SET balance = balance - ? WHERE id = ?";
    match db.exec(sql, (total, customer)).await?.rows_affected {
        0 => Err(Error::other("there is no such customer")),
        _ => Ok(()), // Below zero, the CHECK of the table refuses.
    }
}

async fn add_purchase(db: &Db, customer: Uuid, total: Decimal) -> Result<Uuid> {
    let sql = "INSERT INTO purchase (customer, total) VALUES (?, ?) RETURNING id";
    db.query_scalar_one(sql, (customer, total)).await
}

async fn tag(db: &Db, customer: Uuid, tag: &str) -> Result<()> {
    let sql = "UPDATE customer SET tags = array_append(tags, ?) WHERE id = ? AND NOT ? = ANY(tags)";
    db.exec(sql, (tag, customer, tag)).await?;
    Ok(())
}

/// All three or none: an error, a panic, a time-out and a client that disconnects roll back.
async fn buy(db: &Db, customer: Uuid, total: Decimal) -> Result<Uuid> {
    db.transaction(async || {
        charge(db, customer, total).await?;
        let purchase = add_purchase(db, customer, total).await?;
        tag(db, customer, "buyer").await?;
        Ok(purchase)
    })
    .await
}

async fn service() -> Db {
    let db = own_tables(|builder| builder.max(4)).await;
    db.migrate(&cenote::migrate::embed!("docs/web_service"))
        .await
        .unwrap();
    db
}

fn dark() -> Settings {
    Settings {
        theme: "dark".into(),
    }
}

#[tokio::test]
async fn customers_have_keys_times_tags_settings_and_money() -> Result<()> {
    let db = service().await;
    let tags = vec!["new".to_owned(), "a, {b}".to_owned()];
    for run in 0..3 {
        let email = format!("ada{run}@example.com");
        let added = add_customer(&db, &email, tags.clone(), &dark()).await?;
        assert_eq!(added.tags, tags);
        assert_eq!(added.balance.to_string(), "0.00");
        let sql = "SELECT ? = created_at FROM customer WHERE id = ?";
        let same: bool = db
            .query_scalar_one(sql, (added.created_at, added.id))
            .await?;
        assert!(same, "to the microsecond");
        let found = customers_with(&db, "a, {b}", "dark").await?;
        assert_eq!(found.len(), run + 1);
        assert_eq!(
            (found[run].id, &*found[run].settings.theme),
            (added.id, "dark")
        );
        assert!(customers_with(&db, "a", "dark").await?.is_empty());
    }
    let error = add_customer(&db, "ada0@example.com", tags, &dark()).await;
    let Err(error) = error else {
        panic!("the address is taken");
    };
    assert_eq!(error.violation(), Some(Violation::Unique));
    assert_eq!(error.constraint(), Some("customer_email_key"));
    Ok(())
}

#[tokio::test]
async fn purchases_are_listed_page_by_page_and_roll_back_whole() -> Result<()> {
    let db = service().await;
    let customer = add_customer(&db, "ada@example.com", Vec::new(), &dark())
        .await?
        .id;
    let sql = "UPDATE customer SET balance = ? WHERE id = ?";
    db.exec(sql, (Decimal::new(1000, 2), customer)).await?;
    let mut bought = Vec::new();
    for _ in 0..5 {
        bought.push(buy(&db, customer, Decimal::new(150, 2)).await?);
    }
    assert!(set_state(&db, bought[0], State::Sent).await?);
    let sql = "SELECT state FROM purchase WHERE id = ?";
    let state: State = db.query_scalar_one(sql, (bought[0],)).await?;
    assert_eq!(state, State::Sent);
    assert!(!set_state(&db, Uuid::nil(), State::Paid).await?);

    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = purchases(&db, after, 2).await?;
        let Some(last) = page.last() else {
            break;
        };
        assert!(
            page.iter()
                .all(|one| one.customer == customer && one.total == Decimal::new(150, 2))
        );
        after = Some((last.placed_at, last.id));
        listed.extend(page.iter().map(|one| one.id));
    }
    assert_eq!(listed, bought);

    // 2.50 are left.
    let error = buy(&db, customer, Decimal::new(300, 2)).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Check));
    let error = buy(&db, Uuid::nil(), Decimal::ONE).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Other);
    let tags: Vec<String> = db.query_scalar_one("SELECT tags FROM customer", ()).await?;
    assert_eq!(tags, ["buyer"], "once");
    let count: i64 = db
        .query_scalar_one("SELECT count(*) FROM purchase", ())
        .await?;
    assert_eq!(count, 5);
    db.close_and_drain(Duration::from_secs(15)).await
}
