//! Rows as serde types.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{BatchBuilder, Column, Columns};
use cenote::{Date, DateTime, FromValue, Kind, Row, Time, Value, from_row};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::values_support::*;

#[derive(Debug, Deserialize, PartialEq)]
struct User {
    id: i64,
    name: String,
    email: Option<String>,
}

fn ada() -> Row {
    row(&[
        ("id", 7.into()),
        ("name", "ada".into()),
        ("email", Value::Null),
    ])
}

fn moment() -> DateTime {
    "2024-02-29T09:05:00".parse().unwrap()
}

#[test]
fn a_struct_is_read_by_the_names_of_its_fields() {
    let user: User = from_row(&ada()).unwrap();
    let ada = User {
        id: 7,
        name: "ada".to_owned(),
        email: None,
    };
    assert_eq!(user, ada);
    let turned = row(&[
        ("email", "a@b.c".into()),
        ("more", 1.into()),
        ("name", "ada".into()),
        ("id", 7.into()),
    ]);
    let user: User = from_row(&turned).unwrap();
    assert_eq!(user.email.as_deref(), Some("a@b.c"));
}

#[test]
fn a_missing_column_is_an_error_that_names_it() {
    let row = row(&[("id", 7.into())]);
    assert_eq!(
        refusal(from_row::<User>(&row), Kind::Column),
        "the row has no column `name`; it has `id`"
    );
}

#[test]
fn missing_column_is_none_for_an_option_or_its_default() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Loose {
        email: Option<String>,
        #[serde(default)]
        age: u8,
    }
    let loose: Loose = from_row(&single(1)).unwrap();
    assert_eq!(
        loose,
        Loose {
            email: None,
            age: 0
        }
    );
}

#[test]
fn rename_alias_and_case_find_their_columns() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Renamed {
        #[serde(rename = "user_id")]
        id: i64,
        #[serde(alias = "label")]
        name: String,
        age: u8,
    }
    let row = row(&[
        ("user_id", 7.into()),
        ("label", "ada".into()),
        ("AGE", 36.into()),
    ]);
    let renamed: Renamed = from_row(&row).unwrap();
    assert_eq!(
        (renamed.id, renamed.name.as_str(), renamed.age),
        (7, "ada", 36)
    );
}

#[test]
fn a_field_takes_the_exact_name_before_one_in_another_case() {
    #[derive(Debug, Deserialize)]
    struct Named {
        id: i64,
    }
    let both = row(&[("ID", 1.into()), ("id", 2.into())]);
    assert_eq!(from_row::<Named>(&both).unwrap().id, 2);
    let unclear = row(&[("ID", 1.into()), ("Id", 2.into())]);
    assert_eq!(
        refusal(from_row::<Named>(&unclear), Kind::Column),
        "`id` may be column `ID` or column `Id`"
    );
}

#[test]
fn of_columns_with_the_same_name_the_first_counts() {
    let row = row(&[("id", 1.into()), ("name", "ada".into()), ("id", 2.into())]);
    assert_eq!(from_row::<User>(&row).unwrap().id, 1);
    let map: HashMap<String, Option<String>> = from_row(&crate::values_support::row(&[
        ("a", "x".into()),
        ("a", Value::Null),
    ]))
    .unwrap();
    assert_eq!(map["a"].as_deref(), Some("x"));
}

#[test]
fn flatten_takes_columns_into_another_struct() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Post {
        title: String,
        #[serde(flatten)]
        user: User,
    }
    let row = row(&[
        ("title", "notes".into()),
        ("id", 7.into()),
        ("name", "ada".into()),
        ("email", Value::Null),
    ]);
    let post: Post = from_row(&row).unwrap();
    assert_eq!((post.title.as_str(), post.user.id), ("notes", 7));
    let short = crate::values_support::row(&[("title", "notes".into()), ("id", 7.into())]);
    assert_eq!(
        refusal(from_row::<Post>(&short), Kind::Column),
        "the row has no column `name`; it has `title`, `id`"
    );
}

#[test]
fn an_unknown_column_is_an_error_where_the_struct_says_so() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[allow(dead_code, reason = "it is only asked for")]
        id: i64,
    }
    assert_eq!(
        refusal(from_row::<Strict>(&ada()), Kind::Column),
        "the row has a column `name`, which was not asked for; wanted `id`"
    );
}

