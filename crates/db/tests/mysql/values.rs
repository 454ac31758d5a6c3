//! Values of MariaDB's types: the same by both of its protocols, in text and in binary.

use std::sync::{Arc, Mutex};

use cenote::driver::Value;
use cenote::mysql::RawValue;
use cenote::{Date, DateTime, Kind, Time};

use crate::servers::client::{Client, value, with_option};
use crate::servers::dsn;

/// What a literal comes back as, by both protocols.
async fn both(client: &mut Client, sql: &str) -> Value<'static> {
    let as_text = client.value(sql, &[]).await;
    // A parameter that says nothing makes it a prepared statement.
    let limited = format!("{sql} LIMIT ?");
    let as_binary = client.value(&limited, &[value(1)]).await;
    assert_eq!(as_text, as_binary, "{sql} in text and in binary");
    as_text
}

fn date(text: &str) -> Date {
    text.parse().expect("a date")
}

fn time(text: &str) -> Time {
    text.parse().expect("a time")
}

fn moment(text: &str) -> DateTime {
    text.parse().expect("a moment")
}

#[tokio::test]
async fn every_type_comes_back_the_same_in_text_and_in_binary() {
    let mut client = Client::in_own_database().await;
    let text = |text: &str| Value::Text(text.to_owned().into());
    for (column, literal, expected) in [
        ("TINYINT", "-128", Value::Int(-128)),
        ("TINYINT UNSIGNED", "255", Value::Int(255)),
        ("BOOLEAN", "TRUE", Value::Int(1)),
        ("SMALLINT", "-32768", Value::Int(-32768)),
        ("SMALLINT UNSIGNED", "65535", Value::Int(65535)),
        ("MEDIUMINT", "-8388608", Value::Int(-8_388_608)),
        ("MEDIUMINT UNSIGNED", "16777215", Value::Int(16_777_215)),
        ("INT", "-2147483648", Value::Int(-2_147_483_648)),
        ("INT UNSIGNED", "4294967295", Value::Int(4_294_967_295)),
        ("BIGINT", "-9223372036854775808", Value::Int(i64::MIN)),
        (
            "BIGINT UNSIGNED",
            "18446744073709551615",
            Value::UInt(u64::MAX),
        ),
        ("BIGINT UNSIGNED", "7", Value::UInt(7)),
        ("YEAR", "2024", Value::Int(2024)),
        ("FLOAT", "1.5", Value::Float(1.5)),
        ("DOUBLE", "-0.1", Value::Float(-0.1)),
        (
            "DECIMAL(20,4)",
            "-1234567890123456.7891",
            Value::Decimal("-1234567890123456.7891".into()),
        ),
        ("DATE", "'2024-02-29'", Value::Date(date("2024-02-29"))),
        ("TIME", "'09:05:00'", Value::Time(time("09:05:00"))),
        (
            "TIME(6)",
            "'23:59:59.999999'",
            Value::Time(time("23:59:59.999999")),
        ),
        ("TIME", "'-01:30:00'", text("-01:30:00")),
        ("TIME(3)", "'838:59:58.250'", text("838:59:58.250")),
        (
            "DATETIME",
            "'2024-02-29 09:05:00'",
            Value::DateTime(moment("2024-02-29T09:05:00")),
        ),
        (
            "DATETIME(6)",
            "'1000-01-01 00:00:00.000001'",
            Value::DateTime(moment("1000-01-01T00:00:00.000001")),
        ),
        (
            "TIMESTAMP(3) NULL",
            "'2024-02-29 09:05:00.25'",
            Value::Timestamp(moment("2024-02-29T09:05:00.25")),
        ),
        ("CHAR(5)", "'grün'", text("grün")),
        ("VARCHAR(20) CHARACTER SET latin1", "'grün'", text("grün")),
        ("TEXT", "'🦀'", text("🦀")),
        (
            "BINARY(3)",
            "X'00FF01'",
            Value::Bytes(vec![0, 255, 1].into()),
        ),
        ("VARBINARY(3)", "X'00FF'", Value::Bytes(vec![0, 255].into())),
        ("BLOB", "X'00FF'", Value::Bytes(vec![0, 255].into())),
        ("ENUM('a','ö')", "'ö'", text("ö")),
        ("SET('a','b','c')", "'c,a'", text("a,c")),
        ("BIT(1)", "b'1'", Value::UInt(1)),
        (
            "BIT(64)",
            "b'1000000000000000000000000000000000000000000000000000000000000001'",
            Value::UInt(0x8000_0000_0000_0001),
        ),
        ("JSON", "'{\"a\": 1}'", text("{\"a\": 1}")),
        (
            "UUID",
            "'67e55044-10b1-426f-9247-bb680e5fe0c8'",
            text("67e55044-10b1-426f-9247-bb680e5fe0c8"),
        ),
        ("INET6", "'::1'", text("::1")),
        ("POINT", "POINT(1,2)", {
            let mut bytes = vec![0; 4];
            bytes.extend([1, 1, 0, 0, 0]);
            bytes.extend(1_f64.to_le_bytes());
            bytes.extend(2_f64.to_le_bytes());
            Value::Bytes(bytes.into())
        }),
    ] {
        client
            .must(&format!("CREATE OR REPLACE TABLE v (v {column})"))
            .await;
        client
            .must(&format!("INSERT INTO v VALUES ({literal})"))
            .await;
        assert_eq!(
            both(&mut client, "SELECT v FROM v").await,
            expected,
            "{column}"
        );
        client.must("UPDATE v SET v = NULL").await;
        assert_eq!(
            both(&mut client, "SELECT v FROM v").await,
            Value::Null,
            "{column}"
        );
    }
}

