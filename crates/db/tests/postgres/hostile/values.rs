//! A value is the same whichever way it comes: as text the first time, in binary later, by a
//! script, in a stream.

use cenote::driver::{Request, Value};

use crate::servers::client::Client;

const VALUES: &[&str] = &[
    "true",
    "NULL::bool",
    "'-32768'::int2",
    "'-2147483648'::int4",
    "'-9223372036854775808'::int8",
    "'4294967295'::oid",
    "'-0'::float4",
    "'-0'::float8",
    "'1e-45'::float4",
    "'3.4028235e38'::float4",
    "'5e-324'::float8",
    "'1.7976931348623157e308'::float8",
    "'-Infinity'::float4",
    "'Infinity'::float8",
    "0.1::float4",
    "'-Infinity'::numeric",
    "'Infinity'::numeric",
    "'0.00000000000000000000000000000000000000001'::numeric",
    "('1' || repeat('0', 1000))::numeric",
    "'-0.000'::numeric",
    "1.500::numeric(20,10)",
    "'\u{1f980}öä'::text",
    "''::text",
    "''::bytea",
    "'\\x00ff5c'::bytea",
    "'infinity'::date",
    "'-infinity'::date",
    "'4713-01-01 BC'::date",
    "'0001-12-31 BC'::date",
    "'5874897-12-31'::date",
    "'infinity'::timestamp",
    "'-infinity'::timestamptz",
    "'4713-01-01 00:00:00 BC'::timestamp",
    "'294276-12-31 23:59:59.999999'::timestamp",
    "'294276-12-31 23:59:59.999999+00'::timestamptz",
    "'0044-03-15 12:00:00.000001+00 BC'::timestamptz",
    "'2024-02-29 23:59:59.9'::timestamptz",
    "'1883-11-18 12:03:57'::timestamptz",
    "'24:00:00'::time",
    "'00:00:00.000001'::time",
    "'24:00:00+15:59'::timetz",
    "'-1 mon 1 day -00:00:00.5'::interval",
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
    "'{\"a\": [1, null]}'::json",
    "'{\"a\": [1, null]}'::jsonb",
    "'null'::jsonb",
    "'{}'::int[]",
    "'{{1,NULL},{3,4}}'::int[]",
    "'[0:1]={1,2}'::int[]",
    "ARRAY['a,b', 'c\"d', 'e\\f', '', 'NULL', NULL, '{x}', E'\\n\\t\\x01']",
    "ARRAY['NaN', 'Infinity', 1.5]::float8[]",
    "ARRAY['NaN', 1e20, -0.0]::numeric[]",
    "ARRAY[true, NULL, false]",
    "ARRAY['{\"a\":1}', 'null', NULL]::jsonb[]",
    "ARRAY['\\x00ff'::bytea]",
    "ARRAY['2024-01-01'::date, 'infinity']",
    "ARRAY['2024-01-01 10:00+00'::timestamptz]",
    "ARRAY[ROW(1,'a')]",
    "ROW(1, 'x', NULL)",
    "'[1,5)'::int4range",
    "'{[1,2),[5,7)}'::int4multirange",
    "'12.34'::money",
    "'10.0.0.1/8'::inet",
    "'::1'::inet",
    "'08:00:2b:01:02:03'::macaddr",
    "'name'::name",
    "'c'::\"char\"",
    "'abc'::char(5)",
    "'<a/>'::xml",
    "pg_catalog.pg_notify('nobody', '')",
    "'1 2 3'::int2vector",
    "'(1,2)'::point",
    "ARRAY['(1,2),(0,0)'::box, '(3,4),(0,0)'::box]",
    "B'1010'",
    "'a b'::tsvector",
    "'pg_class'::regclass",
    "'1/0'::pg_lsn",
    "'1'::xid",
    "NULL::int[]",
    "NULL::date",
    "NULL::numeric",
    "NULL::jsonb",
    "NULL::bytea",
    "NULL",
];

async fn streamed(client: &mut Client, sql: &str) -> Value<'static> {
    let connection = &mut client.connection;
    connection
        .start_stream(Request::new(sql, &[]))
        .await
        .unwrap();
    let batch = std::future::poll_fn(|cx| connection.poll_batch(cx)).await;
    let row = batch
        .unwrap()
        .expect("there is a row")
        .into_rows()
        .next()
        .unwrap();
    connection.end_stream().await.unwrap();
    row.value(0).unwrap().into_owned()
}

#[tokio::test]
async fn every_way_gives_the_same_value() {
    let mut client = Client::new().await;
    for zone in ["UTC", "America/New_York", "Asia/Kathmandu"] {
        client.must(&format!("SET TimeZone = '{zone}'")).await;
        for (n, text) in VALUES.iter().enumerate() {
            // Another statement for each time zone, or the first time would not be one.
            let sql = format!("SELECT {text} /* {zone} {n} */");
            let first = client.value(&sql, &[]).await;
            for way in ["second", "third"] {
                same(&first, &client.value(&sql, &[]).await, &sql, way);
            }
            let script = client.script_rows(&format!("{sql};")).await;
            same(&first, &script[0].value(0).unwrap(), &sql, "script");
            same(&first, &streamed(&mut client, &sql).await, &sql, "stream");
            client.begin().await;
            same(
                &first,
                &streamed(&mut client, &sql).await,
                &sql,
                "stream in a transaction",
            );
            client.connection.rollback().await.unwrap();
        }
    }
}

/// Equal, with minus zero and NaN, also in arrays: these are printed as what they are.
fn same(first: &Value<'_>, other: &Value<'_>, sql: &str, way: &str) {
    let (first, other) = (format!("{first:?}"), format!("{other:?}"));
    assert_eq!(first, other, "{sql}: the first time, and as {way}");
}
