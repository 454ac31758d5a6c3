//! Parameters, and how they meet the placeholders.
#![allow(
    clippy::needless_borrows_for_generic_args,
    reason = "what is lent and what is given away are different parameters"
)]

use std::borrow::Cow;

use cenote::driver::{Native, Param};
use cenote::sql::Placeholders;
use cenote::{Error, IntoParams, Kind, Named, Params, Value, named, native};
use proptest::prelude::*;

/// Those parameters, which are all neutral.
fn values<'a>(params: Vec<Param<'a>>) -> Vec<Value<'a>> {
    let value = |param| match param {
        Param::Value(value) => value,
        Param::Native(native) => panic!("{native:?} is not neutral"),
    };
    params.into_iter().map(value).collect()
}

/// What is given for so many `?`.
#[track_caller]
fn positional<'a>(params: impl IntoParams<'a>, count: usize) -> Vec<Value<'a>> {
    let params = params.into_params().unwrap();
    assert_eq!(params.len(), count);
    values(params.bind(&Placeholders::Positional(count)).unwrap())
}

#[track_caller]
fn refused<'a>(params: impl IntoParams<'a>, placeholders: &Placeholders<'_>) -> String {
    let params = params.into_params().unwrap();
    let error: Error = params.bind(placeholders).unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    error.message().to_owned()
}

fn names_at<'s>(names: &[&'s str]) -> Placeholders<'s> {
    Placeholders::Named(names.to_vec())
}

fn ints(numbers: impl IntoIterator<Item = i64>) -> Vec<Value<'static>> {
    numbers.into_iter().map(Value::Int).collect()
}

#[test]
fn no_parameters_fit_sql_without_placeholders() {
    let none = ().into_params().unwrap();
    assert!(none.is_empty());
    assert!(none.bind(&Placeholders::None).unwrap().is_empty());
    let named = named! {}.into_params().unwrap();
    assert!(named.bind(&Placeholders::None).unwrap().is_empty());
}

#[test]
fn a_tuple_gives_its_values_in_order() {
    assert_eq!(positional((1,), 1), ints([1]));
    assert_eq!(
        positional((1, "ada", None::<i64>, true), 4),
        [1.into(), "ada".into(), Value::Null, true.into()]
    );
}

#[test]
fn a_tuple_may_have_sixteen_values() {
    let sixteen = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    assert_eq!(positional(sixteen, 16), ints(1..=16));
}

#[test]
fn arrays_slices_and_vectors_give_their_values_in_order() {
    let (array, numbers) = ([1, 2, 3], vec![1_i64, 2, 3]);
    assert_eq!(positional([1, 2, 3], 3), ints([1, 2, 3]));
    assert_eq!(positional(&array, 3), ints([1, 2, 3]));
    assert_eq!(positional(&numbers[..], 3), ints([1, 2, 3]));
    assert_eq!(positional(&numbers, 3), ints([1, 2, 3]));
    assert_eq!(positional(numbers, 3), ints([1, 2, 3]));
}

