//! 500 tests by `#[sqlx::test]`: see `bench/sandbox.sh`.

#[cfg(test)]
#[allow(unused_braces)]
mod tests {
    include!(concat!(env!("OUT_DIR"), "/tests.rs"));
}

/// Does what the tests of `bench/sandbox` do.
#[cfg(test)]
async fn order(pool: &sqlx::PgPool, n: i64) {
    let mut tx = pool.begin().await.expect("begin");
    for name in [format!("a {n}"), format!("b {n}")] {
        sqlx::query("INSERT INTO item_1 (name) VALUES ($1)")
            .bind(name)
            .execute(&mut *tx)
            .await
            .expect("insert");
    }
    tx.commit().await.expect("commit");
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM item_1")
        .fetch_one(pool)
        .await
        .expect("count");
    assert_eq!(count, 2);
}