#[test]
fn a_map_has_all_columns_by_name() {
    let map: BTreeMap<String, i64> = from_row(&row(&[("a", 1.into()), ("b", 2.into())])).unwrap();
    assert_eq!(map, BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
}

#[test]
fn tuples_arrays_and_vectors_are_read_by_position() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Pair(i64, i64);

    let row = row(&[("a", 1.into()), ("b", 2.into())]);
    assert_eq!(from_row::<(i64, u8)>(&row).unwrap(), (1, 2));
    assert_eq!(from_row::<[i64; 2]>(&row).unwrap(), [1, 2]);
    assert_eq!(from_row::<Vec<i64>>(&row).unwrap(), [1, 2]);
    assert_eq!(from_row::<Pair>(&row).unwrap(), Pair(1, 2));
    assert_eq!(from_row::<(i64,)>(&single(1)).unwrap(), (1,));
}

#[test]
fn a_tuple_of_another_length_is_an_error_with_both_lengths() {
    let message = "the row has 3 columns, wanted 2 values";
    assert_eq!(
        refusal(from_row::<(i64, String)>(&ada()), Kind::Column),
        message
    );
    assert_eq!(refusal(from_row::<[i64; 2]>(&ada()), Kind::Column), message);
    assert_eq!(
        refusal(from_row::<(i64, i64)>(&single(1)), Kind::Column),
        "the row has 1 column, wanted 2 values; for the value of the column use query_scalar or a \
         tuple of one, (T,)"
    );
}

#[test]
fn a_row_of_one_column_is_a_scalar() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Id(i64);

    assert_eq!(from_row::<i64>(&single(7)).unwrap(), 7);
    assert_eq!(from_row::<Id>(&single(7)).unwrap(), Id(7));
    assert_eq!(from_row::<String>(&single("ada")).unwrap(), "ada");
    assert_eq!(from_row::<&str>(&single("ada")).unwrap(), "ada");
    assert_eq!(from_row::<char>(&single("ä")).unwrap(), 'ä');
    assert!(from_row::<bool>(&single(1)).unwrap());
    assert_eq!(from_row::<f64>(&single(7)).unwrap(), 7.0);
    assert_eq!(from_row::<Option<i64>>(&single(Value::Null)).unwrap(), None);
    assert_eq!(from_row::<Option<i64>>(&single(7)).unwrap(), Some(7));
}

#[test]
fn a_scalar_needs_exactly_one_column() {
    assert_eq!(
        refusal(from_row::<i64>(&ada()), Kind::Column),
        "the row has 3 columns, wanted one value"
    );
    let nothing = row(&[]);
    assert_eq!(
        refusal(from_row::<String>(&nothing), Kind::Column),
        "the row has no columns, wanted one value"
    );
}

#[test]
fn a_whole_row_may_be_optional_or_a_newtype() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Found(User);

    assert_eq!(from_row::<Option<User>>(&ada()).unwrap().unwrap().id, 7);
    assert_eq!(from_row::<Found>(&ada()).unwrap().0.id, 7);
    from_row::<()>(&ada()).unwrap();
}

#[test]
fn an_enum_without_data_is_read_from_text() {
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    struct Car {
        colour: Colour,
    }

    assert_eq!(from_row::<Colour>(&single("red")).unwrap(), Colour::Red);
    let car: Car = from_row(&row(&[("colour", "green".into())])).unwrap();
    assert_eq!(car.colour, Colour::Green);
    assert_eq!(
        refusal(
            from_row::<Car>(&row(&[("colour", "blue".into())])),
            Kind::Type
        ),
        "column `colour`: unknown variant `blue`, expected `red` or `green`"
    );
    assert_eq!(
        refusal(from_row::<Colour>(&single(1)), Kind::Type),
        "column `it`: found int, wanted Colour: use i64 or cast"
    );
}

#[test]
fn a_tagged_enum_is_read_from_the_columns() {
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Shape {
        Circle { radius: f64 },
        Square { side: f64 },
    }
    let row = row(&[
        ("kind", "square".into()),
        ("side", 1.5.into()),
        ("radius", Value::Null),
    ]);
    assert_eq!(
        from_row::<Shape>(&row).unwrap(),
        Shape::Square { side: 1.5 }
    );
}

#[test]
fn bytes_are_vectors_arrays_and_borrowed_slices() {
    #[derive(Debug, Deserialize)]
    struct Blob<'r> {
        a: Vec<u8>,
        b: [u8; 2],
        #[serde(borrow)]
        c: &'r [u8],
    }
    let bytes = |bytes: &'static [u8]| Value::from(bytes);
    let row = row(&[
        ("a", bytes(b"abc")),
        ("b", bytes(b"xy")),
        ("c", bytes(b"z")),
    ]);
    let blob: Blob<'_> = from_row(&row).unwrap();
    assert_eq!(
        (blob.a.as_slice(), blob.b, blob.c),
        (&b"abc"[..], *b"xy", &b"z"[..])
    );
    assert_eq!(
        refusal(from_row::<(Vec<Vec<u8>>,)>(&single("text")), Kind::Type)
            .split(':')
            .next(),
        Some("column `it`")
    );
}

