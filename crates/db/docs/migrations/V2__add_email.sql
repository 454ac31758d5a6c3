ALTER TABLE customer ADD email TEXT;
CREATE INDEX customer_email ON customer (email);
