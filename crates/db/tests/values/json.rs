//! JSON in the cells of a row as serde types.

use cenote::{DateTime, Json, Kind, Value, from_row};
use serde::Deserialize;

use crate::values_support::*;

#[derive(Debug, Deserialize, PartialEq)]
struct Settings {
    theme: String,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Account {
    settings: Settings,
    tags: Vec<String>,
}

fn json(text: &str) -> Value<'_> {
    Value::Json(text.into())
}

#[test]
fn json_is_read_into_whatever_is_asked_for_also_from_text() {
    let settings = r#"{"theme": "dark"}"#;
    for (settings, tags) in [
        (json(settings), json(r#"["a"]"#)),
        (settings.into(), r#"["a"]"#.into()),
    ] {
        let account: Account = from_row(&row(&[("settings", settings), ("tags", tags)])).unwrap();
        assert_eq!(account.settings.theme, "dark");
        assert_eq!(account.tags, ["a"]);
    }
}

#[test]
fn json_that_the_row_does_not_hold_as_it_is_can_be_read_too() {
    let (settings,): (Settings,) = from_row(&raw(LATIN_1_JSON, b"{\"theme\":\"\xe4\"}")).unwrap();
    assert_eq!(settings.theme, "ä");
}

#[test]
fn the_wrapper_reads_text_as_json_where_text_would_do_too() {
    let (Json(value),): (Json<serde_json::Value>,) = from_row(&single("[1]")).unwrap();
    assert_eq!(value, serde_json::json!([1]));
    let Json(number): Json<i64> = from_row(&single("7")).unwrap();
    assert_eq!(number, 7);
    let (value,): (serde_json::Value,) = from_row(&single("[1]")).unwrap();
    assert_eq!(value, serde_json::json!("[1]"));
    assert_eq!(serde_json::to_string(&Json(7)).unwrap(), "7");
}

#[test]
fn an_enum_with_data_is_read_from_json() {
    #[derive(Debug, Deserialize, PartialEq)]
    enum Shape {
        Point,
        Circle { radius: f64 },
    }
    let circle = from_row::<Shape>(&single(json(r#"{"Circle": {"radius": 1.5}}"#)));
    assert_eq!(circle.unwrap(), Shape::Circle { radius: 1.5 });
    assert_eq!(
        from_row::<Shape>(&single(json(r#""Point""#))).unwrap(),
        Shape::Point
    );
}

#[test]
fn a_row_is_a_json_object() {
    let row = row(&[
        ("n", 7.into()),
        ("none", Value::Null),
        ("day", Value::Date("2024-02-29".parse().unwrap())),
        ("document", json("[true]")),
    ]);
    assert_eq!(
        from_row::<serde_json::Value>(&row).unwrap(),
        serde_json::json!({ "n": 7, "none": null, "day": "2024-02-29", "document": [true] })
    );
}

#[test]
fn json_that_does_not_fit_is_an_error_that_names_the_column() {
    let row = row(&[("settings", json("{}")), ("tags", json("[]"))]);
    assert_eq!(
        refusal(from_row::<Account>(&row), Kind::Type),
        "column `settings`: the JSON is no Settings: missing field `theme` at line 1 column 2"
    );
    let nested = r#"{"settings": [{"theme": "a"}, {"theme": 7}]}"#;
    let asked: Result<(std::collections::HashMap<String, Vec<Settings>>,), _> =
        from_row(&single(json(nested)));
    let message = refusal(asked, Kind::Type);
    let expected = "at `settings[1].theme`: invalid type: integer `7`, expected a string";
    assert!(message.contains(expected), "{message}");
    let got = single(json(nested));
    let got = got.get::<Json<std::collections::HashMap<String, Vec<Settings>>>>("it");
    let message = got.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    let trailing = single(json("[] []"));
    let message = refusal(from_row::<(Vec<i32>,)>(&trailing), Kind::Type);
    assert!(message.contains("trailing characters"), "{message}");
    assert_eq!(
        refusal(from_row::<(Settings,)>(&single(7)), Kind::Type),
        "column `it`: found int, wanted Settings: use i64 or cast"
    );
}

#[test]
fn days_and_times_of_our_own_are_written_as_they_are_printed() {
    let moment: DateTime = "2024-02-29T09:05:00".parse().unwrap();
    let written = serde_json::json!([moment, moment.date, moment.time]);
    assert_eq!(
        written,
        serde_json::json!(["2024-02-29T09:05:00", "2024-02-29", "09:05:00"])
    );
    let read: DateTime = serde_json::from_value(written[0].clone()).unwrap();
    assert_eq!(read, moment);
}
