use super::*;

const SHOP: &str = "\
# Nine reads for each order.
param id     = 1 .. 100_000
param status = 'open', 'it''s', 3, 2.5

statement weight 9
    SELECT name FROM product
    WHERE id = :id

transaction
    UPDATE product SET stock = stock - 1 WHERE id = :id;
    INSERT INTO orders (product, status)
        VALUES (:id, :status);
";

fn read(text: &str) -> Workload {
    Workload::parse("shop.work", text).unwrap()
}

#[test]
fn file_has_weights_ranges_lists_and_transactions() {
    let shop = read(SHOP);
    let [select, order] = &shop.operations[..] else {
        panic!("{shop:?}");
    };
    assert_eq!(
        (select.line, select.weight, select.is_transaction),
        (5, 9, false)
    );
    assert_eq!(
        select.statements[0].sql,
        "SELECT name FROM product\nWHERE id = :id"
    );
    assert_eq!(
        (order.line, order.weight, order.is_transaction),
        (9, 1, true)
    );
    let lines: Vec<usize> = order.statements.iter().map(|it| it.line).collect();
    assert_eq!(lines, [10, 11]);
    assert!(order.statements.iter().all(|it| !it.sql.contains(';')));
}

#[test]
fn operations_are_drawn_by_their_weights() {
    let shop = read(SHOP);
    let mut random = Rng::with_seed(7);
    let orders = (0..10_000).filter(|_| shop.draw(&mut random).0.is_transaction);
    let orders = orders.count();
    assert!((850..1150).contains(&orders), "{orders}");
}

#[test]
fn values_stay_in_their_range_and_list() {
    let shop = read(SHOP);
    let mut random = Rng::with_seed(7);
    let mut texts = std::collections::HashSet::new();
    for _ in 0..1_000 {
        let (_, drawn) = shop.draw(&mut random);
        assert!(matches!(drawn[0], Value::Int(1..=100_000)), "{drawn:?}");
        texts.insert(format!("{:?}", drawn[1]));
    }
    assert_eq!(texts.len(), 4, "{texts:?}");
    let one = read("param a = 5 .. 5\nstatement\n  SELECT :a");
    assert_eq!(one.draw(&mut random).1, [Value::Int(5)]);
}

#[test]
fn every_mistake_has_its_line_and_what_to_do() {
    for (text, says) in [
        ("", "shop.work: it has no statement"),
        ("# only a comment", "shop.work: it has no statement"),
        ("SELECT 1", "shop.work:1: SQL is indented"),
        (
            "statment\n  SELECT 1",
            "shop.work:1: 'statment' is no beginning",
        ),
        ("  SELECT 1", "shop.work:1: indented SQL needs"),
        ("statement\n", "shop.work:1: the statement has no SQL"),
        (
            "statement weight 0\n  SELECT 1",
            "shop.work:1: after the word comes",
        ),
        (
            "statement wieght 3\n  SELECT 1",
            "shop.work:1: after the word comes",
        ),
        (
            "statement\n  SELECT 1;\n  SELECT 2",
            "shop.work:3: a second statement begins here",
        ),
        (
            "statement\n  SELECT a\n  FROM b WHERE c = :c",
            "shop.work:3: :c has no values; add a line 'param c",
        ),
        (
            "statement\n  SELECT ?",
            "shop.work:2: parameters have names",
        ),
        ("statement\n  BEGIN", "shop.work:2: BEGIN does not fit here"),
        ("transaction\n  COMMIT", "shop.work:2: COMMIT is not needed"),
        ("transaction\n  ;", "shop.work:2: a semicolon without"),
        (
            "param a = 1 .. 2\nstatement\n  SELECT 1",
            "shop.work:1: no statement uses :a",
        ),
        (
            "param a = 1 .. 2\nparam a = 3",
            "shop.work:2: param a is given twice, first in line 1",
        ),
        ("param a", "shop.work:1: a param is"),
        ("param 1a = 3", "shop.work:1: the name of a param"),
        (
            "param a = 2 .. 1",
            "shop.work:1: the range is empty: 2 is more than 1",
        ),
        ("param a = 1 .. x", "shop.work:1: 'x' is no whole number"),
        (
            "param a = x",
            "shop.work:1: 'x' is no number; texts stand in single quotes",
        ),
        ("param a = 1,", "shop.work:1: a value is missing"),
        ("param a = 'x", "shop.work:1: a text has no closing quote"),
        ("param a = 'x' 'y'", "shop.work:1: between two values"),
        ("param a = NaN", "shop.work:1: 'NaN' is no number"),
    ] {
        let error = Workload::parse("shop.work", text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn hostile_texts_are_refused_without_a_panic() {
    let mut random = Rng::with_seed(11);
    let parts = [
        "param ",
        "statement",
        "transaction",
        "weight ",
        "a",
        " = ",
        "1",
        " .. ",
        "'",
        ",",
        ";",
        "\n",
        "  ",
        ":",
        "::",
        "?",
        "--",
        "/*",
        "ä",
        "\u{feff}",
        "99999999999999999999",
        "SELECT",
        "-9223372036854775808",
        "\r",
    ];
    for _ in 0..20_000 {
        let text: String = (0..random.usize(0..30))
            .map(|_| parts[random.usize(..parts.len())])
            .collect();
        if let Ok(workload) = Workload::parse("x", &text) {
            workload.draw(&mut random);
        }
    }
    let huge = "x".repeat(MOST_BYTES + 1);
    assert!(
        Workload::parse("x", &huge)
            .unwrap_err()
            .to_string()
            .contains("right file")
    );
    let widest =
        read("param a = -9223372036854775808 .. 9223372036854775807\nstatement\n  SELECT :a");
    widest.draw(&mut random);
}