#[tokio::test]
async fn zero_dates_are_text_and_no_error_until_a_date_is_asked_for() {
    let mut client = Client::in_own_database().await;
    client.must("SET sql_mode = ''").await;
    client
        .must("CREATE TABLE d (a DATE, b DATETIME(3), c DATE)")
        .await;
    client
        .must("INSERT INTO d VALUES ('0000-00-00', '0000-00-00 00:00:00', '2024-02-00')")
        .await;
    for (column, expected) in [
        ("a", "0000-00-00"),
        ("b", "0000-00-00 00:00:00.000"),
        ("c", "2024-02-00"),
    ] {
        let got = both(&mut client, &format!("SELECT {column} FROM d")).await;
        assert_eq!(got, Value::Text(expected.into()), "{column}");
    }
    let rows = client.rows("SELECT a FROM d", &[]).await;
    assert_eq!(rows[0].get::<Date>(0).unwrap_err().kind(), Kind::Type);
    assert_eq!(rows[0].get::<String>(0).unwrap(), "0000-00-00");
}

#[tokio::test]
async fn columns_tell_their_names_and_types() {
    let mut client = Client::in_own_database().await;
    client
        .must("CREATE TABLE t (id BIGINT UNSIGNED, name VARCHAR(9), e ENUM('x'), data BLOB)")
        .await;
    client.must("INSERT INTO t VALUES (1, 'a', 'x', 'b')").await;
    let rows = client
        .rows("SELECT id, name AS n, e, data FROM t", &[])
        .await;
    let columns: Vec<_> = rows[0]
        .columns()
        .as_slice()
        .iter()
        .map(|column| (column.name.as_str(), column.type_name.as_deref()))
        .collect();
    let expected = [
        ("id", Some("BIGINT UNSIGNED")),
        ("n", Some("VARCHAR")),
        ("e", Some("ENUM")),
        ("data", Some("BLOB")),
    ];
    assert_eq!(columns, expected);
}

#[tokio::test]
async fn a_timestamp_is_a_moment_whatever_the_clock_of_the_server() {
    // The server's own clock is two hours ahead, on purpose.
    let mut client = Client::new().await;
    let seconds: i64 = client
        .get("SELECT UNIX_TIMESTAMP('1970-01-02 00:00:00')")
        .await;
    assert_eq!(seconds, 86400);
    let at = Value::Timestamp(moment("2024-02-29T09:05:00"));
    let got = client
        .value("SELECT CAST(UNIX_TIMESTAMP(?) AS SIGNED)", &[value(at)])
        .await;
    assert_eq!(got, Value::Int(1_709_197_500));
}

