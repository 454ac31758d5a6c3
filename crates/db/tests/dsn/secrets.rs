//! Nothing that is shown of a DSN, of options or of credentials has a secret in it.

use cenote::Kind;
use cenote::driver::{Credentials, Dsn, Options, Secret};
use proptest::prelude::*;

const WORD: &str = "hunter2";

/// Everything that can be printed about this text as a DSN.
fn everything_shown(text: &str) -> String {
    match Dsn::parse(text) {
        Ok(dsn) => {
            let options = Options::new();
            let reader = dsn.reader(&options);
            let credentials = dsn.credentials();
            let shown = format!("{dsn} {dsn:?} {dsn:#?} {reader:?} {credentials:?}");
            let finished = reader.finish();
            format!("{shown} {finished:?}")
        }
        Err(error) => format!("{error} {error:?} {error:#?}"),
    }
}

#[test]
fn a_dsn_is_shown_with_stars_for_its_password() {
    let rows = [
        ("postgres://app:hunter2@h/db", "postgres://app:***@h/db"),
        ("postgres://:hunter2@h/db", "postgres://:***@h/db"),
        ("postgres://app@h/db", "postgres://app@h/db"),
        (
            "postgres://me@corp:hunter2@x@h/db",
            "postgres://me@corp:***@h/db",
        ),
        (
            "postgres://h/db?password=hunter2&a=1",
            "postgres://h/db?password=***&a=1",
        ),
        (
            "postgres://h/db?pass%77ord=hunter2",
            "postgres://h/db?pass%77ord=***",
        ),
        (
            "postgres://h/db?sslpassword=hunter2",
            "postgres://h/db?sslpassword=***",
        ),
        (
            "pgsql:host=h password='hunter2 x'",
            "pgsql:host=h;password=***",
        ),
        ("pgsql:host=h PassWord=hunter2", "pgsql:host=h;PassWord=***"),
        ("mysql:host=h;passwd=hunter2", "mysql:host=h;passwd=***"),
        ("odbc:DSN=x;PWD={hunter2;}}};A=1", "odbc:DSN=x;PWD=***;A=1"),
        (
            "pgsql:dbname=postgres://u:hunter2@h/x",
            "pgsql:dbname=***@h/x",
        ),
        (
            "postgres:///?dbname=a%3A%2F%2Fu%3Ahunter2%40h",
            "postgres:///?dbname=***",
        ),
        (
            "sqlite:x.db?key=hunter2&mode=ro",
            "sqlite:x.db?key=***&mode=ro",
        ),
        (
            "sqlite:file:x?hexkey=hunter2&mode=ro",
            "sqlite:file:x?hexkey=***&mode=ro",
        ),
        (
            "sqlite:file:x?%hexkey=hunter2&mode=ro",
            "sqlite:file:x?***&mode=ro",
        ),
        ("app:hunter2@h/db", "app:***"),
        ("jdbc:postgresql://h/db?password=hunter2", "jdbc:***"),
    ];
    for (text, shown) in rows {
        let dsn = Dsn::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(dsn.to_string(), shown, "{text}");
        assert_eq!(format!("{dsn:?}"), format!("Dsn({shown})"), "{text}");
        assert!(!everything_shown(text).contains(WORD), "{text}");
    }
}

#[test]
fn a_malformed_dsn_gives_an_error_without_its_password() {
    let texts = [
        "hunter2",
        "postgres//u:hunter2@h/db",
        "postgres://u:hunter2%@h/db",
        "postgres://u:hunter2/x@h/db",
        "postgres://u:hunter2?x=@h/db",
        "postgres://u:hunter2",
        "postgres://u:hunter2@h:x/db",
        "postgres://u:hunter2@[::1/db",
        "postgres://u:1/hunter2=@h/db",
        "postgres://u:1?hunter2=@h/db",
        "postgres://u:1?a=hunter2@h/db",
        "postgres://h/?password=hunter2&password=hunter2",
        "postgres://h/?password=%hunter2",
        "sqlite://u:hunter2@h/db",
        "sqlite://u:1?x=hunter2@h/db",
        "pgsql:password=x hunter2",
        "pgsql:password='x'hunter2",
        "pgsql:password='hunter2",
        "odbc:PWD={x}hunter2;a=b",
        "odbc:PWD={hunter2",
        "odbc:PWD=x;hunter2",
        "mysql:password=x;hunter2",
        "mysql:pwd=hunter2;password=hunter2",
    ];
    for text in texts {
        assert!(Dsn::parse(text).is_err(), "{text}");
        let shown = everything_shown(text);
        assert!(!shown.contains(WORD), "{text}: {shown}");
    }
}

