CREATE TABLE customer (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL
);