#[test]
fn a_slice_may_be_of_texts_options_values_and_parameters() {
    let names = [String::from("ada"), String::from("grace")];
    assert_eq!(
        positional(&names, 2),
        ["ada".into(), "grace".into()] as [Value<'_>; 2]
    );
    let (texts, options) = (["ada"], [Some(1), None]);
    assert_eq!(positional(&texts, 1), [Value::from("ada")]);
    assert_eq!(positional(&options, 2), [1.into(), Value::Null]);
    let mixed = [Value::from(1), Value::from("ada")];
    assert_eq!(positional(&mixed, 2), mixed);
    let params = vec![Param::Value(Value::Int(1))];
    assert_eq!(positional(&params, 1), ints([1]));
    assert_eq!(positional(params, 1), ints([1]));
}

#[test]
fn texts_of_a_slice_are_not_copied() {
    let names = [String::from("ada")];
    let bound = positional(&names, 1);
    assert!(
        matches!(bound[0], Value::Text(Cow::Borrowed(text)) if text.as_ptr() == names[0].as_ptr())
    );
}

#[test]
fn named_values_go_where_their_names_stand() {
    let params = named! { min: 18, name: "ada" }.into_params().unwrap();
    let bound = params.bind(&names_at(&["name", "min"])).unwrap();
    assert_eq!(values(bound), ["ada".into(), 18.into()] as [Value<'_>; 2]);
}

#[test]
fn a_name_at_several_places_is_given_to_each() {
    let params = named! { a: String::from("one"), b: 2, }
        .into_params()
        .unwrap();
    let bound = params.bind(&names_at(&["a", "b", "a", "a"])).unwrap();
    let one = || Value::from("one");
    assert_eq!(values(bound), [one(), 2.into(), one(), one()]);
}

#[test]
fn a_name_may_be_a_word_of_rust() {
    let params = named! { type: 1, r#fn: 2 }.into_params().unwrap();
    let bound = params.bind(&names_at(&["fn", "type"])).unwrap();
    assert_eq!(values(bound), ints([2, 1]));
}

#[test]
fn names_may_be_made_at_run_time() {
    let mut params = Named::new();
    for n in 0..3 {
        params = params.with(format!("p{n}"), n);
    }
    let params = params.into_params().unwrap();
    let bound = params.bind(&names_at(&["p2", "p1", "p0"])).unwrap();
    assert_eq!(values(bound), ints([2, 1, 0]));
}

#[test]
fn a_wrong_number_of_values_is_an_error_with_both_numbers() {
    let two = Placeholders::Positional(2);
    assert_eq!(
        refused((1, 2, 3), &two),
        "the SQL has 2 placeholders and 3 values were given"
    );
    assert_eq!(
        refused((1,), &two),
        "the SQL has 2 placeholders and 1 value was given"
    );
    assert_eq!(
        refused((), &two),
        "the SQL has 2 placeholders and no value was given"
    );
    assert_eq!(
        refused((1, 2), &Placeholders::Positional(1)),
        "the SQL has 1 placeholder and 2 values were given"
    );
    assert_eq!(
        refused((1,), &Placeholders::None),
        "the SQL has no placeholders and 1 value was given"
    );
}

#[test]
fn a_name_without_a_value_is_an_error_that_names_it() {
    let names = names_at(&["min", "max"]);
    assert_eq!(
        refused(named! { min: 1 }, &names),
        "no value was given for :max"
    );
    assert_eq!(refused(named! {}, &names), "no value was given for :min");
    assert_eq!(refused((), &names), "no value was given for :min");
}

#[test]
fn a_value_without_a_place_is_an_error_that_names_it() {
    let names = names_at(&["min"]);
    assert_eq!(
        refused(named! { min: 1, colour: 2 }, &names),
        "the SQL has no placeholder :colour"
    );
    assert_eq!(
        refused(named! { min: 1 }, &Placeholders::None),
        "the SQL has no placeholder :min"
    );
}

#[test]
fn a_mistyped_name_is_reported_with_the_closest_name() {
    for (given, meant) in [
        ("mim", "min"),
        ("mn", "min"),
        ("miin", "min"),
        ("MIN", "min"),
        ("imn", "min"),
        ("user_nmae", "user_name"),
        ("username", "user_name"),
    ] {
        let params = Named::new().with(given, 1);
        let names = names_at(&["unlike_all_others", "min", "user_name"]);
        assert_eq!(
            refused(params, &names),
            format!(
                "the SQL has no placeholder :{given}; :{meant} has no value, did you mean that?"
            )
        );
    }
    let other = Named::new().with("fax", 1);
    assert_eq!(
        refused(other, &names_at(&["min"])),
        "the SQL has no placeholder :fax"
    );
}

#[test]
fn two_values_for_one_name_are_an_error() {
    let twice = named! { a: 1, a: 2 };
    assert_eq!(
        refused(twice, &names_at(&["a"])),
        "two values were given for :a"
    );
}

#[test]
fn unnamed_values_do_not_fit_names_and_named_ones_no_positions() {
    assert_eq!(
        refused((1, 2), &names_at(&["min", "max"])),
        "the placeholders of the SQL have names, such as :min, and 2 values were given without a name"
    );
    assert_eq!(
        refused(named! { min: 1 }, &Placeholders::Positional(2)),
        "the SQL has 2 placeholders without names, and a value was given for :min"
    );
    assert_eq!(
        refused(named! {}, &Placeholders::Positional(2)),
        "the SQL has 2 placeholders and no value was given"
    );
}

#[test]
fn a_native_parameter_reaches_the_driver_as_it_is() {
    #[derive(Debug, PartialEq)]
    struct Point(i32, i32);

    let params = (1, native(Point(3, 4))).into_params().unwrap();
    let bound = params.bind(&Placeholders::Positional(2)).unwrap();
    let Param::Native(Native { type_name, value }) = &bound[1] else {
        panic!("{bound:?}");
    };
    assert!(type_name.ends_with("Point"), "{type_name}");
    assert_eq!(value.downcast_ref(), Some(&Point(3, 4)));
}

#[cfg(feature = "json")]
mod json {
    use std::collections::HashMap;

    use cenote::{IntoParams, Json, Kind, named};

    use super::{Value, positional};

    #[test]
    fn serde_types_are_written_as_json() {
        let document = Json(vec![1, 2]);
        let written = Value::Json("[1,2]".into());
        assert_eq!(
            positional((&document, Some(document.clone())), 2),
            [written.clone(), written]
        );
        assert_eq!(positional((None::<Json<i32>>,), 1), [Value::Null]);
        let value = serde_json::json!({ "a": null });
        assert_eq!(
            positional((value,), 1),
            [Value::Json(r#"{"a":null}"#.into())]
        );
    }

    #[test]
    fn what_has_no_json_form_is_an_error_when_it_is_used() {
        let odd = || Json(HashMap::from([((1, 2), 3)]));
        let error = (odd(),).into_params().unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
        assert!(error.message().contains("has no JSON form"), "{error}");
        let error = named! { fine: 1, odd: odd() }.into_params().unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
    }
}

proptest! {
    /// Against a map from names to values.
    #[test]
    fn names_meet_their_values_in_whatever_order(
        names in proptest::collection::vec("[a-c]{1,2}", 0..8),
        given in proptest::collection::vec(("[a-c]{1,2}", any::<i64>()), 0..8),
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let value_of = |name: &str| given.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        let is_repeated = given.iter().enumerate().any(|(at, (name, _))| {
            given[..at].iter().any(|(other, _)| other == name)
        });
        let is_unknown = given.iter().any(|(name, _)| !names.contains(&name.as_str()));
        let wanted: Option<Vec<i64>> = names.iter().map(|name| value_of(name)).collect();

        let pairs = given.iter().map(|(name, value)| (name.as_str().into(), Param::Value((*value).into())));
        let bound = Params::Named(pairs.collect()).bind(&Placeholders::Named(names.clone()));
        match wanted {
            Some(wanted) if !is_repeated && !is_unknown => {
                prop_assert_eq!(values(bound.unwrap()), ints(wanted));
            }
            _ => prop_assert_eq!(bound.unwrap_err().kind(), Kind::Parameters),
        }
    }
}
