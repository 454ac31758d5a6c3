INSERT INTO product (name, price, stock) VALUES ('lamp', 4900, 100), ('rope', 1250, 100), ('map', 800, 100);
INSERT INTO delivery (product, quantity) SELECT id, stock FROM product;
