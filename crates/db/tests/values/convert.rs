//! What can be a value, and what a value can be taken as.

use std::borrow::Cow;

use cenote::{ConvertError, Date, DateTime, FromValue, Time, Value};
use proptest::prelude::*;

fn text(text: &str) -> Value<'_> {
    Value::Text(text.into())
}

fn decimal(digits: &str) -> Value<'_> {
    Value::Decimal(digits.into())
}

fn date() -> Date {
    Date::new(2024, 2, 29).unwrap()
}

fn time() -> Time {
    Time::new(9, 5, 0, 0).unwrap()
}

fn moment() -> DateTime {
    DateTime::new(date(), time())
}

/// One value of every kind.
fn one_of_each() -> Vec<Value<'static>> {
    vec![
        Value::Null,
        Value::Bool(true),
        Value::Int(1),
        Value::UInt(1),
        Value::Float(1.5),
        decimal("2"),
        text("x"),
        Value::Bytes(Cow::Borrowed(b"abc")),
        Value::Date(date()),
        Value::Time(time()),
        Value::DateTime(moment()),
        Value::Timestamp(moment()),
        Value::Uuid([7; 16]),
        Value::Json("[1]".into()),
        Value::Array(vec![Value::Int(1)]),
    ]
}

#[track_caller]
fn refused<'r, T: FromValue<'r> + std::fmt::Debug>(value: Value<'r>) -> String {
    T::from_value(value).unwrap_err().to_string()
}

#[test]
fn every_integer_is_an_int() {
    assert_eq!(Value::from(-1_i8), Value::Int(-1));
    assert_eq!(Value::from(-1_i16), Value::Int(-1));
    assert_eq!(Value::from(-1_i32), Value::Int(-1));
    assert_eq!(Value::from(i64::MIN), Value::Int(i64::MIN));
    assert_eq!(Value::from(-1_isize), Value::Int(-1));
    assert_eq!(Value::from(1_u8), Value::Int(1));
    assert_eq!(Value::from(1_u16), Value::Int(1));
    assert_eq!(Value::from(u32::MAX), Value::Int(4_294_967_295));
    assert_eq!(Value::from(1_u64), Value::Int(1));
    assert_eq!(Value::from(1_usize), Value::Int(1));
}

#[test]
fn an_integer_that_no_int_holds_is_an_unsigned_int() {
    assert_eq!(Value::from(i64::MAX as u64), Value::Int(i64::MAX));
    let above = i64::MAX as u64 + 1;
    assert_eq!(Value::from(above), Value::UInt(above));
}

#[test]
fn texts_and_bytes_are_borrowed_where_they_can_be() {
    let owned = String::from("ada");
    let bytes = vec![1, 2];
    for borrowed in [
        Value::from("ada"),
        Value::from(&owned),
        Value::from(Cow::Borrowed("ada")),
        Value::from(&Cow::<str>::Owned(owned.clone())),
        Value::from(&Some(owned.clone())),
    ] {
        assert_eq!(borrowed, text("ada"));
        assert!(matches!(borrowed, Value::Text(Cow::Borrowed(_))));
    }
    for borrowed in [
        Value::from(&bytes),
        Value::from(&bytes[..]),
        Value::from(&[1_u8, 2]),
        Value::from(&Cow::<[u8]>::Owned(bytes.clone())),
        Value::from(&Some(bytes.clone())),
    ] {
        assert_eq!(borrowed, Value::Bytes(Cow::Borrowed(&[1, 2])));
        assert!(matches!(borrowed, Value::Bytes(Cow::Borrowed(_))));
    }
    assert_eq!(Value::from(owned), text("ada"));
    assert_eq!(Value::from(bytes), Value::Bytes(Cow::Borrowed(&[1, 2])));
}

#[test]
fn an_option_is_its_value_or_null() {
    assert_eq!(Value::from(Some(7)), Value::Int(7));
    assert_eq!(Value::from(Some("ada")), text("ada"));
    assert_eq!(Value::from(None::<i64>), Value::Null);
    assert_eq!(Value::from(&Some(7)), Value::Int(7));
    assert_eq!(Value::from(&None::<String>), Value::Null);
}

#[test]
fn other_types_become_their_own_values() {
    assert_eq!(Value::from(true), Value::Bool(true));
    assert_eq!(Value::from(1.5_f32), Value::Float(1.5));
    assert_eq!(Value::from(1.5_f64), Value::Float(1.5));
    assert_eq!(Value::from('ä'), text("ä"));
    assert_eq!(Value::from(date()), Value::Date(date()));
    assert_eq!(Value::from(&time()), Value::Time(time()));
    assert_eq!(Value::from(moment()), Value::DateTime(moment()));
}

