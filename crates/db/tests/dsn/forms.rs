//! Every way to write a DSN, and every way to get one wrong.

use cenote::Kind;
use cenote::driver::Dsn;

fn parse(text: &str) -> Dsn {
    Dsn::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn options(dsn: &Dsn) -> Vec<(&str, &str)> {
    dsn.options().collect()
}

/// Names and values of options, in order.
type Pairs = &'static [(&'static str, &'static str)];

/// The text, its options, and what is shown of it.
type Row = (&'static str, Pairs, &'static str);

fn check(rows: &[Row]) {
    for (text, wanted, shown) in rows {
        let dsn = parse(text);
        assert_eq!(options(&dsn), *wanted, "{text}");
        assert_eq!(dsn.to_string(), *shown, "{text}");
        assert_eq!(
            options(&parse(shown)),
            *wanted,
            "{shown}, which is shown of {text}"
        );
    }
}

#[test]
fn driver_is_the_lowercase_text_before_the_first_colon() {
    let rows = [
        ("sqlite::memory:", "sqlite", ":memory:"),
        ("SQLite:a.db", "sqlite", "a.db"),
        ("postgres://h/db", "postgres", "//h/db"),
        ("my-own+v1.2_x:anything", "my-own+v1.2_x", "anything"),
        ("pgsql:", "pgsql", ""),
    ];
    for (text, driver, rest) in rows {
        let dsn = parse(text);
        assert_eq!((dsn.driver(), dsn.rest()), (driver, rest), "{text}");
    }
}

#[test]
fn dsn_without_a_driver_is_an_error_that_shows_a_valid_one() {
    let texts = [
        "",
        "hunter2",
        ":hunter2",
        "7z:hunter2",
        "a b:hunter2",
        "hunter2/x:y",
        "é:hunter2",
    ];
    for text in texts {
        let error = Dsn::parse(text).unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{text}");
        let message = error.to_string();
        assert!(message.contains("driver"), "{text}: {message}");
        assert!(message.contains("sqlite:shop.db"), "{text}: {message}");
        assert!(!message.contains("hunter2"), "{text}: {message}");
    }
}

#[test]
fn pairs_are_read_as_pdo_writes_them() {
    check(&[
        ("mysql:", &[], "mysql:"),
        (
            "mysql:host=localhost;port=3306;dbname=shop",
            &[("host", "localhost"), ("port", "3306"), ("dbname", "shop")],
            "mysql:host=localhost;port=3306;dbname=shop",
        ),
        (
            "mysql:unix_socket=/run/my sql.sock; dbname=a b ;",
            &[("unix_socket", "/run/my sql.sock"), ("dbname", "a b ")],
            "mysql:unix_socket=/run/my sql.sock;dbname=a b ",
        ),
        (
            "mariadb:init=SET a = 1;;SET b = 2;charset=utf8mb4",
            &[("init", "SET a = 1;SET b = 2"), ("charset", "utf8mb4")],
            "mariadb:init=SET a = 1;;SET b = 2;charset=utf8mb4",
        ),
        ("mysql:host=", &[("host", "")], "mysql:host="),
        ("other:a=1;b=2", &[("a", "1"), ("b", "2")], "other:a=1;b=2"),
    ]);
}

#[test]
fn pgsql_pairs_are_read_as_by_libpq_and_semicolons_are_blanks() {
    check(&[
        (
            "pgsql:host=localhost;port=5432;dbname=shop",
            &[("host", "localhost"), ("port", "5432"), ("dbname", "shop")],
            "pgsql:host=localhost;port=5432;dbname=shop",
        ),
        (
            "pgsql:host=localhost port=5432\n  dbname=shop",
            &[("host", "localhost"), ("port", "5432"), ("dbname", "shop")],
            "pgsql:host=localhost;port=5432;dbname=shop",
        ),
        (
            r"pgsql:host = localhost application_name='it\'s a \\ \n; shop' sslmode=require",
            &[
                ("host", "localhost"),
                ("application_name", r"it's a \ n; shop"),
                ("sslmode", "require"),
            ],
            r"pgsql:host=localhost;application_name='it\'s a \\ n; shop';sslmode=require",
        ),
        (
            r"postgresql:dbname=a\ b\;c options=''",
            &[("dbname", "a b;c"), ("options", "")],
            "postgresql:dbname='a b;c';options=",
        ),
        (
            "postgres:host=;dbname=x",
            &[("host", ""), ("dbname", "x")],
            "postgres:host=;dbname=x",
        ),
        ("pgsql: ; ;", &[], "pgsql:"),
    ]);
}

#[test]
fn braces_keep_the_semicolons_of_an_odbc_value() {
    check(&[
        (
            "odbc:DRIVER={PostgreSQL Unicode};SERVER=db.local;Database=a;b=2",
            &[
                ("DRIVER", "PostgreSQL Unicode"),
                ("SERVER", "db.local"),
                ("Database", "a"),
                ("b", "2"),
            ],
            "odbc:DRIVER=PostgreSQL Unicode;SERVER=db.local;Database=a;b=2",
        ),
        (
            "odbc:Driver = {a;b}}=c} ; Server = x y ;",
            &[("Driver", "a;b}=c"), ("Server", "x y")],
            "odbc:Driver={a;b}}=c};Server=x y",
        ),
        ("odbc:DSN=shop", &[("DSN", "shop")], "odbc:DSN=shop"),
    ]);
}

#[test]
fn a_dsn_may_be_a_name_or_a_path() {
    let dsn = parse("odbc:SHOP");
    assert_eq!((dsn.path(), dsn.rest()), (Some("SHOP"), "SHOP"));
    assert_eq!(dsn.to_string(), "odbc:SHOP");
    let dsn = parse("duck:/data/x.db");
    assert_eq!(dsn.path(), Some("/data/x.db"));
    assert_eq!(parse("pgsql:dbname=x").path(), None);
    assert_eq!(parse("postgres://h/x").path(), None);
}

#[test]
fn a_file_is_named_with_or_without_slashes_and_may_have_options() {
    let rows: &[(&str, &str, Pairs)] = &[
        ("sqlite:/path/file.db", "/path/file.db", &[]),
        ("sqlite:relative.db", "relative.db", &[]),
        ("sqlite:a=b.db", "a=b.db", &[]),
        ("sqlite:a;b", "a;b", &[]),
        ("sqlite:100%.db", "100%.db", &[]),
        (r"sqlite:C:\data\x.db", r"C:\data\x.db", &[]),
        ("sqlite:me@home/x.db", "me@home/x.db", &[]),
        ("sqlite:", "", &[]),
        ("sqlite::memory:", ":memory:", &[]),
        (
            "sqlite::memory:?cache=shared",
            ":memory:",
            &[("cache", "shared")],
        ),
        (
            "sqlite:x.db?mode=ro&busy_timeout=5s",
            "x.db",
            &[("mode", "ro"), ("busy_timeout", "5s")],
        ),
        ("sqlite:///abs/path", "/abs/path", &[]),
        ("sqlite://relative.db", "relative.db", &[]),
        (
            "sqlite://dir/relative.db?mode=ro",
            "dir/relative.db",
            &[("mode", "ro")],
        ),
        ("sqlite://:memory:", ":memory:", &[]),
        ("sqlite://C:/data/x.db", "C:/data/x.db", &[]),
        (
            "sqlite:///what%3F%20is%25.db?name=a%26b+c",
            "/what? is%.db",
            &[("name", "a&b+c")],
        ),
        ("sqlite:///m:e@home/x.db", "/m:e@home/x.db", &[]),
        ("sqlite3:x.db", "x.db", &[]),
        (
            "sqlite:file:x?mode=memory&cache=shared",
            "file:x?mode=memory&cache=shared",
            &[],
        ),
        ("sqlite:file:///x%20y?a", "file:///x%20y?a", &[]),
    ];
    for (text, path, wanted) in rows {
        let dsn = parse(text);
        assert_eq!(dsn.path(), Some(*path), "{text}");
        assert_eq!(options(&dsn), *wanted, "{text}");
    }
}

#[test]
fn a_url_comes_apart_into_the_same_options_as_pairs() {
    check(&[
        ("postgres://", &[], "postgres://"),
        ("postgres:///", &[], "postgres:///"),
        ("postgres://h", &[("host", "h")], "postgres://h"),
        ("postgres:///db", &[("dbname", "db")], "postgres:///db"),
        (
            "postgres://:5433/",
            &[("port", "5433")],
            "postgres://:5433/",
        ),
        (
            "postgres://h:/db",
            &[("host", "h"), ("dbname", "db")],
            "postgres://h:/db",
        ),
        (
            "postgres://host1:5432,host2:5433/db?sslmode=require&application_name=x",
            &[
                ("host", "host1,host2"),
                ("port", "5432,5433"),
                ("dbname", "db"),
                ("sslmode", "require"),
                ("application_name", "x"),
            ],
            "postgres://host1:5432,host2:5433/db?sslmode=require&application_name=x",
        ),
        (
            "postgres://a,b:2/",
            &[("host", "a,b"), ("port", ",2")],
            "postgres://a,b:2/",
        ),
        (
            "mysql://[::1]:3306/shop",
            &[("host", "::1"), ("port", "3306"), ("dbname", "shop")],
            "mysql://[::1]:3306/shop",
        ),
        (
            "postgres://[fe80::1%25eth0],b",
            &[("host", "fe80::1%eth0,b")],
            "postgres://[fe80::1%25eth0],b",
        ),
        (
            "postgres://%2Fvar%2Frun:5433/a%20b%2Fc",
            &[("host", "/var/run"), ("port", "5433"), ("dbname", "a b/c")],
            "postgres://%2Fvar%2Frun:5433/a%20b%2Fc",
        ),
        (
            "postgres:///db?host=/var/run&x=%C3%A9&&empty=&",
            &[
                ("dbname", "db"),
                ("host", "/var/run"),
                ("x", "é"),
                ("empty", ""),
            ],
            "postgres:///db?host=/var/run&x=%C3%A9&empty=",
        ),
        (
            "postgres://h?x=1",
            &[("host", "h"), ("x", "1")],
            "postgres://h?x=1",
        ),
        (
            "own://h:1/p?x=1",
            &[("host", "h"), ("port", "1"), ("dbname", "p"), ("x", "1")],
            "own://h:1/p?x=1",
        ),
    ]);
}

#[test]
fn an_option_of_the_query_goes_before_the_same_part_of_the_url() {
    let dsn = parse("postgres://me:one@localhost:1/a?host=/cloud/x&user=you&password=two");
    assert_eq!(
        options(&dsn),
        [("port", "1"), ("dbname", "a"), ("host", "/cloud/x")]
    );
    let credentials = dsn.credentials();
    assert_eq!(credentials.user.as_deref(), Some("you"));
    assert_eq!(
        credentials.password.as_ref().map(|p| p.expose()),
        Some("two")
    );
}

#[test]
fn user_and_password_are_credentials_and_no_options() {
    let rows = [
        ("postgres://app:pa%20ss@h", Some("app"), Some("pa ss")),
        ("postgres://app@h", Some("app"), None),
        ("postgres://app:@h", Some("app"), Some("")),
        ("postgres://:pw@h", None, Some("pw")),
        ("postgres://me@corp:a:b@c@h", Some("me@corp"), Some("a:b@c")),
        (
            "postgres://a%40b:c%3Ad%2F%3F%25@h",
            Some("a@b"),
            Some("c:d/?%"),
        ),
        ("postgres://h", None, None),
        ("postgres:///?user=u&password=p%26q", Some("u"), Some("p&q")),
        ("pgsql:user=u password='p q'", Some("u"), Some("p q")),
        ("mysql:user=u;password=p;;q", Some("u"), Some("p;q")),
        ("odbc:DSN=x;UID=u;PWD={p;}}q}", Some("u"), Some("p;}q")),
        ("own:username=u;passwd=p", Some("u"), Some("p")),
    ];
    for (text, user, password) in rows {
        let dsn = parse(text);
        let credentials = dsn.credentials();
        assert_eq!(credentials.user.as_deref(), user, "{text}");
        let given = credentials.password.as_ref().map(|p| p.expose());
        assert_eq!(given, password, "{text}");
        for name in ["user", "username", "uid", "password", "passwd", "pwd"] {
            assert_eq!(dsn.option(name), None, "{text}");
        }
    }
}

#[test]
fn names_of_options_are_the_same_in_capitals_and_small_letters() {
    let dsn = parse("odbc:Server=x;TrustServerCertificate=yes");
    assert_eq!(dsn.option("SERVER"), Some("x"));
    assert_eq!(dsn.option("trustservercertificate"), Some("yes"));
    assert_eq!(dsn.option("nothing"), None);
}

#[test]
fn malformed_dsn_is_an_error_naming_driver_part_and_a_valid_one() {
    let rows = [
        // Percent signs.
        ("postgres://u%2@h/", "the user"),
        ("postgres://u:%zz@h/", "the password"),
        ("postgres://u:%+1@h/", "the password"),
        ("postgres://h%/", "a host"),
        ("postgres://h/%f", "the database name"),
        ("postgres://h/?a=%", "the value of the option a"),
        ("postgres://h/?a%x=1", "the name of option 1"),
        ("postgres://h/%ff", "is no UTF-8"),
        ("postgres://h/%00", "NUL"),
        ("sqlite:///a%2", "the path"),
        ("sqlite:x?a=%4", "the value of the option a"),
        // Hosts and ports.
        (
            "postgres://h:http/",
            "a port is not a number from 1 to 65535",
        ),
        ("postgres://h:0/", "a port is not a number from 1 to 65535"),
        (
            "postgres://h:65536/",
            "a port is not a number from 1 to 65535",
        ),
        ("postgres://h:-1/", "a port is not a number from 1 to 65535"),
        ("postgres://h:+5/", "a port is not a number from 1 to 65535"),
        ("postgres://::1/", "brackets"),
        ("postgres://[::1/", "bracket"),
        ("postgres://[::1]5432/", "after an IPv6 address"),
        ("postgres://[localhost]/", "no IPv6 address"),
        ("postgres://a,,b/", "empty host"),
        ("postgres://a b/", "blank"),
        ("postgres://a%2Cb/", "comma"),
        // Options of a URL.
        ("postgres://h/?sslmode", "option 1 after the ? has no ="),
        ("postgres://h/?a=1&b", "option 2 after the ? has no ="),
        ("postgres://h/?=1", "the name of option 1"),
        ("postgres://h/?a%0Ab=1", "the name of option 1"),
        ("postgres://h/?a=1&A=2", "the option A is given twice"),
        (
            "postgres://h/?user=a&username=b",
            "the user is given twice, once as username",
        ),
        (
            "postgres://h/?pwd=a&password=b",
            "the password is given twice, once as password",
        ),
        ("sqlite:what?.db", "%3F"),
        // An @ where none can be.
        ("postgres://me:12/34@h/db", "%40"),
        ("postgres://me:12?34@h/db", "%3F"),
        ("sqlite://me:pw@h/db", "no user and no password"),
        // Pairs.
        ("pgsql:shop", "part 1 has no = in it"),
        ("pgsql:host=a shop dbname=b", "part 2 has no = in it"),
        ("pgsql:host=a;shop", "part 2 has no = in it"),
        ("mysql:host=a;shop;dbname=b", "part 2 has no = in it"),
        ("mysql:host", "part 1 has no = in it"),
        (
            "pgsql:=x",
            "part 1 does not begin with the name of an option",
        ),
        (
            "pgsql:a\u{7}b=x",
            "part 1 does not begin with the name of an option",
        ),
        ("pgsql:host=a host=b", "the option host is given twice"),
        ("mysql:Host=a;host=b", "the option host is given twice"),
        ("odbc:PWD=a;pwd=b", "the password is given twice"),
        (
            "pgsql:password='a",
            "the value of password has no closing quote",
        ),
        (
            r"pgsql:password='a\'",
            "the value of password has no closing quote",
        ),
        (
            "pgsql:password='a'b",
            "the value of password goes on after its closing quote",
        ),
        (
            r"pgsql:password=a\",
            "the value of password ends with a backslash",
        ),
        (
            r"pgsql:password='a\",
            "the value of password ends with a backslash",
        ),
        ("odbc:PWD={a", "the value of PWD has no closing brace"),
        ("odbc:PWD={a}}", "the value of PWD has no closing brace"),
        (
            "odbc:PWD={a}b",
            "the value of PWD goes on after its closing brace",
        ),
        ("odbc:NAME;UID=x", "part 1 has no = in it"),
        // Characters that are in no DSN.
        ("postgres://h/db\n", "line break"),
        ("sqlite:x.db\n", "line break"),
        ("pgsql:host=a\0b", "NUL"),
        // One slash.
        ("postgres:/x", "a URL begins with postgres://"),
        ("mysql:/h/db", "a URL begins with mysql://"),
    ];
    for (text, wanted) in rows {
        let error = match Dsn::parse(text) {
            Ok(dsn) => panic!("{text:?} was read as {dsn}"),
            Err(error) => error,
        };
        let message = error.to_string();
        let driver = text.split(':').next().unwrap();
        assert_eq!(error.kind(), Kind::Config, "{text}");
        assert!(message.contains(wanted), "{text}: {message}");
        assert!(
            message.contains(&format!("the {driver} DSN")),
            "{text}: {message}"
        );
        assert!(message.contains("a right one: "), "{text}: {message}");
        assert_eq!(message.lines().count(), 1, "{text}: {message}");
    }
}

#[test]
fn the_right_ones_that_messages_show_are_right() {
    let messages = [
        "",
        "pgsql:x",
        "mysql:x",
        "odbc:a;b=c",
        "sqlite:?x",
        "own:a=1;b",
    ];
    for text in messages {
        let message = Dsn::parse(text).unwrap_err().to_string();
        let (_, examples) = message.split_once("a right one: ").unwrap();
        for example in examples.split(" or ") {
            parse(example);
        }
    }
}
