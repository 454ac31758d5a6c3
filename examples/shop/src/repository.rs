//! The SQL of the shop. Nothing here knows whether it is in a transaction.

use cenote::{Db, named};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A product.
#[derive(Debug, Serialize, Deserialize)]
pub struct Product {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// In cents.
    pub price: i64,
    /// The number in stock.
    pub stock: i64,
}

/// A product to be added.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewProduct {
    /// Its name.
    pub name: String,
    /// In cents.
    pub price: i64,
    /// How many were delivered.
    pub stock: i64,
}

/// An order that was placed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub id: i64,
    /// The customer.
    pub customer: String,
    /// In cents.
    pub total: i64,
}

/// One product of an order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    /// Which product.
    pub product: i64,
    /// How many.
    pub quantity: i64,
}

/// All products, by number.
///
/// # Errors
///
/// A database error.
pub async fn products(db: &Db) -> Result<Vec<Product>> {
    let sql = "SELECT id, name, price, stock FROM product ORDER BY id";
    Ok(db.query_as(sql, ()).await?)
}

/// One product.
///
/// # Errors
///
/// [`Error::NotFound`]; a database error.
pub async fn product(db: &Db, id: i64) -> Result<Product> {
    let sql = "SELECT id, name, price, stock FROM product WHERE id = ?";
    let product = db.query_as_opt(sql, (id,)).await?;
    product.ok_or(Error::NotFound("product"))
}

/// Adds a product without stock and returns its number.
///
/// # Errors
///
/// [`Error::Duplicate`] if the name is taken; a database error.
pub async fn add_product(db: &Db, name: &str, price: i64) -> Result<i64> {
    let sql = "INSERT INTO product (name, price, stock) VALUES (?, ?, 0) RETURNING id";
    let id = db.query_as_one(sql, (name, price)).await;
    id.map_err(|error| match error.is_unique_violation() {
        true => Error::Duplicate("product"),
        false => error.into(),
    })
}

/// Records a delivery.
///
/// # Errors
///
/// A database error.
pub async fn note_delivery(db: &Db, product: i64, quantity: i64) -> Result<()> {
    let sql = "INSERT INTO delivery (product, quantity) VALUES (?, ?)";
    db.exec(sql, (product, quantity)).await?;
    Ok(())
}

/// Adds to the stock of a product.
///
/// # Errors
///
/// [`Error::NotFound`]; a database error.
pub async fn put_on_shelf(db: &Db, product: i64, quantity: i64) -> Result<()> {
    let sql = "UPDATE product SET stock = stock + ? WHERE id = ?";
    match db.exec(sql, (quantity, product)).await?.rows_affected {
        0 => Err(Error::NotFound("product")),
        _ => Ok(()),
    }
}

/// Removes from the stock of a product and returns the price of one.
///
/// # Errors
///
/// [`Error::OutOfStock`], [`Error::NotFound`]; a database error.
pub async fn take_from_shelf(db: &Db, line: &Line) -> Result<i64> {
    let sql = "UPDATE product SET stock = stock - :quantity
               WHERE id = :product AND stock >= :quantity RETURNING price";
    let params = named! { quantity: line.quantity, product: line.product };
    if let Some(price) = db.query_as_opt(sql, params).await? {
        return Ok(price);
    }
    // Either the stock is too small or the product does not exist.
    let id = product(db, line.product).await?.id;
    Err(Error::OutOfStock { product: id })
}

/// Creates an empty order and returns its number.
///
/// # Errors
///
/// A database error.
pub async fn add_order(db: &Db, customer: &str) -> Result<i64> {
    let sql = "INSERT INTO purchase (customer, total) VALUES (?, 0) RETURNING id";
    Ok(db.query_as_one(sql, (customer,)).await?)
}

/// Adds a product to an order, at this price for one.
///
/// # Errors
///
/// A database error.
pub async fn add_line(db: &Db, order: i64, line: &Line, price: i64) -> Result<()> {
    let sql = "INSERT INTO purchase_line (purchase, product, quantity, price) VALUES (?, ?, ?, ?)";
    db.exec(sql, (order, line.product, line.quantity, price))
        .await?;
    Ok(())
}

/// Stores the price of an order.
///
/// # Errors
///
/// A database error.
pub async fn set_total(db: &Db, order: i64, total: i64) -> Result<()> {
    let sql = "UPDATE purchase SET total = ? WHERE id = ?";
    db.exec(sql, (total, order)).await?;
    Ok(())
}

/// One order.
///
/// # Errors
///
/// [`Error::NotFound`]; a database error.
pub async fn order(db: &Db, id: i64) -> Result<Order> {
    let sql = "SELECT id, customer, total FROM purchase WHERE id = ?";
    let order = db.query_as_opt(sql, (id,)).await?;
    order.ok_or(Error::NotFound("order"))
}