#[test]
fn values_are_converted_as_by_get() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Mixed {
        truth: bool,
        whole: i32,
        price: f64,
        small: f32,
        large: u64,
    }
    let row = row(&[
        ("truth", 1.into()),
        ("whole", Value::Decimal("12.00".into())),
        ("price", Value::Decimal("12.50".into())),
        ("small", 3.into()),
        ("large", u64::MAX.into()),
    ]);
    let mixed: Mixed = from_row(&row).unwrap();
    assert_eq!(
        mixed,
        Mixed {
            truth: true,
            whole: 12,
            price: 12.5,
            small: 3.0,
            large: u64::MAX,
        }
    );
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_its_column() {
    let row = row(&[("id", "seven".into()), ("name", "ada".into())]);
    assert_eq!(
        refusal(from_row::<User>(&row), Kind::Type),
        "column `id`: found text, wanted i64: use String or cast"
    );
    assert_eq!(
        refusal(from_row::<(i64, i64)>(&row), Kind::Type),
        "column `id`: found text, wanted i64: use String or cast"
    );
    assert_eq!(
        refusal(from_row::<u8>(&single(300)), Kind::Type),
        "column `it`: 300 is out of range for u8"
    );
    assert_eq!(
        refusal(from_row::<String>(&single(Value::Null)), Kind::Type),
        "column `it`: found NULL, wanted text; an Option takes NULL"
    );
    assert_eq!(
        refusal(from_row::<((),)>(&single(1)), Kind::Type),
        "column `it`: found int, wanted NULL: use i64 or cast"
    );
    assert_eq!(
        refusal(from_row::<i64>(&raw(UNREADABLE, b"?")), Kind::Type),
        "column `it`: the bytes are no value"
    );
}

#[test]
fn what_has_a_written_form_can_be_read_as_a_string() {
    for (value, written) in [
        (Value::Date(moment().date), "2024-02-29"),
        (Value::Time(moment().time), "09:05:00"),
        (Value::DateTime(moment()), "2024-02-29T09:05:00"),
        (Value::Timestamp(moment()), "2024-02-29T09:05:00Z"),
        (Value::Decimal("12.50".into()), "12.50"),
        (
            Value::Uuid([0x11; 16]),
            "11111111-1111-1111-1111-111111111111",
        ),
        (Value::Json("{}".into()), "{}"),
    ] {
        assert_eq!(from_row::<String>(&single(value)).unwrap(), written);
    }
    assert_eq!(from_row::<String>(&raw(LATIN_1, b"\xe4")).unwrap(), "ä");
}

#[test]
fn days_and_times_of_our_own_are_read_by_serde() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct When {
        day: Date,
        time: Time,
        moment: DateTime,
        at: DateTime,
    }
    let row = row(&[
        ("day", Value::Date(moment().date)),
        ("time", "09:05".into()),
        ("moment", Value::DateTime(moment())),
        ("at", Value::Timestamp(moment())),
    ]);
    let when: When = from_row(&row).unwrap();
    assert_eq!(
        when,
        When {
            day: moment().date,
            time: moment().time,
            moment: moment(),
            at: moment(),
        }
    );
    assert_eq!(
        refusal(from_row::<Date>(&single("today")), Kind::Type),
        "column `it`: \"today\" is no Date"
    );
}

/// As the `uuid` crate reads one: from text, or from bytes where it gets them.
#[derive(Debug, PartialEq)]
struct AnyUuid(Vec<u8>);

impl<'de> Deserialize<'de> for AnyUuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = AnyUuid;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a UUID")
            }

            fn visit_str<E>(self, text: &str) -> Result<AnyUuid, E> {
                Ok(AnyUuid(text.as_bytes().to_vec()))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<AnyUuid, E> {
                Ok(AnyUuid(bytes.to_vec()))
            }
        }

        deserializer.deserialize_str(Either)
    }
}

#[test]
fn a_uuid_type_reads_sixteen_bytes_and_no_other_number() {
    let uuid: AnyUuid = from_row(&single([0x11_u8; 16])).unwrap();
    assert_eq!(uuid, AnyUuid(vec![0x11; 16]));
    let uuid: AnyUuid = from_row(&single(Value::Uuid([0x11; 16]))).unwrap();
    assert_eq!(uuid.0, b"11111111-1111-1111-1111-111111111111");
    assert_eq!(
        refusal(from_row::<AnyUuid>(&single([0x11_u8; 15])), Kind::Type),
        "column `it`: found bytes, wanted text: use Vec<u8> or cast"
    );
}

