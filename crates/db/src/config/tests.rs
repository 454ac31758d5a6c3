//! What a file or the environment says becomes settings, or an error that names the culprit.

use serde::de::value::{Error as ReadError, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::*;

/// A value of a configuration file, whatever its format.
#[derive(Clone, Debug)]
enum Written {
    Text(&'static str),
    Number(u64),
    Negative(i64),
    Fraction(f64),
    Bool(bool),
    Nothing,
    List(Vec<Written>),
    Table(Vec<(&'static str, Written)>),
}

use Written::{Bool, Fraction, List, Negative, Nothing, Number, Table, Text};

impl<'de> IntoDeserializer<'de, ReadError> for Written {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Written {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self {
            Text(text) => visitor.visit_str(text),
            Number(number) => visitor.visit_u64(number),
            Negative(number) => visitor.visit_i64(number),
            Fraction(number) => visitor.visit_f64(number),
            Bool(value) => visitor.visit_bool(value),
            Nothing => visitor.visit_unit(),
            List(entries) => visitor.visit_seq(SeqDeserializer::new(entries.into_iter())),
            Table(entries) => visitor.visit_map(MapDeserializer::new(entries.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self {
            Nothing => visitor.visit_none(),
            written => visitor.visit_some(written),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self {
            Text(text) => text
                .into_deserializer()
                .deserialize_enum(name, variants, visitor),
            written => written.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn read<const N: usize>(entries: [(&'static str, Written); N]) -> Result<DbConfig, ReadError> {
    DbConfig::deserialize(Table(entries.to_vec()))
}

fn refused(name: &'static str, value: Written) -> String {
    match read([(name, value.clone())]) {
        Ok(config) => panic!("{name} = {value:?} was read as {config:?}"),
        Err(error) => error.to_string(),
    }
}

fn from_variables<const N: usize>(variables: [(&str, &str); N]) -> Result<DbConfig> {
    DbConfig::from_variables(|asked| {
        let found = variables.iter().find(|(name, _)| *name == asked);
        found.map(|(_, value)| value.into())
    })
}

/// Everything that a configuration holds, as text that can be compared.
fn all_of(config: &DbConfig) -> String {
    let secrets = [Some(&config.dsn), config.password.as_ref()];
    let secrets = secrets.map(|secret| secret.map(Secret::expose));
    let replicas: Vec<_> = config.replicas.iter().map(Secret::expose).collect();
    format!("{secrets:?} {replicas:?} {config:?}")
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn defaults_are_the_documented_ones() {
    let config = DbConfig::new("sqlite:x.db");
    assert_eq!((config.min, config.max), (0, 10));
    assert_eq!(config.acquire_timeout, Some(30 * SECOND));
    assert_eq!(config.connect_timeout, 10 * SECOND);
    assert_eq!(config.cleanup_timeout, 5 * SECOND);
    assert_eq!(config.healthcheck_interval, Some(30 * SECOND));
    assert_eq!(config.idle_timeout, Some(600 * SECOND));
    assert_eq!(config.max_lifetime, Some(1800 * SECOND));
    assert!((config.lifetime_jitter - 0.1).abs() < f64::EPSILON);
    assert_eq!((config.max_creating, config.statement_cache), (4, 64));
    assert_eq!(config.statement_timeout, None);
    assert_eq!(config.max_transaction_age, None);
    assert_eq!(config.idle_in_transaction, None);
    assert_eq!(config.slow_acquire_warning, Some(SECOND));
    assert_eq!((config.leak_warning, config.slow_statements), (None, None));
    assert!(!config.unpooled && !config.persistent);
    assert_eq!(config.reset, ResetPolicy::WhenTouched);
    assert!(config.replicas.is_empty());
    assert_eq!(config.replica_wait, Duration::from_millis(50));
    assert_eq!(config.max_replica_lag, Some(10 * SECOND));
    assert!(config.user.is_none() && config.password.is_none() && config.name.is_none());
    assert!(config.options.is_empty());
    config.check().unwrap();
}

#[test]
fn file_with_only_a_dsn_gives_the_defaults() {
    let config = read([("dsn", Text("sqlite:x.db"))]).unwrap();
    assert_eq!(all_of(&config), all_of(&DbConfig::new("sqlite:x.db")));
}

#[test]
fn file_and_environment_set_every_field_to_the_same_values() {
    let from_file = read([
        ("dsn", Text("pgsql:host=h")),
        ("user", Text("app")),
        ("password", Text("hunter2")),
        ("name", Text("orders")),
        ("min", Number(2)),
        ("max", Number(20)),
        ("acquire_timeout", Text("3s")),
        ("connect_timeout", Text("4s")),
        ("cleanup_timeout", Number(6)),
        ("healthcheck_interval", Text("off")),
        ("idle_timeout", Text("2min")),
        ("max_lifetime", Fraction(1.5)),
        ("lifetime_jitter", Fraction(0.25)),
        ("max_creating", Number(3)),
        ("statement_cache", Number(0)),
        ("statement_timeout", Text("7s")),
        ("max_transaction_age", Text("8s")),
        ("idle_in_transaction", Text("9s")),
        ("slow_acquire_warning", Nothing),
        ("leak_warning", Text("10s")),
        ("slow_statements", Text("11s")),
        ("share_connections", Bool(true)),
        ("unpooled", Bool(true)),
        ("persistent", Bool(true)),
        ("reset", Text("always")),
        (
            "replicas",
            List(vec![Text("pgsql:host=a"), Text("pgsql:host=b")]),
        ),
        ("replica_wait", Text("20ms")),
        ("max_replica_lag", Text("12s")),
        (
            "options",
            Table(vec![("sslmode", Text("require")), ("retries", Number(3))]),
        ),
    ])
    .unwrap();
    let from_environment = from_variables([
        ("CENOTE_DSN", "pgsql:host=h"),
        ("CENOTE_USER", "app"),
        ("CENOTE_PASSWORD", "hunter2"),
        ("CENOTE_NAME", "orders"),
        ("CENOTE_MIN", "2"),
        ("CENOTE_MAX", "20"),
        ("CENOTE_ACQUIRE_TIMEOUT", "3s"),
        ("CENOTE_CONNECT_TIMEOUT", "4"),
        ("CENOTE_CLEANUP_TIMEOUT", "6s"),
        ("CENOTE_HEALTHCHECK_INTERVAL", "OFF"),
        ("CENOTE_IDLE_TIMEOUT", "120"),
        ("CENOTE_MAX_LIFETIME", "1500ms"),
        ("CENOTE_LIFETIME_JITTER", "0.25"),
        ("CENOTE_MAX_CREATING", "3"),
        ("CENOTE_STATEMENT_CACHE", "0"),
        ("CENOTE_STATEMENT_TIMEOUT", "7s"),
        ("CENOTE_MAX_TRANSACTION_AGE", "8s"),
        ("CENOTE_IDLE_IN_TRANSACTION", "9s"),
        ("CENOTE_SLOW_ACQUIRE_WARNING", "none"),
        ("CENOTE_LEAK_WARNING", "10s"),
        ("CENOTE_SLOW_STATEMENTS", "11s"),
        ("CENOTE_SHARE_CONNECTIONS", "true"),
        ("CENOTE_UNPOOLED", "yes"),
        ("CENOTE_PERSISTENT", "1"),
        ("CENOTE_RESET", "always"),
        ("CENOTE_REPLICAS", " pgsql:host=a\n pgsql:host=b"),
        ("CENOTE_REPLICA_WAIT", "20ms"),
        ("CENOTE_MAX_REPLICA_LAG", "12s"),
        ("CENOTE_OPTIONS", "sslmode=require;retries=3"),
    ])
    .unwrap();
    assert_eq!(all_of(&from_file), all_of(&from_environment));

    // Taken apart without `..`: a new field has to be added here, and to both lists above.
    let DbConfig {
        dsn,
        user,
        password,
        name,
        min,
        max,
        acquire_timeout,
        connect_timeout,
        cleanup_timeout,
        healthcheck_interval,
        idle_timeout,
        max_lifetime,
        lifetime_jitter,
        max_creating,
        statement_cache,
        statement_timeout,
        max_transaction_age,
        idle_in_transaction,
        slow_acquire_warning,
        leak_warning,
        slow_statements,
        share_connections,
        unpooled,
        persistent,
        reset,
        replicas,
        replica_wait,
        max_replica_lag,
        options,
    } = from_file;
    assert_eq!(dsn.expose(), "pgsql:host=h");
    assert_eq!(user.as_deref(), Some("app"));
    assert_eq!(password, Some(Secret::from("hunter2")));
    assert_eq!(name.as_deref(), Some("orders"));
    assert_eq!((min, max), (2, 20));
    assert_eq!(acquire_timeout, Some(3 * SECOND));
    assert_eq!(connect_timeout, 4 * SECOND);
    assert_eq!(cleanup_timeout, 6 * SECOND);
    assert_eq!(healthcheck_interval, None);
    assert_eq!(idle_timeout, Some(120 * SECOND));
    assert_eq!(max_lifetime, Some(Duration::from_millis(1500)));
    assert!((lifetime_jitter - 0.25).abs() < f64::EPSILON);
    assert_eq!((max_creating, statement_cache), (3, 0));
    assert_eq!(statement_timeout, Some(7 * SECOND));
    assert_eq!(max_transaction_age, Some(8 * SECOND));
    assert_eq!(idle_in_transaction, Some(9 * SECOND));
    assert_eq!(slow_acquire_warning, None);
    assert_eq!(leak_warning, Some(10 * SECOND));
    assert_eq!(slow_statements, Some(11 * SECOND));
    assert!(share_connections && unpooled && persistent);
    assert_eq!(reset, ResetPolicy::Always);
    let replicas: Vec<_> = replicas.iter().map(Secret::expose).collect();
    assert_eq!(replicas, ["pgsql:host=a", "pgsql:host=b"]);
    assert_eq!(replica_wait, Duration::from_millis(20));
    assert_eq!(max_replica_lag, Some(12 * SECOND));
    let options: Vec<_> = options.iter().collect();
    assert_eq!(options, [("sslmode", "require"), ("retries", "3")]);
}

#[test]
fn unknown_field_of_a_file_is_an_error_that_names_it() {
    assert!(refused("maximum", Number(3)).contains("maximum"));
}

#[test]
fn invalid_duration_is_refused() {
    for value in [
        Text("soon"),
        Text("5 parsecs"),
        Negative(-1),
        Fraction(-0.5),
        Fraction(f64::NAN),
        Bool(true),
    ] {
        refused("idle_timeout", value);
    }
    let message = refused("connect_timeout", Text("off"));
    assert!(message.contains("cannot be switched off"), "{message}");
    assert!(refused("cleanup_timeout", Nothing).contains("cannot be switched off"));
}

#[test]
fn password_of_digits_is_refused_and_not_quoted() {
    for field in ["password", "dsn"] {
        let message = refused(field, Number(31_337));
        assert!(!message.contains("31337"), "{message}");
        assert!(message.contains("text"), "{message}");
    }
}

#[test]
fn file_options_are_texts_numbers_or_booleans_and_not_repeated() {
    let written = vec![
        ("a", Text("x")),
        ("b", Number(1)),
        ("c", Negative(-1)),
        ("d", Fraction(0.5)),
        ("e", Bool(false)),
    ];
    let config = read([("options", Table(written))]).unwrap();
    let options: Vec<_> = config.options.iter().collect();
    let wanted = [
        ("a", "x"),
        ("b", "1"),
        ("c", "-1"),
        ("d", "0.5"),
        ("e", "false"),
    ];
    assert_eq!(options, wanted);

    let twice = Table(vec![("mode", Text("ro")), ("MODE", Text("rw"))]);
    assert!(refused("options", twice).contains("MODE"));
    refused("options", Table(vec![("a", Table(vec![]))]));
}

#[test]
fn configuration_shows_neither_its_password_nor_its_dsn() {
    let mut config = DbConfig::new("postgres://app:hunter2@h/db");
    config.password = Some(Secret::from("hunter2"));
    config.options.set("access_token", "hunter2");
    let shown = format!("{config:?} {config:#?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn cenote_dsn_takes_precedence_over_database_url() {
    let both = [
        ("CENOTE_DSN", "sqlite:a.db"),
        ("DATABASE_URL", "sqlite:b.db"),
    ];
    assert_eq!(from_variables(both).unwrap().dsn.expose(), "sqlite:a.db");
    let empty = [("CENOTE_DSN", ""), ("DATABASE_URL", "sqlite:b.db")];
    assert_eq!(from_variables(empty).unwrap().dsn.expose(), "sqlite:b.db");

    let error = from_variables([]).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let message = error.to_string();
    assert!(
        message.contains("CENOTE_DSN") && message.contains("DATABASE_URL"),
        "{message}"
    );
}

#[test]
fn empty_variable_counts_as_not_set() {
    let config = from_variables([
        ("CENOTE_DSN", "sqlite:x.db"),
        ("CENOTE_USER", ""),
        ("CENOTE_PASSWORD", ""),
        ("CENOTE_MAX", ""),
        ("CENOTE_IDLE_TIMEOUT", ""),
        ("CENOTE_OPTIONS", ""),
    ])
    .unwrap();
    assert_eq!(all_of(&config), all_of(&DbConfig::new("sqlite:x.db")));
}

#[test]
fn invalid_variable_is_an_error_that_names_and_quotes_it() {
    let numbers = [
        "MIN",
        "MAX",
        "LIFETIME_JITTER",
        "MAX_CREATING",
        "STATEMENT_CACHE",
    ];
    let durations = [
        "ACQUIRE_TIMEOUT",
        "CONNECT_TIMEOUT",
        "CLEANUP_TIMEOUT",
        "HEALTHCHECK_INTERVAL",
        "IDLE_TIMEOUT",
        "MAX_LIFETIME",
        "STATEMENT_TIMEOUT",
        "MAX_TRANSACTION_AGE",
        "IDLE_IN_TRANSACTION",
        "SLOW_ACQUIRE_WARNING",
        "LEAK_WARNING",
        "SLOW_STATEMENTS",
    ];
    let others = ["UNPOOLED", "PERSISTENT", "RESET"];
    for name in numbers.iter().chain(&durations).chain(&others) {
        let name = format!("CENOTE_{name}");
        let variables = [("CENOTE_DSN", "sqlite:x.db"), (name.as_str(), "red")];
        let error = from_variables(variables).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let message = error.to_string();
        let wanted = format!("the environment variable {name} is \"red\", which ");
        assert!(message.starts_with(&wanted), "{message}");
    }
    for name in ["CENOTE_CONNECT_TIMEOUT", "CENOTE_CLEANUP_TIMEOUT"] {
        let message = from_variables([("CENOTE_DSN", "sqlite:x"), (name, "off")])
            .unwrap_err()
            .to_string();
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn invalid_secret_variable_is_an_error_that_does_not_quote_it() {
    let rows = [
        ("CENOTE_DSN", "postgres://app:hunter2%@h/db"),
        ("CENOTE_DSN", "hunter2"),
        ("DATABASE_URL", "postgres://app:hunter2/x@h/db"),
        ("CENOTE_OPTIONS", "token=hunter2;token=hunter2"),
        ("CENOTE_OPTIONS", "token=x;hunter2"),
    ];
    for (name, value) in rows {
        let error = match name {
            "CENOTE_OPTIONS" => from_variables([("CENOTE_DSN", "sqlite:x"), (name, value)]),
            _ => from_variables([(name, value)]),
        };
        let error = error.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(name), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[cfg(unix)]
#[test]
fn variable_that_is_not_utf8_is_an_error_that_names_it() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    for broken in [
        "CENOTE_DSN",
        "CENOTE_PASSWORD",
        "CENOTE_MAX",
        "CENOTE_OPTIONS",
    ] {
        let error = DbConfig::from_variables(|name| match name {
            _ if name == broken => Some(OsString::from_vec(b"hunter2\xff".to_vec())),
            "CENOTE_DSN" => Some("sqlite:x".into()),
            _ => None,
        });
        let shown = format!("{:?}", error.unwrap_err());
        assert!(shown.contains(broken) && shown.contains("UTF-8"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn options_variable_may_hold_user_password_and_a_semicolon() {
    let options = [
        ("CENOTE_DSN", "own:a=1"),
        ("CENOTE_OPTIONS", "user=a;;b; password=c"),
    ];
    let config = from_variables(options).unwrap();
    let options: Vec<_> = config.options.iter().collect();
    assert_eq!(options, [("user", "a;b"), ("password", "c")]);
}

/// The message about a configuration that was changed like this.
fn checked(change: impl FnOnce(&mut DbConfig)) -> String {
    let mut config = DbConfig::new("sqlite:x.db");
    change(&mut config);
    let error = config.check().unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    error.to_string()
}

#[test]
fn check_names_settings_that_exclude_each_other() {
    let message = checked(|config| (config.min, config.max) = (5, 3));
    assert_eq!(
        message,
        "min is 5, but it cannot be more than max, which is 3"
    );
    let message = checked(|config| config.persistent = true);
    assert!(message.contains("persistent and a pool"), "{message}");
    assert!(message.contains("unpooled"), "{message}");
    let message = checked(|config| (config.unpooled, config.min) = (true, 1));
    assert!(
        message.contains("min") && message.contains("unpooled"),
        "{message}"
    );

    let mut config = DbConfig::new("sqlite:x.db");
    (config.unpooled, config.persistent) = (true, true);
    config.check().unwrap();
    let mut config = DbConfig::new("sqlite:x.db");
    (config.min, config.max) = (3, 3);
    config.check().unwrap();
}

#[test]
fn check_names_the_invalid_value() {
    assert!(checked(|config| config.max = 0).starts_with("max is 0"));
    assert!(checked(|config| config.max_creating = 0).starts_with("max_creating is 0"));
    for jitter in [1.0, -0.1, f64::NAN, f64::INFINITY] {
        let message = checked(|config| config.lifetime_jitter = jitter);
        assert!(message.starts_with("lifetime_jitter is "), "{message}");
    }
    assert!(checked(|config| config.dsn = Secret::default()).starts_with("dsn is missing"));
    assert!(checked(|config| config.dsn = Secret::from("pgsql:x")).contains("malformed"));
}

#[test]
fn check_refuses_a_duration_of_zero() {
    type Field = fn(&mut DbConfig) -> &mut Option<Duration>;
    let optional: [(&str, Field); 10] = [
        ("acquire_timeout", |config| &mut config.acquire_timeout),
        ("healthcheck_interval", |config| {
            &mut config.healthcheck_interval
        }),
        ("idle_timeout", |config| &mut config.idle_timeout),
        ("max_lifetime", |config| &mut config.max_lifetime),
        ("statement_timeout", |config| &mut config.statement_timeout),
        ("max_transaction_age", |config| {
            &mut config.max_transaction_age
        }),
        ("idle_in_transaction", |config| {
            &mut config.idle_in_transaction
        }),
        ("slow_acquire_warning", |config| {
            &mut config.slow_acquire_warning
        }),
        ("leak_warning", |config| &mut config.leak_warning),
        ("slow_statements", |config| &mut config.slow_statements),
    ];
    for (name, field) in optional {
        let message = checked(|config| *field(config) = Some(Duration::ZERO));
        assert!(message.starts_with(&format!("{name} is zero")), "{message}");
        let mut config = DbConfig::new("sqlite:x.db");
        *field(&mut config) = None;
        config.check().unwrap();
    }
    let message = checked(|config| config.connect_timeout = Duration::ZERO);
    assert!(message.starts_with("connect_timeout is zero"), "{message}");
    let message = checked(|config| config.cleanup_timeout = Duration::ZERO);
    assert!(message.starts_with("cleanup_timeout is zero"), "{message}");
}

#[test]
fn credentials_beside_the_dsn_take_precedence() {
    let mut config = DbConfig::new("postgres://app:one@h");
    let dsn = config.parse_dsn().unwrap();
    assert_eq!(config.credentials(&dsn), Credentials::new("app", "one"));
    config.password = Some(Secret::from("two"));
    assert_eq!(config.credentials(&dsn), Credentials::new("app", "two"));
    config.user = Some("admin".to_owned());
    assert_eq!(config.credentials(&dsn), Credentials::new("admin", "two"));
}
