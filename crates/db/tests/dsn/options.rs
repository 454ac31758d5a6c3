//! A driver takes options one by one, and none is left unseen.

use std::time::Duration;

use cenote::Kind;
use cenote::driver::{Dsn, Options};

fn parse(text: &str) -> Dsn {
    Dsn::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn given<const N: usize>(pairs: [(&str, &str); N]) -> Options {
    let mut options = Options::new();
    for (name, value) in pairs {
        options.set(name, value);
    }
    options
}

/// Names and ports of hosts, in order.
type Hosts = &'static [(&'static str, Option<u16>)];

/// The message of the error that this call of a reader must end with.
macro_rules! refused {
    ($dsn:expr, $($call:tt)*) => {{
        let dsn = parse($dsn);
        let options = Options::new();
        let error = dsn.reader(&options).$($call)*.expect_err($dsn);
        assert_eq!(error.kind(), Kind::Config);
        error.to_string()
    }};
}

/// What this call of a reader gives.
macro_rules! read {
    ($dsn:expr, $($call:tt)*) => {{
        let dsn = parse($dsn);
        let options = Options::new();
        dsn.reader(&options).$($call)*.expect($dsn)
    }};
}

#[test]
fn what_was_taken_is_gone_and_what_is_missing_is_none() {
    let dsn = parse("pgsql:host=a;Port=7");
    let options = Options::new();
    let mut reader = dsn.reader(&options);
    assert_eq!(reader.take("host"), Some("a"));
    assert_eq!(reader.take("host"), None);
    assert_eq!(reader.take("dbname"), None);
    assert_eq!(reader.take_parsed::<u16>("port").unwrap(), Some(7));
    assert_eq!(reader.take_parsed::<u16>("port").unwrap(), None);
    reader.finish().unwrap();
}

#[test]
fn an_option_of_the_builder_goes_before_the_same_one_of_the_dsn() {
    let dsn = parse("sqlite:x?mode=ro&cache=shared");
    let options = given([("MODE", "rw"), ("busy_timeout", "5s")]);
    let mut reader = dsn.reader(&options);
    assert_eq!(reader.take("mode"), Some("rw"));
    assert_eq!(reader.take("mode"), None);
    assert_eq!(
        reader.take_rest(),
        [("cache", "shared"), ("busy_timeout", "5s")]
    );
    reader.finish().unwrap();
}

#[test]
fn the_last_of_two_options_of_one_name_holds() {
    let options = given([("a", "1"), ("b", "2"), ("A", "3")]);
    assert_eq!(options.get("a"), Some("3"));
    assert_eq!(options.iter().collect::<Vec<_>>(), [("b", "2"), ("A", "3")]);
    assert!(!options.is_empty());
    assert!(Options::new().is_empty());
}

#[test]
fn an_unknown_option_is_an_error_that_names_it_and_the_driver() {
    let rows = [
        ("sqlite:x?colour=red", given([])),
        ("sqlite:x?mode=ro", given([("colour", "red")])),
        ("sqlite:x?colour=red&zebra=1", given([("mode", "ro")])),
    ];
    for (text, options) in rows {
        let dsn = parse(text);
        let mut reader = dsn.reader(&options);
        reader.take("mode");
        reader.take("busy_timeout");
        let error = reader.finish().unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert_eq!(
            error.to_string(),
            "sqlite has no option colour; it has mode, busy_timeout"
        );
    }
}

#[test]
fn misspelt_option_is_answered_with_the_likely_name() {
    let rows = [
        ("busy_timout", Some("busy_timeout")),
        ("bsuy_timeout", Some("busy_timeout")),
        ("busytimeout", Some("busy_timeout")),
        ("Busy-Timeout", Some("busy_timeout")),
        ("jurnal_mdoe", Some("journal_mode")),
        ("made", Some("mode")),
        ("moode", Some("mode")),
        ("dome", None),
        ("timeout", None),
        ("x", None),
    ];
    for (typed, meant) in rows {
        let dsn = parse("sqlite:x");
        let options = given([(typed, "1")]);
        let mut reader = dsn.reader(&options);
        for known in ["mode", "busy_timeout", "journal_mode"] {
            reader.take(known);
        }
        let message = reader.finish().unwrap_err().to_string();
        match meant {
            Some(meant) => {
                let advice = format!("sqlite has no option {typed}; did you mean {meant}?");
                assert_eq!(message, advice);
            }
            None => assert!(!message.contains("did you mean"), "{message}"),
        }
    }
}