#[tokio::test]
async fn session_with_its_own_clock_has_local_times_and_no_timestamps() {
    let mut client = Client::open(&with_option(&dsn(), "time_zone", "+02:00")).await;
    let got = both(&mut client, "SELECT FROM_UNIXTIME(0)").await;
    assert_eq!(got, Value::DateTime(moment("1970-01-01T02:00:00")));
    let at = value(Value::Timestamp(moment("2024-02-29T09:05:00")));
    let error = client.run("SELECT ?", &[at]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert!(error.message().contains("time_zone"), "{error}");
}

#[tokio::test]
async fn a_raw_value_of_the_client_library_goes_as_it_is() {
    let mut client = Client::new().await;
    let raw = cenote::driver::Native {
        type_name: "RawValue",
        value: Arc::new(RawValue::Time(true, 1, 2, 3, 4, 0)),
    };
    let got = client
        .value(
            "SELECT CAST(? AS TIME)",
            &[cenote::driver::Param::Native(raw)],
        )
        .await;
    assert_eq!(got, Value::Text("-26:03:04".into()));
}

#[tokio::test]
async fn apparent_named_parameter_in_a_string_stays_unchanged() {
    let mut client = Client::new().await;
    for sql in [
        "SELECT CONCAT('a:b', 1-'2', ':c') WHERE 1 = ?",
        "SELECT CONCAT(-'2', ':c', /* :d ? */ 'x') # :e ?\n WHERE 1 = ?",
        "SELECT 10/':c' IS NOT NULL, ?",
    ] {
        let done = client.run(sql, &[value(1)]).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let got = client
        .value("SELECT CONCAT(':c', 1-':d', ?)", &[value("x")])
        .await;
    assert_eq!(got, Value::Text(":c1x".into()));
}

#[tokio::test]
async fn last_id_affected_rows_and_warnings_are_reported() {
    let mut client = Client::in_own_database().await;
    client
        .must("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n TINYINT)")
        .await;
    let done = client
        .run("INSERT INTO t (n) VALUES (?), (?)", &[value(1), value(2)])
        .await;
    let done = done.unwrap();
    assert_eq!(
        (done.rows_affected, done.last_insert_id, done.warnings),
        (2, Some(1), 0)
    );
    let done = client.must("INSERT INTO t (n) VALUES (3)").await;
    assert_eq!((done.rows_affected, done.last_insert_id), (1, Some(3)));
    let done = client.must("SELECT * FROM t").await;
    assert_eq!(done.last_insert_id, None, "a query inserts nothing");
    client.must("SET sql_mode = ''").await;
    let done = client.must("INSERT INTO t (n) VALUES (1000), (2000)").await;
    assert_eq!((done.rows_affected, done.warnings), (2, 2));
    assert_eq!(client.connection.warnings(), 2);
    client.must("SELECT 1").await;
    assert_eq!(client.connection.warnings(), 0);
}

/// What is written to the log.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = event.metadata().level().to_string();
        let mut write = |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!(" {field}={value:?}");
        };
        event.record(&mut write);
        self.lines.lock().unwrap().push(line);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[tokio::test]
async fn warnings_are_written_to_the_log_if_it_is_enabled() {
    let mut client = Client::in_own_database().await;
    client.must("SET sql_mode = ''").await;
    client.must("CREATE TABLE t (n TINYINT)").await;
    // Nobody reads yet; and `tracing` has seen the line that asks whether somebody does.
    client.must("INSERT INTO t VALUES (1000)").await;
    let log = Log::default();
    // The only reader there is, `tracing` takes for everybody's: it would ask whichever thread comes to
    // a line first, which may be another test's, and leave the line out for good. Of two it asks both.
    let _second = tracing::Dispatch::new(Log::default());
    let reading = tracing::subscriber::set_default(log.clone());
    let done = client.run("INSERT INTO t VALUES (?)", &[value(1000)]).await;
    assert_eq!(done.unwrap().warnings, 1);
    assert_eq!(client.connection.warnings(), 1);
    client.must("DROP TABLE IF EXISTS missing").await;
    drop(reading);
    let lines = log.lines.lock().unwrap().clone();
    let told = |level: &str, code: &str| {
        let fits = |line: &&String| line.starts_with(level) && line.contains(code);
        lines.iter().filter(fits).count()
    };
    assert_eq!(told("WARN", "code=1264"), 1, "{lines:?}");
    assert_eq!(told("DEBUG", "code=1051"), 1, "{lines:?}");
}

#[tokio::test]
async fn affected_rows_are_changed_ones_or_found_ones_with_found_rows() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n INT)").await;
    client.must("INSERT INTO t VALUES (1), (1)").await;
    assert_eq!(client.must("UPDATE t SET n = 1").await.rows_affected, 0);
    let database: String = client.get("SELECT DATABASE()").await;
    let found = with_option(&with_option(&dsn(), "dbname", &database), "found_rows", "1");
    let mut client = Client::open(&found).await;
    assert_eq!(client.must("UPDATE t SET n = 1").await.rows_affected, 2);
}

