//! Calls of a sandbox that are dropped at each of their awaits.

use cenote::Sandbox;
use cenote_testkit::poll::drop_after;

use crate::EmptyDatabase;
use crate::{add, names, on_every_database, with_table};

on_every_database! {
    call_dropped_at_every_poll_leaves_nothing_half_done,
    sandbox_dropped_at_every_poll_leaves_nothing,
}

/// Returns whether the sandbox goes on. MySQL's driver closes a connection with a dropped call; then the sandbox says so.
async fn goes_on(sandbox: &Sandbox) -> bool {
    let probe = sandbox.db().query("SELECT 1", ()).await;
    if let Err(error) = &probe {
        assert_eq!(sandbox.db().driver_name(), "mysql", "{error}");
        let says = format!("{error} {:?}", std::error::Error::source(error));
        assert!(says.contains("the sandbox is over"), "{says}");
    }
    probe.is_ok()
}

async fn call_dropped_at_every_poll_leaves_nothing_half_done(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let mut sandbox = database.builder().sandbox().await.unwrap();
    let mut polls = 0;
    loop {
        let db = sandbox.db();
        let before = names(db).await.len();
        let work = async {
            db.transaction(async || {
                add(db, &format!("a {polls}")).await?;
                db.transaction(async || add(db, &format!("b {polls}")).await)
                    .await?;
                // A failed statement, so that its rollback is dropped, too.
                let failed = db.transaction(async || add(db, "first").await).await;
                assert!(failed.is_err());
                Ok(())
            })
            .await?;
            add(db, &format!("c {polls}")).await?;
            assert!(add(db, "first").await.is_err());
            cenote::scope(async {
                let mut stream = db.stream("SELECT name FROM item", ()).await?;
                while stream.try_next().await?.is_some() {}
                Ok::<_, cenote::Error>(())
            })
            .await
        };
        let done = drop_after(polls, work).await;
        if !goes_on(&sandbox).await {
            drop(sandbox);
            sandbox = database.builder().sandbox().await.unwrap();
        } else {
            // The transaction is there as a whole, or not at all.
            let new = names(sandbox.db()).await.len() - before;
            assert!([0, 2, 3].contains(&new), "{new} after {polls} polls");
        }
        if let Some(done) = done {
            done.unwrap();
            break;
        }
        polls += 1;
    }
    assert!(polls > 2, "{polls}");
    sandbox.finish().await.unwrap();
    assert_eq!(names(&outside).await, ["first"]);
}

async fn sandbox_dropped_at_every_poll_leaves_nothing(database: EmptyDatabase) {
    let outside = with_table(&database).await;
    let mut polls = 0;
    let test = async |name: String| {
        let sandbox = database.builder().sandbox().await?;
        add(sandbox.db(), &name).await?;
        sandbox.finish().await
    };
    while drop_after(polls, test(format!("test {polls}")))
        .await
        .is_none()
    {
        polls += 1;
    }
    // On a busy machine an answer may be there at the first poll after its request.
    assert!(polls > 1, "{polls}");
    // No lock is left: SQLite would refuse, the others wait.
    add(&outside, "test 3").await.unwrap();
    assert_eq!(names(&outside).await, ["first", "test 3"]);
    let lost = database.builder().sandbox().await;
    assert!(lost.is_ok_and(|sandbox| sandbox.db().status().total == 1));
}
