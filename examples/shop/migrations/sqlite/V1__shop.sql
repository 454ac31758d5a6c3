-- IF NOT EXISTS, because older versions of the shop created the tables without migrations.
CREATE TABLE IF NOT EXISTS product (
    id    INTEGER PRIMARY KEY,
    name  TEXT    NOT NULL UNIQUE,
    price INTEGER NOT NULL CHECK (price >= 0), -- in cents
    stock INTEGER NOT NULL CHECK (stock >= 0)
);
CREATE TABLE IF NOT EXISTS purchase (
    id       INTEGER PRIMARY KEY,
    customer TEXT    NOT NULL,
    total    INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS purchase_line (
    purchase INTEGER NOT NULL REFERENCES purchase,
    product  INTEGER NOT NULL REFERENCES product,
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    price    INTEGER NOT NULL,
    PRIMARY KEY (purchase, product)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS delivery (
    product  INTEGER NOT NULL REFERENCES product,
    quantity INTEGER NOT NULL CHECK (quantity > 0)
);