#[test]
fn an_owned_and_a_borrowed_value_equal_the_original() {
    for value in one_of_each() {
        assert_eq!(value.as_borrowed(), value);
        assert_eq!(Value::from(&value), value);
        assert_eq!(value.clone().into_owned(), value);
    }
}

#[test]
fn every_kind_of_value_has_a_name_of_its_own() {
    let mut names: Vec<&str> = one_of_each().iter().map(Value::type_name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), one_of_each().len());
}

#[test]
fn an_int_is_every_integer_that_holds_it() {
    assert_eq!(i8::from_value(Value::Int(-128)).unwrap(), -128);
    assert_eq!(u8::from_value(Value::Int(255)).unwrap(), 255);
    assert_eq!(i32::from_value(Value::UInt(7)).unwrap(), 7);
    assert_eq!(u64::from_value(Value::UInt(u64::MAX)).unwrap(), u64::MAX);
    assert_eq!(usize::from_value(Value::Int(7)).unwrap(), 7);
}

#[test]
fn an_int_out_of_range_is_an_error_that_names_it() {
    assert_eq!(refused::<u8>(Value::Int(256)), "256 is out of range for u8");
    assert_eq!(refused::<u64>(Value::Int(-1)), "-1 is out of range for u64");
    assert_eq!(
        refused::<i64>(Value::UInt(u64::MAX)),
        "18446744073709551615 is out of range for i64"
    );
}

#[test]
fn a_whole_decimal_is_an_integer_and_no_other_is() {
    assert_eq!(i64::from_value(decimal("-12.00")).unwrap(), -12);
    assert_eq!(u8::from_value(decimal("255")).unwrap(), 255);
    assert_eq!(u8::from_value(decimal("-0")).unwrap(), 0);
    assert_eq!(
        refused::<i64>(decimal("12.50")),
        "12.50 is not whole, wanted i64"
    );
    assert_eq!(
        refused::<u8>(decimal("256.0")),
        "256.0 is out of range for u8"
    );
    let large = "9".repeat(60);
    assert_eq!(
        refused::<i64>(decimal(&large)),
        format!("{large} is out of range for i64")
    );
    assert_eq!(refused::<i64>(decimal("NaN")), "\"NaN\" is no i64");
}

#[test]
fn nothing_but_zero_and_one_is_a_bool() {
    assert!(!bool::from_value(Value::Bool(false)).unwrap());
    assert!(!bool::from_value(Value::Int(0)).unwrap());
    assert!(bool::from_value(Value::UInt(1)).unwrap());
    assert_eq!(refused::<bool>(Value::Int(2)), "2 is out of range for bool");
    assert_eq!(
        refused::<bool>(text("true")),
        "found text, wanted bool: use String or cast"
    );
}

#[test]
fn an_int_is_a_float_if_that_is_exact() {
    let exact = 1_i64 << 53;
    assert_eq!(f64::from_value(Value::Int(0)).unwrap(), 0.0);
    assert_eq!(f32::from_value(Value::UInt(0)).unwrap(), 0.0);
    assert_eq!(
        f64::from_value(Value::Int(exact)).unwrap(),
        9_007_199_254_740_992.0
    );
    assert_eq!(
        f64::from_value(Value::Int(i64::MIN)).unwrap(),
        -(2_f64.powi(63))
    );
    assert_eq!(
        f64::from_value(Value::UInt(1 << 63)).unwrap(),
        2_f64.powi(63)
    );
    assert_eq!(
        f32::from_value(Value::Int(-(1 << 24))).unwrap(),
        -16_777_216.0
    );
    assert_eq!(
        refused::<f64>(Value::Int(exact + 1)),
        "9007199254740993 cannot be an exact f64"
    );
    assert_eq!(
        refused::<f32>(Value::Int((1 << 24) + 1)),
        "16777217 cannot be an exact f32"
    );
    assert!(f64::from_value(Value::UInt(u64::MAX)).is_err());
}

#[test]
fn a_decimal_is_the_nearest_float() {
    assert_eq!(f64::from_value(decimal("12.50")).unwrap(), 12.5);
    assert_eq!(f64::from_value(decimal("0.1")).unwrap(), 0.1);
    assert_eq!(f32::from_value(decimal("0.1")).unwrap(), 0.1);
    assert_eq!(refused::<f64>(decimal("ten")), "\"ten\" is no f64");
}

#[test]
fn a_float_is_the_nearest_f32_unless_there_is_none() {
    assert_eq!(f32::from_value(Value::Float(0.1)).unwrap(), 0.1);
    assert!(f32::from_value(Value::Float(f64::NAN)).unwrap().is_nan());
    assert_eq!(
        f32::from_value(Value::Float(f64::INFINITY)).unwrap(),
        f32::INFINITY
    );
    assert!(refused::<f32>(Value::Float(1e300)).ends_with("is out of range for f32"));
}

