CREATE TYPE purchase_state AS ENUM ('new', 'paid', 'sent');
CREATE TABLE customer (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    email      text        NOT NULL UNIQUE,
    tags       text[]      NOT NULL DEFAULT '{}',
    settings   jsonb       NOT NULL DEFAULT '{}',
    balance    numeric(12, 2) NOT NULL DEFAULT 0 CHECK (balance >= 0),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE purchase (
    id        uuid           PRIMARY KEY DEFAULT gen_random_uuid(),
    customer  uuid           NOT NULL REFERENCES customer,
    state     purchase_state NOT NULL DEFAULT 'new',
    total     numeric(12, 2) NOT NULL,
    placed_at timestamptz    NOT NULL DEFAULT now()
);
CREATE INDEX purchase_by_time ON purchase (placed_at, id);
