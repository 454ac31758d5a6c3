//! Through PgBouncer the unnamed statement of a session may be another client's.

use cenote::Db;
use cenote::postgres::param;
use tokio::task::JoinSet;

use crate::servers::{required_variable, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_parameters_never_run_another_clients_statement() {
    let dsn = required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER");
    let db = Db::builder(&dsn)
        .statement_cache(0)
        .max(12)
        .open()
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for own in 0..12_i64 {
        let db = db.clone();
        tasks.spawn(cenote::scope(async move {
            let sql = format!("SELECT cardinality(?::int[]) + {own}");
            for _ in 0..40 {
                let got: i64 = db.query_as_one(&sql, (param(vec![0_i32; 1000]),)).await?;
                assert_eq!(got, 1000 + own, "the answer to somebody else's statement");
            }
            Ok::<_, cenote::Error>(())
        }));
    }
    soon("all tasks end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    })
    .await;
}
