CREATE TABLE product (
    id    int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL UNIQUE,
    price int8 NOT NULL CHECK (price >= 0), -- in cents
    stock int8 NOT NULL CHECK (stock >= 0)
);
CREATE TABLE purchase (
    id       int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    total    int8 NOT NULL
);
CREATE TABLE purchase_line (
    purchase int8 NOT NULL REFERENCES purchase,
    product  int8 NOT NULL REFERENCES product,
    quantity int8 NOT NULL CHECK (quantity > 0),
    price    int8 NOT NULL,
    PRIMARY KEY (purchase, product)
);
CREATE TABLE delivery (
    product  int8 NOT NULL REFERENCES product,
    quantity int8 NOT NULL CHECK (quantity > 0)
);