#[test]
fn what_has_a_written_form_is_a_string() {
    for (value, written) in [
        (text("ada"), "ada"),
        (decimal("2.50"), "2.50"),
        (Value::Json("[1]".into()), "[1]"),
        (Value::Date(date()), "2024-02-29"),
        (Value::Time(time()), "09:05:00"),
        (Value::DateTime(moment()), "2024-02-29T09:05:00"),
        (Value::Timestamp(moment()), "2024-02-29T09:05:00Z"),
        (
            Value::Uuid(*b"\x67\xe5\x50\x44\x10\xb1\x42\x6f\x92\x47\xbb\x68\x0e\x5f\xe0\xc8"),
            "67e55044-10b1-426f-9247-bb680e5fe0c8",
        ),
    ] {
        assert_eq!(String::from_value(value.clone()).unwrap(), written);
        assert_eq!(Cow::<str>::from_value(value).unwrap(), written);
    }
    assert_eq!(
        refused::<String>(Value::Int(7)),
        "found int, wanted text: use i64 or cast"
    );
}

#[test]
fn a_str_and_a_slice_borrow_and_say_so_if_they_cannot() {
    assert_eq!(<&str>::from_value(text("ada")).unwrap(), "ada");
    assert_eq!(<&str>::from_value(decimal("2.50")).unwrap(), "2.50");
    let bytes = Value::Bytes(Cow::Borrowed(b"abc"));
    assert_eq!(<&[u8]>::from_value(bytes).unwrap(), b"abc");
    assert_eq!(
        refused::<&str>(Value::from(String::from("ada"))),
        "found text that the row cannot lend, wanted &str: use String"
    );
    assert_eq!(
        refused::<&[u8]>(Value::from(vec![1_u8])),
        "found bytes that the row cannot lend, wanted &[u8]: use Vec<u8>"
    );
    assert_eq!(
        refused::<&str>(Value::Date(date())),
        "found date, wanted &str: use Date or cast"
    );
}

#[test]
fn bytes_are_bytes_and_text_is_not() {
    let bytes = || Value::Bytes(Cow::Borrowed(b"abc"));
    assert_eq!(Vec::<u8>::from_value(bytes()).unwrap(), b"abc");
    assert_eq!(Cow::<[u8]>::from_value(bytes()).unwrap(), &b"abc"[..]);
    assert_eq!(<[u8; 3]>::from_value(bytes()).unwrap(), *b"abc");
    assert_eq!(
        refused::<[u8; 4]>(bytes()),
        "found 3 bytes, wanted 4 of them"
    );
    assert_eq!(
        refused::<Vec<u8>>(text("abc")),
        "found text, wanted bytes: use String or cast"
    );
}

#[test]
fn a_char_is_a_text_of_one() {
    assert_eq!(char::from_value(text("ä")).unwrap(), 'ä');
    assert_eq!(refused::<char>(text("")), "\"\" is no char");
    assert_eq!(refused::<char>(text("ab")), "\"ab\" is no char");
}

#[test]
fn days_and_times_are_read_from_text_too() {
    assert_eq!(Date::from_value(text("2024-02-29")).unwrap(), date());
    assert_eq!(Time::from_value(text("09:05:00")).unwrap(), time());
    assert_eq!(
        DateTime::from_value(text("2024-02-29 09:05:00")).unwrap(),
        moment()
    );
    assert_eq!(
        DateTime::from_value(text("2024-02-29T11:05:00+02:00")).unwrap(),
        moment()
    );
    assert_eq!(
        DateTime::from_value(Value::Timestamp(moment())).unwrap(),
        moment()
    );
    assert_eq!(refused::<Date>(text("today")), "\"today\" is no Date");
    assert_eq!(
        refused::<Date>(Value::DateTime(moment())),
        "found datetime, wanted Date: use DateTime or cast"
    );
}

#[test]
fn null_needs_an_option() {
    assert_eq!(Option::<i64>::from_value(Value::Null).unwrap(), None);
    assert_eq!(Option::<i64>::from_value(Value::Int(7)).unwrap(), Some(7));
    assert_eq!(
        refused::<i64>(Value::Null),
        "found NULL, wanted i64; an Option takes NULL"
    );
    assert_eq!(
        refused::<Option<i64>>(text("7")),
        "found text, wanted i64: use String or cast"
    );
}

