//! Random values of PostgreSQL's types, as texts that the server reads.

use std::net::IpAddr;

use proptest::prelude::*;

/// A type, with texts of its values.
type Sample = (&'static str, BoxedStrategy<String>);

fn samples() -> Vec<Sample> {
    fn of<T: std::fmt::Display + Arbitrary + 'static>() -> BoxedStrategy<String> {
        any::<T>().prop_map(|value| value.to_string()).boxed()
    }
    fn some(texts: &[&'static str]) -> BoxedStrategy<String> {
        prop::sample::select(texts.to_vec())
            .prop_map(str::to_owned)
            .boxed()
    }
    let text = || r#"[a-zA-ZäÄ🦀0-9 ,;:(){}\[\]"'\\=>.\n\t-]{0,12}"#.boxed();
    let float = || any::<f64>().prop_map(|number| format!("{number:e}").replace("inf", "Infinity"));
    let day = || {
        (1..=9999_i32, 1..=12_u8, 1..=28_u8).prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}"))
    };
    let time = || {
        (0..24_u8, 0..60_u8, 0..60_u8, 0..1_000_000_u32)
            .prop_map(|(h, m, s, us)| format!("{h:02}:{m:02}:{s:02}.{us:06}"))
    };
    let moment = || (day(), time()).prop_map(|(day, time)| format!("{day} {time}"));
    let number = || r"-?[0-9]{1,30}(\.[0-9]{1,20})?".boxed();
    let json = || {
        prop_oneof![
            text().prop_map(|text| format!("{{\"a\": {:?}}}", text)),
            Just("[1, null]".to_owned()),
            Just("null".to_owned())
        ]
    };
    let json = || {
        json().prop_filter("an escape of Rust is none of JSON", |json| {
            !json.contains("\\'") && !json.contains("\\u{")
        })
    };
    let address = || any::<IpAddr>().prop_map(|address| address.to_string());
    vec![
        ("bool", of::<bool>()),
        ("int2", of::<i16>()),
        ("int4", of::<i32>()),
        ("int8", of::<i64>()),
        ("oid", of::<u32>()),
        ("float4", any::<f32>().prop_map(|number| format!("{number:e}").replace("inf", "Infinity")).boxed()),
        ("float8", float().boxed()),
        ("numeric", prop_oneof![9 => number(), 1 => some(&["NaN", "Infinity", "-Infinity"])].boxed()),
        ("text", text()),
        ("varchar", text()),
        ("bpchar", text()),
        ("name", text()),
        ("bytea", prop::collection::vec(any::<u8>(), 0..9).prop_map(|bytes| bytes.iter().fold("\\x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))).boxed()),
        ("date", prop_oneof![9 => day(), 1 => some(&["infinity", "0044-03-15 BC"])].boxed()),
        ("time", prop_oneof![9 => time(), 1 => some(&["24:00:00"])].boxed()),
        ("timestamp", prop_oneof![9 => moment(), 1 => some(&["-infinity"])].boxed()),
        ("timestamptz", prop_oneof![9 => moment().prop_map(|moment| format!("{moment}+02")), 1 => some(&["infinity"])].boxed()),
        ("timetz", time().prop_map(|time| format!("{time}+02")).boxed()),
        ("interval", (-99..99_i32, -999..999_i32, any::<i32>(), 0..999_999_u32).prop_map(|(m, d, s, us)| format!("{m} mons {d} days {s}.{us:06} secs")).boxed()),
        ("uuid", any::<u128>().prop_map(|number| format!("{number:032x}")).boxed()),
        ("json", json().boxed()),
        ("jsonb", json().boxed()),
        ("inet", (address(), 0..=32_u8).prop_map(|(address, bits)| format!("{address}/{bits}")).boxed()),
        ("cidr", address().boxed()),
        ("macaddr", some(&["08:00:2b:01:02:03"])),
        ("varbit", "[01]{0,20}".boxed()),
        ("int4range", (any::<i16>(), 0..9_i32).prop_map(|(from, more)| format!("[{from},{})", i32::from(from) + more)).boxed()),
        ("numrange", some(&["empty", "(,)", "[1.5,)", "(,2.50]", "(1,2)"])),
        ("tstzrange", moment().prop_map(|from| format!("[\"{from}+00\",)")).boxed()),
        ("int4multirange", some(&["{}", "{[1,3),[5,7)}", "{(,2)}"])),
        ("point", some(&["(1,2)", "(-0.5,1e300)"])),
        ("box", some(&["(2,2),(0,0)", "(4,3),(1,1)"])),
        ("tsvector", some(&["a b", "'it''s':1"])),
        ("xml", some(&["<a/>", "x"])),
        ("mood", some(&["sad", "it's ok", "a,b"])),
        ("small", (-99..99_i32).prop_map(|number| number.to_string()).boxed()),
        ("pair", prop_oneof![(any::<i32>(), text()).prop_map(|(a, b)| format!("({a},\"{}\")", b.replace('\\', "\\\\").replace('"', "\"\""))), some(&["(,)", "(,\"\")"])].boxed()),
        ("nest", some(&["(\"(1,\"\"a,b\"\")\",\"{1,NULL}\",\"2024-02-29 09:05:00+00\")", "(,{},)"])),
        ("ints", some(&["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={1,2}"])),
        ("moodrange", some(&["[sad,\"it's ok\"]", "empty", "[\"a,b\",)"])),
        ("colon", "[a-z,]{0,6}".boxed()),
        ("colons", some(&["{}", "{a:b,c}", "{NULL:x}"])),
        ("hstore", prop::collection::vec((text(), prop::option::of(text())), 0..3).prop_map(|pairs| {
            let quoted = |text: &String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            let pair = |(key, value): &(String, Option<String>)| format!("{}=>{}", quoted(key), value.as_ref().map_or("NULL".to_owned(), quoted));
            pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
        }).boxed()),
    ]
}

/// A type, with a few texts of its values.
pub(crate) fn case() -> impl Strategy<Value = (&'static str, Vec<String>)> {
    let samples = samples().into_iter();
    let lists = samples.map(|(name, text)| {
        let texts = prop::collection::vec(text, 1..4);
        texts.prop_map(move |texts| (name, texts)).boxed()
    });
    proptest::strategy::Union::new(lists)
}
