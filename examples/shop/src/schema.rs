//! The tables.

use cenote::Db;

/// Makes the tables, and puts a few products on the shelf of an empty shop.
///
/// # Errors
///
/// What the database says.
pub async fn set_up(db: &Db) -> cenote::Result<()> {
    db.transaction(async || {
        db.exec(
            "CREATE TABLE IF NOT EXISTS product (
                 id    INTEGER PRIMARY KEY,
                 name  TEXT    NOT NULL UNIQUE,
                 price INTEGER NOT NULL CHECK (price >= 0), -- in cents
                 stock INTEGER NOT NULL CHECK (stock >= 0)
             )",
            (),
        )
        .await?;
        db.exec(
            "CREATE TABLE IF NOT EXISTS purchase (
                 id       INTEGER PRIMARY KEY,
                 customer TEXT    NOT NULL,
                 total    INTEGER NOT NULL
             )",
            (),
        )
        .await?;
        db.exec(
            "CREATE TABLE IF NOT EXISTS purchase_line (
                 purchase INTEGER NOT NULL REFERENCES purchase,
                 product  INTEGER NOT NULL REFERENCES product,
                 quantity INTEGER NOT NULL CHECK (quantity > 0),
                 price    INTEGER NOT NULL,
                 PRIMARY KEY (purchase, product)
             ) WITHOUT ROWID",
            (),
        )
        .await?;
        db.exec(
            "CREATE TABLE IF NOT EXISTS delivery (
                 product  INTEGER NOT NULL REFERENCES product,
                 quantity INTEGER NOT NULL CHECK (quantity > 0)
             )",
            (),
        )
        .await?;
        let products: i64 = db.query_as_one("SELECT count(*) FROM product", ()).await?;
        if products == 0 {
            let shelf = [
                (1, "lamp", 4900, 100),
                (2, "rope", 1250, 100),
                (3, "map", 800, 100),
            ];
            db.exec_many(
                "INSERT INTO product (id, name, price, stock) VALUES (?, ?, ?, ?)",
                shelf,
            )
            .await?;
            db.exec("INSERT INTO delivery SELECT id, stock FROM product", ())
                .await?;
        }
        Ok(())
    })
    .await
}
