-- An empty shop gets a few products.
INSERT INTO product (name, price, stock)
SELECT name, price, 100
FROM (SELECT 1 AS n, 'lamp' AS name, 4900 AS price UNION ALL SELECT 2, 'rope', 1250 UNION ALL SELECT 3, 'map', 800)
WHERE NOT EXISTS (SELECT 1 FROM product)
ORDER BY n;

INSERT INTO delivery (product, quantity)
SELECT id, stock FROM product WHERE NOT EXISTS (SELECT 1 FROM delivery);