#[test]
fn a_driver_without_options_refuses_options() {
    let dsn = parse("own:a=1");
    let message = dsn
        .reader(&Options::new())
        .finish()
        .unwrap_err()
        .to_string();
    assert_eq!(message, "own has no option a; it has none");
}

#[test]
fn the_name_of_an_unknown_option_cannot_break_the_line() {
    let dsn = parse("sqlite:x");
    let options = given([("a\nb", "1")]);
    let message = dsn.reader(&options).finish().unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn unreadable_value_is_an_error_naming_option_driver_and_value() {
    let second = Duration::from_secs(1);
    let messages = [
        refused!("mysql:x=red", take_parsed::<u16>("x")),
        refused!("mysql:x=red", take_bool("x")),
        refused!("mysql:x=red", take_size("x")),
        refused!("mysql:x=red", take_duration("x", second)),
        refused!(
            "mysql:x=red",
            take_choice("x", &[("green", 1), ("blue", 2)])
        ),
        refused!("mysql://h?x=red", take_bool("x")),
    ];
    for message in &messages {
        let wanted = r#"the option x of mysql is "red", which is "#;
        assert!(message.starts_with(wanted), "{message}");
    }
    assert!(messages[4].ends_with("is none of green, blue"));
}

#[test]
fn error_quotes_the_start_of_a_long_value_in_one_line() {
    let dsn = parse("own:x=1");
    let mut options = Options::new();
    options.set("x", "a\nb".repeat(1000));
    let error = dsn.reader(&options).take_bool("x").unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1);
    assert!(error.len() < 250, "{error}");
}

#[test]
fn an_error_about_a_secret_option_does_not_quote_it() {
    let message = refused!(
        "own:access_token=hunter2",
        take_parsed::<u16>("access_token")
    );
    assert_eq!(
        message,
        "the option access_token of own has a value that cannot be read"
    );
}

#[test]
fn a_driver_can_refuse_an_option_in_its_own_words() {
    let dsn = parse("own:a=1");
    let options = Options::new();
    let error = dsn.reader(&options).error("a", "cannot be odd");
    assert_eq!(error.kind(), Kind::Config);
    assert_eq!(error.to_string(), "the option a of own cannot be odd");
}

#[test]
fn booleans_have_eight_words() {
    for (word, value) in [
        ("1", true),
        ("true", true),
        ("ON", true),
        ("Yes", true),
        ("0", false),
        ("false", false),
        ("off", false),
        ("NO", false),
    ] {
        let read = read!(&format!("own:x={word}"), take_bool("x"));
        assert_eq!(read, Some(value), "{word}");
    }
    for word in ["", "2", "y", "truee", "-1"] {
        refused!(&format!("own:x={word}"), take_bool("x"));
    }
    assert_eq!(read!("own:y=1", take_bool("x")), None);
}