#[tokio::test]
async fn several_results_are_read_to_the_last_and_the_last_counts() {
    let mut client = Client::in_own_database().await;
    client.must("CREATE TABLE t (n INT)").await;
    let done = client
        .script("SELECT 1; INSERT INTO t VALUES (1), (2); SELECT n FROM t")
        .await;
    let rows: Vec<i64> = done
        .unwrap()
        .rows
        .unwrap()
        .into_rows()
        .map(|row| row.get(0).unwrap())
        .collect();
    assert_eq!(rows, [1, 2]);
    let done = client.script("SELECT 1; DELETE FROM t").await.unwrap();
    assert_eq!(done.rows_affected, 2);
    assert!(done.rows.is_none(), "a DELETE has none");
    let procedure = "CREATE PROCEDURE p(IN x INT) BEGIN SELECT 'first'; SELECT x + 1, 'last'; END";
    client.must(procedure).await;
    for _ in 0..2 {
        assert_eq!(client.value("CALL p(6)", &[]).await, Value::Int(7));
        assert_eq!(client.value("CALL p(?)", &[value(7)]).await, Value::Int(8));
    }
    assert_eq!(client.get::<i64>("SELECT 9").await, 9);
}

#[tokio::test]
async fn rows_that_an_insert_returns_are_given_with_their_number() {
    let mut client = Client::in_own_database().await;
    client
        .must("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)")
        .await;
    let sql = "INSERT INTO t (n) VALUES (?), (?) RETURNING id, n";
    let done = client.run(sql, &[value(5), value(6)]).await.unwrap();
    assert_eq!(done.rows_affected, 2);
    let ids: Vec<i64> = done
        .rows
        .unwrap()
        .into_rows()
        .map(|row| row.get("id").unwrap())
        .collect();
    assert_eq!(ids, [1, 2]);
    for comment in [
        "/* trace */",
        "-- trace\n",
        "# trace\n",
        "/*My*/ -- trace\n",
    ] {
        let sql = format!("{comment} INSERT INTO t (n) VALUES (7) RETURNING id");
        assert_eq!(
            client.run(&sql, &[]).await.unwrap().rows_affected,
            1,
            "{sql}"
        );
    }
}

#[tokio::test]
async fn more_than_the_server_accepts_is_an_error_but_no_loss() {
    let mut client = Client::new().await;
    let limit: usize = client.get("SELECT @@max_allowed_packet").await;
    let id = client.id();
    let large = "x".repeat(limit + 1);
    let as_text = client
        .run(&format!("SELECT '{large}'"), &[])
        .await
        .unwrap_err();
    let as_param = client
        .run("SELECT LENGTH(?)", &[value(large)])
        .await
        .unwrap_err();
    for error in [as_text, as_param] {
        assert_eq!((error.kind(), error.code()), (Kind::Database, Some(1153)));
        assert!(error.message().contains("max_allowed_packet"), "{error}");
    }
    let fits = "x".repeat(limit - 1024);
    let length = client.value("SELECT LENGTH(?)", &[value(fits)]).await;
    assert_eq!(length, Value::Int(i64::try_from(limit).unwrap() - 1024));
    assert_eq!(client.get::<u32>("SELECT CONNECTION_ID()").await, id);
}

#[tokio::test]
async fn scalars_lists_and_bare_parameters_are_as_with_every_driver() {
    use cenote::{Db, list, named};
    let db = Db::open(&dsn()).await.unwrap();
    for _ in 0..2 {
        let number: i64 = db
            .query_scalar_one("SELECT CAST(? AS SIGNED)", 7)
            .await
            .unwrap();
        assert_eq!(number, 7);
        let name: String = db.query_scalar_one("SELECT ?", "ada").await.unwrap();
        assert_eq!(name, "ada");
        let bytes: Vec<u8> = db
            .query_scalar_one("SELECT CAST(? AS BINARY)", (vec![1_u8, 2],))
            .await
            .unwrap();
        assert_eq!(bytes, [1, 2]);
        let sql = "SELECT 3 IN (:ids) AND 4 NOT IN (:ids) AND :min < 3";
        let found: i64 = db
            .query_scalar_one(sql, named! { min: 2, ids: list([1, 2, 3]) })
            .await
            .unwrap();
        assert_eq!(found, 1);
    }
    let error = db
        .query("SELECT 1 IN (?)", (vec![1, 2],))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Type);
    assert!(
        error
            .message()
            .contains("MySQL has no arrays: use list(..)"),
        "{error}"
    );
}