#[test]
fn options_show_stars_for_those_that_are_secret_by_their_name() {
    let mut options = Options::new();
    options.set("mode", "ro");
    options.set("Access_Token", "hunter2");
    options.set("proxy", "http://u:hunter2@h");
    assert_eq!(
        format!("{options:?}"),
        r#"{"mode": "ro", "Access_Token": "***", "proxy": "***@h"}"#
    );
    assert_eq!(options.get("access_token"), Some("hunter2"));
}

#[test]
fn a_secret_is_printed_as_stars_whatever_is_in_it() {
    for text in ["", "x", "hunter2"] {
        assert_eq!(format!("{:?}", Secret::from(text)), "Secret(***)");
        assert_eq!(
            format!("{:#?}", Secret::from(text.to_owned())),
            "Secret(***)"
        );
    }
    let credentials = Credentials::new("app", WORD);
    assert_eq!(
        format!("{credentials:?}"),
        r#"Credentials { user: Some("app"), password: Some(Secret(***)) }"#
    );
    let provider = credentials.into_provider();
    assert!(!format!("{provider:?} {provider:#?}").contains(WORD));
}

#[test]
fn the_first_credentials_go_before_the_others_field_by_field() {
    let from_dsn = Dsn::parse("postgres://app:hunter2@h")
        .unwrap()
        .credentials();
    let mut from_builder = Credentials::default();
    from_builder.user = Some("admin".to_owned());
    let merged = from_builder.or(from_dsn);
    assert_eq!(merged, Credentials::new("admin", "hunter2"));
}

proptest! {
    #[test]
    fn parsing_never_panics_and_an_error_is_one_line(text in ".{0,80}") {
        if let Err(error) = Dsn::parse(&text) {
            prop_assert_eq!(error.kind(), Kind::Config);
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn nothing_made_of_the_characters_that_matter_panics(
        driver in "sqlite|pgsql|mysql|odbc|own",
        rest in r"(//)?[a-c1é%/?&=;:@,'{}\[\]\\ \n\x00]{0,40}",
    ) {
        let text = format!("{driver}:{rest}");
        let _ = everything_shown(&text);
        if let Ok(dsn) = Dsn::parse(&text) {
            prop_assert_eq!(dsn.rest(), rest);
            prop_assert_eq!(dsn.to_string().lines().count(), 1);
            let options = Options::new();
            let mut reader = dsn.reader(&options);
            let _ = reader.take_hosts();
            let _ = reader.take_bool("a");
            let _ = reader.take_size("b");
            let _ = reader.take_duration("c", std::time::Duration::MAX);
        }
    }

    #[test]
    fn a_password_survives_every_way_of_writing_it(password in "[^\0]{1,20}") {
        let backslashed = password.replace('\\', r"\\").replace('\'', r"\'");
        let mut encoded = String::new();
        for byte in password.bytes() {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        let texts = [
            format!("pgsql:password='{backslashed}' host=h"),
            format!("odbc:PWD={{{}}};host=h", password.replace('}', "}}")),
            format!("mysql:password={};host=h", password.replace(';', ";;")),
            format!("postgres://u:{encoded}@h"),
            format!("postgres://h?password={encoded}"),
        ];
        for text in texts {
            let dsn = Dsn::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let given = dsn.credentials().password.unwrap();
            prop_assert_eq!(given.expose(), &password);
            prop_assert_eq!(dsn.option("host"), Some("h"));
        }
    }

    #[test]
    fn a_password_that_was_not_encoded_is_shown_nowhere(
        driver in "postgres|mysql|sqlite|own",
        before in r"[a-z0-9%/?&=;:@,'\[\]\\ ]{0,12}",
        after in r"[a-z0-9%/?&=;:@,'\[\]\\ ]{0,12}",
    ) {
        // Big letters are in no message, so finding them would mean that it leaked.
        let text = format!("{driver}://user:{before}SECRET{after}@host/db?x=1");
        let shown = everything_shown(&text);
        prop_assert!(!shown.contains("SECRET"), "{}: {}", text, shown);
    }

    #[test]
    fn a_quoted_password_is_shown_nowhere(
        before in "[^\0]{0,8}",
        after in "[^\0]{0,8}",
        cut in 0_usize..60,
    ) {
        let password = format!("{before}SECRET{after}");
        let texts = [
            format!("pgsql:password='{}'", password.replace('\\', r"\\").replace('\'', r"\'")),
            format!("odbc:UID=me;PWD={{{}}}", password.replace('}', "}}")),
            format!("mysql:user=me;password={}", password.replace(';', ";;")),
        ];
        for text in texts {
            // Cut off anywhere, it is malformed in every way there is.
            let end = (0..=text.len().min(cut)).rev().find(|end| text.is_char_boundary(*end));
            for text in [text.as_str(), &text[..end.unwrap()]] {
                let shown = everything_shown(text);
                prop_assert!(!shown.contains("SECRET"), "{}: {}", text, shown);
            }
        }
    }
}