/// As `rust_decimal` reads one: from whatever there is, if it is a number or text.
#[derive(Debug, PartialEq)]
struct Digits(String);

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Digits;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("digits")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Digits, E> {
                Ok(Digits(number.to_string()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Digits, E> {
                Ok(Digits(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[test]
fn a_type_that_takes_whatever_there_is_can_be_a_scalar_too() {
    let digits = |text: &str| Digits(text.to_owned());
    let price = || Value::Decimal("12.50".into());
    assert_eq!(
        from_row::<Digits>(&single(price())).unwrap(),
        digits("12.50")
    );
    assert_eq!(from_row::<Digits>(&single(7)).unwrap(), digits("7"));
    assert_eq!(from_row::<(Digits,)>(&single(7)).unwrap(), (digits("7"),));
    let map: HashMap<String, Digits> = from_row(&single(price())).unwrap();
    assert_eq!(map["it"], digits("12.50"));
    assert_eq!(
        refusal(from_row::<Digits>(&ada()), Kind::Column),
        "the row has 3 columns, wanted digits"
    );
    assert_eq!(
        refusal(from_row::<Digits>(&single(true)), Kind::Type),
        "column `it`: found boolean `true`, wanted digits"
    );
}

#[test]
fn a_field_can_be_read_by_way_of_get() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Field<T: for<'v> FromValue<'v>> {
        #[serde(deserialize_with = "cenote::Value::deserialize_as")]
        it: T,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    struct Around {
        #[serde(flatten)]
        field: Field<bool>,
    }
    fn read<T: for<'v> FromValue<'v>>(row: &Row) -> cenote::Result<T> {
        from_row::<Field<T>>(row).map(|field| field.it)
    }

    let timestamp = single(Value::Timestamp(moment()));
    assert_eq!(read::<DateTime>(&timestamp).unwrap(), moment());
    let text = single("2024-02-29 09:05:00");
    assert_eq!(read::<DateTime>(&text).unwrap(), moment());
    assert_eq!(read::<Option<Date>>(&single(Value::Null)).unwrap(), None);
    assert_eq!(read::<u8>(&single(7)).unwrap(), 7);
    assert_eq!(read::<u64>(&single(u64::MAX)).unwrap(), u64::MAX);
    assert_eq!(read::<f64>(&single(1.5)).unwrap(), 1.5);
    assert_eq!(read::<Vec<u8>>(&single(b"abc")).unwrap(), b"abc");
    // Where serde itself would not take a number for a bool.
    assert!(from_row::<Around>(&single(1)).unwrap().field.it);
    assert_eq!(
        refusal(read::<Date>(&single("today")), Kind::Type),
        "column `it`: \"today\" is no Date"
    );
}

#[test]
fn unrequested_columns_are_not_decoded() {
    static DECODER: CountingDecoder = CountingDecoder(AtomicUsize::new(0));
    #[derive(Deserialize)]
    struct OnlyId {
        id: i64,
    }
    let columns = Columns::new(vec![Column::new("more"), Column::new("id")], &DECODER);
    let mut rows = BatchBuilder::new(columns);
    rows.cell(UNREADABLE, b"?");
    write(&mut rows, &Value::Int(7));
    rows.end_row().unwrap();
    let row = rows.finish().into_rows().next().unwrap();
    assert_eq!(from_row::<OnlyId>(&row).unwrap().id, 7);
    assert_eq!(DECODER.0.load(Ordering::Relaxed), 1);
}

#[cfg(not(feature = "json"))]
#[test]
fn a_struct_in_a_cell_needs_the_feature_json() {
    let row = row(&[("user", "{}".into())]);
    assert_eq!(
        refusal(from_row::<(User,)>(&row), Kind::Type),
        "column `user`: found text, wanted User"
    );
}

proptest! {
    #[test]
    fn reading_any_row_as_anything_never_panics(
        text: String, number: i64, float: f64, bytes: Vec<u8>, width in 0..6_usize,
    ) {
        let cells = [
            ("id", Value::from(number)),
            ("name", Value::from(&text)),
            ("email", Value::from(float)),
            ("id", Value::from(&bytes)),
            ("", Value::Json((&text).into())),
        ];
        let row = row(&cells[..width.min(cells.len())]);
        let _ = from_row::<User>(&row);
        let _ = from_row::<HashMap<String, String>>(&row);
        let _ = from_row::<Vec<i64>>(&row);
        let _ = from_row::<(i64, String)>(&row);
        let _ = from_row::<String>(&row);
        let _ = from_row::<Option<bool>>(&row);
        let _ = from_row::<Date>(&row);
    }
}
