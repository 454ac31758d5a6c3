//! The examples of the guide's page on notifications, line by line.

use std::collections::HashMap;
use std::sync::Mutex;

use cenote::listen::Event;
use cenote::{Db, Result};

use super::support::*;
use crate::servers::{kill, own_tables, soon, until};

async fn keep_fresh(db: &Db, mut changed: impl FnMut(&HashMap<i64, String>)) -> Result<()> {
    // Listen first, then load: a change in between may arrive twice, but is never missed.
    let mut listener = db.listen(["product"]).await?;
    let load = async || -> Result<HashMap<i64, String>> {
        let all: Vec<(i64, String)> = db.query_as("SELECT id, name FROM product", ()).await?;
        Ok(all.into_iter().collect())
    };
    let mut cache = load().await?;
    changed(&cache);
    while let Some(event) = listener.try_next().await? {
        match event {
            Event::Notification { payload, .. } => {
                let id: i64 = payload.parse().map_err(cenote::Error::other)?;
                let sql = "SELECT name FROM product WHERE id = ?";
                match db.query_as_opt::<String>(sql, (id,)).await? {
                    Some(name) => cache.insert(id, name),
                    None => cache.remove(&id),
                };
            }
            // Also a `Gap`: anything may have changed.
            _ => cache = load().await?,
        }
        changed(&cache);
    }
    Ok(())
}

async fn work(db: &Db, run: impl AsyncFn(String) -> Result<()>) -> Result<()> {
    let mut listener = db.listen(["job"]).await?;
    loop {
        // One transaction for each job: the commit deletes the job if `run` succeeds; otherwise the job stays.
        let take = async || {
            let sql = "DELETE FROM job WHERE id = (SELECT id FROM job ORDER BY id
                       FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING task";
            match db.query_as_opt::<String>(sql, ()).await? {
                Some(task) => run(task).await.map(|()| true),
                None => Ok(false),
            }
        };
        while db.transaction(take).await? {}
        if listener.try_next().await?.is_none() {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn cache_of_the_guide_stays_fresh_over_a_loss() {
    let db = own_tables(|builder| builder.max(2)).await;
    let set_up = "CREATE TABLE product (id int8 PRIMARY KEY, name text); \
                  INSERT INTO product VALUES (1, 'one')";
    db.exec(set_up, ()).await.unwrap();
    let seen = Mutex::new(HashMap::new());
    let fresh = keep_fresh(&db, |cache| *seen.lock().unwrap() = cache.clone());
    let is = async |expected: &[(i64, &str)]| {
        let expected: HashMap<i64, String> = expected
            .iter()
            .map(|(id, name)| (*id, (*name).to_owned()))
            .collect();
        until("the cache is fresh", async || {
            *seen.lock().unwrap() == expected
        })
        .await;
    };
    let change = async {
        is(&[(1, "one")]).await;
        db.exec(
            "INSERT INTO product VALUES (2, 'two'); NOTIFY product, '2'",
            (),
        )
        .await
        .unwrap();
        is(&[(1, "one"), (2, "two")]).await;
        db.exec("DELETE FROM product WHERE id = 1; NOTIFY product, '1'", ())
            .await
            .unwrap();
        is(&[(2, "two")]).await;
        // No notification of this change arrives, but a Gap follows it.
        db.exec("INSERT INTO product VALUES (3, 'three')", ())
            .await
            .unwrap();
        kill(&db, backend(&db)).await;
        is(&[(2, "two"), (3, "three")]).await;
        db.close().await.unwrap();
    };
    let (ended, ()) = soon("it ends", async { tokio::join!(fresh, change) }).await;
    assert_eq!(ended.unwrap_err().kind(), cenote::Kind::Closed);
}

#[tokio::test]
async fn queue_of_the_guide_runs_each_job_once() {
    let db = own_tables(|builder| builder.max(8)).await;
    let set_up = "CREATE TABLE job (id int8 GENERATED ALWAYS AS IDENTITY, task text)";
    db.exec(set_up, ()).await.unwrap();
    let done = Mutex::new(Vec::new());
    let worker = || {
        work(&db, async |task: String| {
            done.lock().unwrap().push(task);
            Ok(())
        })
    };
    let add = async {
        for n in 0..60 {
            let sql = "INSERT INTO job (task) VALUES (?)";
            db.transaction(async || {
                db.exec(sql, (n.to_string(),)).await?;
                db.exec("NOTIFY job", ()).await.map(drop)
            })
            .await
            .unwrap();
            if n % 20 == 10
                && let Some(status) = db.listen_status()
                && let Some(backend) = status.process_id
            {
                kill(&db, backend.into()).await;
            }
        }
        until("all jobs are done", async || {
            done.lock().unwrap().len() >= 60
        })
        .await;
        db.close().await.unwrap();
    };
    let all = async { tokio::join!(worker(), worker(), worker(), add) };
    let (first, second, third, ()) = soon("it ends", all).await;
    for ended in [first, second, third] {
        assert_eq!(ended.unwrap_err().kind(), cenote::Kind::Closed);
    }
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|task| task.parse::<i32>().unwrap());
    let expected: Vec<_> = (0..60).map(|n| n.to_string()).collect();
    assert_eq!(done, expected);
}
