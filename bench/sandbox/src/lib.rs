//! 500 tests in sandboxes: see `bench/sandbox.sh`.

#[cfg(test)]
mod tests {
    include!(concat!(env!("OUT_DIR"), "/tests.rs"));
}

/// Opens a sandbox over a schema that the first test migrates.
#[cfg(test)]
async fn in_sandbox(n: i64) {
    use cenote::Db;
    static MIGRATED: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let dsn = std::env::var("CENOTE_BENCH_DSN").expect("bench/sandbox.sh sets it");
    let migrate = async || {
        let db = Db::open(&dsn).await?;
        db.migrate(&cenote::migrate::embed!("migrations")).await?;
        db.close().await
    };
    MIGRATED.get_or_try_init(migrate).await.expect("migrate");
    let sandbox = Db::builder(&dsn).sandbox().await.expect("sandbox");
    order(sandbox.db(), n).await.expect("order");
    sandbox.finish().await.expect("finish");
}

/// Does what the tests of `bench/sandbox-sqlx` do.
#[cfg(test)]
async fn order(db: &cenote::Db, n: i64) -> cenote::Result<()> {
    db.transaction(async || {
        for name in [format!("a {n}"), format!("b {n}")] {
            db.exec("INSERT INTO item_1 (name) VALUES ($1)", (name,)).await?;
        }
        Ok(())
    })
    .await?;
    let count: i64 = db.query_as_one("SELECT count(*) FROM item_1", ()).await?;
    assert_eq!(count, 2);
    Ok(())
}