#[test]
fn durations_have_units_and_a_bare_number_uses_the_drivers_unit() {
    let millis = Duration::from_millis;
    for (text, wanted) in [
        ("250ms", millis(250)),
        ("5s", millis(5_000)),
        ("5 s", millis(5_000)),
        ("5sec", millis(5_000)),
        ("1.5S", millis(1_500)),
        ("2min", millis(120_000)),
        ("2m", millis(120_000)),
        ("1h", millis(3_600_000)),
        ("1d", millis(86_400_000)),
        ("7us", Duration::from_micros(7)),
        ("0", millis(0)),
        ("0.1s", millis(100)),
        ("100000000s", Duration::from_secs(100_000_000)),
    ] {
        let read = read!(&format!("own:x={text}"), take_duration("x", millis(1)));
        assert_eq!(read, Some(wanted), "{text}");
    }
    assert_eq!(
        read!("own:x=30", take_duration("x", millis(1))),
        Some(millis(30))
    );
    assert_eq!(
        read!("own:x=30", take_duration("x", millis(1000))),
        Some(Duration::from_secs(30))
    );
    for text in [
        "",
        "s",
        "-5s",
        "+5s",
        "5 parsecs",
        "5ss",
        "1s5",
        "inf",
        "nan",
        "1e300d",
        "5,5s",
        "٣s",
    ] {
        let call = format!("own:x={text}");
        let message = refused!(&call, take_duration("x", millis(1)));
        assert!(message.starts_with("the option x of own is "), "{message}");
    }
}

#[test]
fn sizes_have_units_of_1024() {
    for (text, wanted) in [
        ("0", 0),
        ("4096", 4096),
        ("10B", 10),
        ("64k", 65_536),
        ("64 KB", 65_536),
        ("16MiB", 16_777_216),
        ("1g", 1_073_741_824),
        ("2TiB", 2_199_023_255_552),
    ] {
        assert_eq!(
            read!(&format!("own:x={text}"), take_size("x")),
            Some(wanted),
            "{text}"
        );
    }
    for text in [
        "",
        "k",
        "-1",
        "+1",
        "1.5M",
        "1Q",
        "99999999999999999999",
        "18446744073709551615k",
    ] {
        refused!(&format!("own:x={text}"), take_size("x"));
    }
}

#[test]
fn a_choice_is_known_by_its_word_in_any_case() {
    let choices = [("wal", 1), ("delete", 2)];
    assert_eq!(read!("own:x=WAL", take_choice("x", &choices)), Some(1));
    assert_eq!(read!("own:y=WAL", take_choice("x", &choices)), None);
}

#[test]
fn hosts_and_ports_are_paired_whichever_way_they_were_written() {
    let rows: &[(&str, Hosts)] = &[
        ("pgsql:dbname=x", &[]),
        ("pgsql:host=a", &[("a", None)]),
        ("pgsql:port=7", &[("", Some(7))]),
        ("pgsql:host=a port=7", &[("a", Some(7))]),
        (
            "pgsql:host=a,b,/run port=7",
            &[("a", Some(7)), ("b", Some(7)), ("/run", Some(7))],
        ),
        ("pgsql:host=a,b port=7,8", &[("a", Some(7)), ("b", Some(8))]),
        ("pgsql:host=a,b port=,8", &[("a", None), ("b", Some(8))]),
        ("mysql:host=[::1];port=7", &[("::1", Some(7))]),
        ("pgsql:host=::1", &[("::1", None)]),
        ("postgres://a,b:8/x", &[("a", None), ("b", Some(8))]),
        (
            "postgres://[::1]:7,%2Frun/x",
            &[("::1", Some(7)), ("/run", None)],
        ),
        ("postgres:///x?host=/run", &[("/run", None)]),
        ("postgres://:7/x", &[("", Some(7))]),
    ];
    for (text, wanted) in rows {
        let hosts = read!(text, take_hosts());
        let hosts: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.port)).collect();
        assert_eq!(hosts, *wanted, "{text}");
    }
    let sockets = read!("pgsql:host=/run,@abstract,a", take_hosts());
    let sockets: Vec<_> = sockets.iter().map(|host| host.is_socket()).collect();
    assert_eq!(sockets, [true, true, false]);
}

#[test]
fn ports_that_do_not_fit_are_an_error_that_names_the_option() {
    let message = refused!("pgsql:host=a,b,c port=1,2", take_hosts());
    assert_eq!(message, "the option port of pgsql has 2 ports for 3 hosts");
    for ports in ["0", "65536", "x", "1,x", "+5"] {
        let message = refused!(&format!("pgsql:host=a,b port={ports}"), take_hosts());
        assert!(
            message.starts_with("the option port of pgsql is "),
            "{message}"
        );
    }
}