/// Each type takes these kinds of the values above and refuses all others with both names.
#[test]
fn value_of_another_kind_is_refused_with_found_and_wanted_kind() {
    fn check<T>(wanted: &str, takes: &[&str])
    where
        T: for<'r> FromValue<'r> + std::fmt::Debug,
    {
        for value in one_of_each() {
            let found = value.type_name();
            match T::from_value(value) {
                Ok(taken) => assert!(takes.contains(&found), "{wanted} from {found}: {taken:?}"),
                Err(error) if takes.contains(&found) => panic!("{wanted} from {found}: {error}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.starts_with(&format!("found {found}, wanted {wanted}")),
                        "{error}"
                    );
                }
            }
        }
    }
    check::<u64>("u64", &["int", "unsigned int", "decimal"]);
    check::<bool>("bool", &["bool", "int", "unsigned int"]);
    check::<f64>("f64", &["int", "unsigned int", "float", "decimal"]);
    check::<f32>("f32", &["int", "unsigned int", "float", "decimal"]);
    let sequences = match cfg!(feature = "json") {
        true => &["bytes", "array", "json"][..],
        false => &["bytes", "array"],
    };
    check::<Vec<u8>>("bytes", sequences);
    check::<Vec<i64>>("an array", &sequences[1..]);
    check::<char>("char", &["text"]);
    let written = [
        "decimal",
        "text",
        "json",
        "date",
        "time",
        "datetime",
        "timestamptz",
        "uuid",
    ];
    check::<String>("text", &written);
}

#[test]
fn a_type_of_ones_own_can_be_a_value_and_come_back() {
    #[derive(Debug, PartialEq)]
    struct Meters(f64);

    impl From<Meters> for Value<'_> {
        fn from(length: Meters) -> Self {
            length.0.into()
        }
    }

    impl<'r> FromValue<'r> for Meters {
        fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
            f64::from_value(value).map(Meters)
        }
    }

    assert_eq!(Meters::from_value(Meters(1.5).into()).unwrap(), Meters(1.5));
}

proptest! {
    #[test]
    fn every_i64_comes_back_as_itself_and_fits_only_where_it_fits(number: i64) {
        let value = || Value::from(number);
        prop_assert_eq!(i64::from_value(value()).unwrap(), number);
        prop_assert_eq!(i8::from_value(value()).ok(), i8::try_from(number).ok());
        prop_assert_eq!(u16::from_value(value()).ok(), u16::try_from(number).ok());
        prop_assert_eq!(i32::from_value(value()).ok(), i32::try_from(number).ok());
        prop_assert_eq!(u64::from_value(value()).ok(), u64::try_from(number).ok());
        let digits = number.to_string();
        prop_assert_eq!(i64::from_value(decimal(&digits)).unwrap(), number);
    }

    #[test]
    fn every_u64_comes_back_as_itself(number: u64) {
        prop_assert_eq!(u64::from_value(Value::from(number)).unwrap(), number);
        prop_assert_eq!(u64::from_value(Value::UInt(number)).unwrap(), number);
    }

    #[test]
    fn an_int_as_a_float_is_the_very_same_number(number: i64, zeros in 0..64_u32) {
        let number = number.checked_shr(zeros).unwrap() << (zeros / 2);
        match f64::from_value(Value::Int(number)) {
            Ok(float) => prop_assert_eq!(format!("{float:.0}"), number.to_string()),
            // The nearest float has other digits.
            Err(_) => prop_assert_ne!(format!("{:.0}", number as f64), number.to_string()),
        }
    }

    #[test]
    fn every_float_comes_back_as_itself(number: f64, small: f32) {
        prop_assert_eq!(f64::from_value(Value::from(number)).unwrap().to_bits(), number.to_bits());
        prop_assert_eq!(f32::from_value(Value::from(small)).unwrap().to_bits(), small.to_bits());
    }

    #[test]
    fn every_text_and_all_bytes_come_back_as_themselves(text: String, bytes: Vec<u8>) {
        prop_assert_eq!(<&str>::from_value(Value::from(&text)).unwrap(), text.as_str());
        prop_assert_eq!(<&[u8]>::from_value(Value::from(&bytes)).unwrap(), bytes.as_slice());
    }

    #[test]
    fn taking_any_text_as_anything_never_panics(text: String) {
        for value in [Value::Text((&text).into()), Value::Decimal((&text).into()), Value::Json((&text).into())] {
            let _ = i64::from_value(value.clone());
            let _ = f64::from_value(value.clone());
            let _ = f32::from_value(value.clone());
            let _ = bool::from_value(value.clone());
            let _ = char::from_value(value.clone());
            let _ = Date::from_value(value.clone());
            let _ = Time::from_value(value.clone());
            let _ = DateTime::from_value(value);
        }
    }
}
