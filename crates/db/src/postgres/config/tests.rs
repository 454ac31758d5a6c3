use super::*;
use crate::hosts::SessionAttrs;

/// With nothing in the environment.
fn read(dsn: &str) -> Result<Config> {
    read_in(dsn, &[])
}

fn read_in(dsn: &str, variables: &[(&str, &str)]) -> Result<Config> {
    let dsn = Dsn::parse(dsn)?;
    Config::read_with(&dsn, &Options::new(), |name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn server(name: &str, port: u16) -> Server {
    Server {
        name: name.to_owned(),
        address: None,
        port,
    }
}

fn message(outcome: Result<Config>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    error.message().to_owned()
}

async fn login(config: &Config, credentials: Credentials) -> Login {
    let server = &config.servers[0];
    config.login(server, &credentials).await.unwrap()
}

#[tokio::test]
async fn the_same_is_meant_by_pdo_by_pairs_and_by_a_url() {
    let forms = [
        "pgsql:host=db1,db2;port=6432,6433;dbname=shop;user=app;password=s e;sslmode=require",
        "pgsql:host=db1,db2;port=6432,6433;dbname=shop;user=app;password='s e';sslmode=require",
        "postgres:host=db1,db2 port=6432,6433 dbname=shop user=app password='s e' sslmode=require",
        "postgresql://app:s%20e@db1:6432,db2:6433/shop?sslmode=require",
    ];
    for form in &forms[1..] {
        let config = read(form).unwrap();
        assert_eq!(config.servers, [server("db1", 6432), server("db2", 6433)]);
        assert_eq!(config.tls.mode(), SslMode::Require);
        let login = login(&config, Dsn::parse(form).unwrap().credentials()).await;
        assert_eq!((&*login.user, &*login.database), ("app", "shop"));
        assert_eq!(login.password.unwrap().expose(), "s e");
        assert_eq!(config.address(), "db1:6432,db2:6433/shop");
    }
    // A blank ends a value that has no quotes: what comes after it is no pair.
    assert!(Dsn::parse(forms[0]).is_err());
}

#[test]
fn a_dsn_that_says_nothing_means_this_machine() {
    let config = read("pgsql:").unwrap();
    assert_eq!(config.servers, [server("", PORT)]);
    assert_eq!(config.tls.mode(), SslMode::Prefer);
    assert_eq!(config.channel_binding, ChannelBinding::Prefer);
    assert_eq!(config.hosts.attrs, SessionAttrs::Any);
    assert_eq!(config.connect_timeout, None);
    assert_eq!(config.tcp, TcpOptions::default());
    assert_eq!(config.parameters, []);
    assert_eq!(config.address(), "localhost:5432");
}

#[test]
fn one_port_serves_all_hosts_and_another_count_is_an_error() {
    let config = read("pgsql:host=a,b;port=7").unwrap();
    assert_eq!(config.servers, [server("a", 7), server("b", 7)]);
    let wrong = message(read("pgsql:host=a,b,c;port=7,8"));
    assert!(wrong.contains("2 ports for 3 hosts"), "{wrong}");
}

#[test]
fn a_folder_is_a_unix_socket_and_brackets_an_ipv6_address() {
    let config = read("pgsql:host=/run/pg,[::1],@hidden").unwrap();
    let sockets: Vec<_> = config.servers.iter().map(Server::is_socket).collect();
    assert_eq!(sockets, [true, false, true]);
    assert_eq!(config.servers[1], server("::1", PORT));
    assert_eq!(config.address(), "/run/pg:5432,[::1]:5432,@hidden:5432");
    let config = read("postgres://%2Frun%2Fpg/shop").unwrap();
    assert!(config.servers[0].is_socket());
}

#[test]
fn an_address_takes_the_place_of_looking_a_name_up() {
    let config = read("pgsql:host=db1,db2;hostaddr=10.0.0.1,;port=7").unwrap();
    assert_eq!(config.servers[0].address, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(config.servers[0].name, "db1");
    assert_eq!(config.servers[1], server("db2", 7));
    let config = read("pgsql:hostaddr=10.0.0.1,::1").unwrap();
    assert_eq!(config.address(), "10.0.0.1:5432,[::1]:5432");
    assert!(message(read("pgsql:host=a;hostaddr=1.1.1.1,2.2.2.2")).contains("2 addresses"));
    assert!(message(read("pgsql:hostaddr=db1")).contains("not an IP address"));
}

#[test]
fn an_unknown_option_is_an_error_that_names_it() {
    let wrong = message(read("pgsql:host=a;sslmod=require"));
    assert_eq!(wrong, "pgsql has no option sslmod; did you mean sslmode?");
    let wrong = message(read("pgsql:host=a;sslcrl=x.pem"));
    assert!(wrong.contains("no option sslcrl"), "{wrong}");
    let wrong = message(read("pgsql:host=a;frobnicate=1"));
    assert!(wrong.contains("target_session_attrs"), "{wrong}");
}

#[test]
fn invalid_option_value_is_an_error_that_lists_the_valid_ones() {
    for (dsn, part) in [
        ("pgsql:sslmode=on", "disable, allow, prefer, require"),
        ("pgsql:target_session_attrs=master", "any, read-write"),
        ("pgsql:channel_binding=yes", "disable, prefer, require"),
        ("pgsql:port=0", "port"),
        ("pgsql:port=65536", "port"),
        ("pgsql:connect_timeout=soon", "connect_timeout"),
        ("pgsql:client_encoding=latin1", "utf8"),
        ("pgsql:gssencmode=require", "disable, prefer"),
        ("pgsql:keepalives=maybe", "keepalives"),
        ("pgsql:sslnegotiation=direct", "needs sslmode=require"),
        ("pgsql:sslrootcert=system;sslmode=require", "verify-full"),
        ("pgsql:sslcertmode=always", "disable, allow, require"),
        ("pgsql:sslcertmode=require", "needs sslmode=require"),
    ] {
        let wrong = message(read(dsn));
        assert!(wrong.contains(part), "{dsn}: {wrong}");
    }
}

#[test]
fn limits_count_what_libpq_counts_and_zero_is_none() {
    let config = read(
        "pgsql:connect_timeout=7;keepalives_idle=30;keepalives_interval=5s;keepalives_count=3;\
         tcp_user_timeout=1500",
    )
    .unwrap();
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(config.tcp.keepalives_idle, Some(Duration::from_secs(30)));
    assert_eq!(config.tcp.keepalives_interval, Some(Duration::from_secs(5)));
    assert_eq!(config.tcp.keepalives_count, Some(3));
    assert_eq!(config.tcp.user_timeout, Some(Duration::from_millis(1500)));
    let config = read("pgsql:connect_timeout=0;keepalives_count=0;keepalives=0").unwrap();
    assert_eq!(
        (config.connect_timeout, config.tcp.keepalives_count),
        (None, None)
    );
    assert!(!config.tcp.keepalives);
}

#[test]
fn the_settings_of_every_session_are_in_the_startup_message() {
    let config = read(
        "pgsql:application_name=shop;fallback_application_name=other;search_path=app,public;\
         options='-c geqo=off';set.work_mem=8MB;SET.my.own=x",
    )
    .unwrap();
    let parameters: Vec<_> = config
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        parameters,
        [
            ("application_name", "shop"),
            ("options", "-c geqo=off"),
            ("search_path", "app,public"),
            ("work_mem", "8MB"),
            ("my.own", "x"),
        ]
    );
    let config = read("pgsql:fallback_application_name=other").unwrap();
    assert_eq!(config.parameters[0].1, "other");
    assert!(message(read("pgsql:set.=1")).contains("does not name a setting"));
}

#[test]
fn builder_option_beats_dsn_and_dsn_beats_environment() {
    let dsn = Dsn::parse("pgsql:host=of-dsn;sslmode=disable").unwrap();
    let mut options = Options::new();
    options.set("host", "of-builder");
    let environment = [
        ("PGHOST", "of-env"),
        ("PGSSLMODE", "require"),
        ("PGPORT", "7"),
    ];
    let config = Config::read_with(&dsn, &options, |name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    })
    .unwrap();
    assert_eq!(config.servers, [server("of-builder", 7)]);
    assert_eq!(config.tls.mode(), SslMode::Disable);
}

#[tokio::test]
async fn the_environment_speaks_where_the_dsn_is_silent() {
    let config = read_in(
        "pgsql:",
        &[
            ("PGHOST", "db1,db2"),
            ("PGPORT", "7,8"),
            ("PGDATABASE", "shop"),
            ("PGUSER", "app"),
            ("PGPASSWORD", "secret"),
            ("PGSSLMODE", "verify-full"),
            ("PGSSLROOTCERT", "/ca.pem"),
            ("PGAPPNAME", "tests"),
            ("PGOPTIONS", "-c geqo=off"),
            ("PGTZ", "Asia/Tokyo"),
            ("PGCONNECT_TIMEOUT", "9"),
            ("PGTARGETSESSIONATTRS", "standby"),
            ("PGCHANNELBINDING", "require"),
            ("USER", "nobody"),
        ],
    )
    .unwrap();
    assert_eq!(config.servers, [server("db1", 7), server("db2", 8)]);
    let login = login(&config, Credentials::default()).await;
    assert_eq!((&*login.user, &*login.database), ("app", "shop"));
    assert_eq!(login.password.unwrap().expose(), "secret");
    assert_eq!(config.tls.mode(), SslMode::VerifyFull);
    assert_eq!(config.tls.settings().roots, Roots::File("/ca.pem".into()));
    assert_eq!(config.parameters.len(), 3);
    assert_eq!(
        config.parameters[2],
        ("timezone".into(), "Asia/Tokyo".into())
    );
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(9)));
    assert_eq!(config.hosts.attrs, SessionAttrs::Standby);
    assert_eq!(config.channel_binding, ChannelBinding::Require);
}

#[test]
fn invalid_variable_is_an_error_that_says_where_it_came_from() {
    let wrong = message(read_in("pgsql:host=a", &[("PGSSLMODE", "on")]));
    assert!(
        wrong.contains("sslmode") && wrong.contains("PGSSLMODE"),
        "{wrong}"
    );
    let wrong = message(read_in("pgsql:sslmode=on", &[("PGHOST", "a")]));
    assert!(!wrong.contains("PG"), "{wrong}");
    // Empty is not set.
    assert!(read_in("pgsql:", &[("PGSSLMODE", ""), ("PGPORT", "")]).is_ok());
}

#[cfg(unix)]
#[tokio::test]
async fn the_password_file_speaks_last() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".pgpass");
    std::fs::write(
        &path,
        "db1:5432:shop:app:of-file\nlocalhost:*:*:app:local\n",
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let home = ("HOME", home.path().to_str().unwrap());
    let app = || Credentials {
        user: Some("app".to_owned()),
        ..Credentials::default()
    };
    let password = |login: Login| login.password.map(|it| it.expose().to_owned());

    let config = read_in("pgsql:host=db1;dbname=shop", &[home]).unwrap();
    assert_eq!(
        password(login(&config, app()).await).as_deref(),
        Some("of-file")
    );
    let given = Credentials::new("app", "given");
    assert_eq!(
        password(login(&config, given).await).as_deref(),
        Some("given")
    );
    let config = read_in("pgsql:host=db2;dbname=shop", &[home]).unwrap();
    assert_eq!(password(login(&config, app()).await), None);
    for this_machine in ["pgsql:", "pgsql:host=/tmp", "pgsql:host=localhost"] {
        let config = read_in(this_machine, &[home]).unwrap();
        assert_eq!(
            password(login(&config, app()).await).as_deref(),
            Some("local")
        );
    }
    let elsewhere = format!("pgsql:host=db1;dbname=shop;passfile={}", path.display());
    let config = read_in(&elsewhere, &[]).unwrap();
    assert_eq!(
        password(login(&config, app()).await).as_deref(),
        Some("of-file")
    );
}

#[tokio::test]
async fn missing_user_is_an_error_that_says_where_to_set_one() {
    let config = read("pgsql:host=a").unwrap();
    let credentials = Credentials::default();
    let error = config.login(&config.servers[0], &credentials).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("PGUSER"), "{error}");
    // The database is called like the user, unless it is said.
    let config = read_in("pgsql:host=a", &[("USER", "me")]).unwrap();
    let login = login(&config, Credentials::default()).await;
    assert_eq!((&*login.user, &*login.database), ("me", "me"));
}

#[tokio::test]
async fn no_password_is_ever_shown() {
    let variables = [("PGPASSWORD", "hunter2"), ("PGUSER", "app")];
    let config = read_in("pgsql:host=a", &variables).unwrap();
    let login = login(&config, Credentials::default()).await;
    let shown = format!("{config:?} {login:?} {}", config.address());
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// A folder with a service file in it.
fn services(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.conf");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

#[tokio::test]
async fn service_goes_between_the_dsn_and_the_environment() {
    let (_folder, file) = services(
        "[shop]\nhost=of-service\nport=7\ndbname=shop\nuser=app\npassword=secret\nsslmode=require\n\
         application_name=service\n[other]\nhost=other\n",
    );
    let environment = [
        ("PGSERVICEFILE", &*file),
        ("PGSERVICE", "shop"),
        ("PGHOST", "of-env"),
        ("PGUSER", "of-env"),
        ("PGPASSWORD", "of-env"),
        ("PGAPPNAME", "of-env"),
        ("PGCONNECT_TIMEOUT", "9"),
    ];
    let config = read_in("pgsql:port=8", &environment).unwrap();
    assert_eq!(config.servers, [server("of-service", 8)]);
    assert_eq!(config.tls.mode(), SslMode::Require);
    assert_eq!(config.parameters[0].1, "service");
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(9)));
    let given = login(&config, Credentials::default()).await;
    assert_eq!((&*given.user, &*given.database), ("app", "shop"));
    assert_eq!(given.password.unwrap().expose(), "secret");
    let given = login(&config, Credentials::new("me", "mine")).await;
    assert_eq!(given.user, "me");
    assert_eq!(given.password.unwrap().expose(), "mine");
    // The DSN names another service; every form of DSN can.
    for dsn in ["pgsql:service=other", "postgres:///?service=other"] {
        let config = read_in(dsn, &environment).unwrap();
        assert_eq!(config.servers, [server("other", PORT)], "{dsn}");
    }
    let dsn = format!("pgsql:service=other;servicefile={file}");
    assert_eq!(read(&dsn).unwrap().servers, [server("other", PORT)]);
}

#[test]
fn wrong_option_of_a_service_is_an_error_that_names_it() {
    let (_folder, file) =
        services("[shop]\nsslmode=on\n[odd]\nfrobnicate=1\nsslpassword=hunter2\n");
    let dsn = format!("pgsql:service=shop;servicefile={file}");
    let wrong = message(read(&dsn));
    assert!(
        wrong.contains("sslmode") && wrong.contains("verify-full"),
        "{wrong}"
    );
    assert!(
        wrong.contains("the service \"shop\" in ") && wrong.contains(&file),
        "{wrong}"
    );
    let wrong = message(read(&dsn.replace("shop", "odd")));
    assert!(
        wrong.contains("no option frobnicate") && wrong.contains(&file),
        "{wrong}"
    );
    assert!(!wrong.contains("hunter2"), "{wrong}");
    let wrong = message(read(&dsn.replace("shop", "shops")));
    assert!(
        wrong.contains("\"shops\" is unknown") && wrong.contains(&file),
        "{wrong}"
    );
    let wrong = message(read("pgsql:service=shop;servicefile=/no/such/file"));
    assert!(wrong.contains("/no/such/file"), "{wrong}");
}

#[test]
fn client_certificate_is_named_or_in_the_home_directory() {
    let home = [("HOME", "/home/me")];
    let config = read_in("pgsql:", &home).unwrap();
    let client = &config.tls.settings().client;
    let default =
        |file: &str| FileOption::Default(Some(format!("/home/me/.postgresql/{file}").into()));
    assert_eq!(client.certificate, default("postgresql.crt"));
    assert_eq!(client.key, default("postgresql.key"));
    assert_eq!(client.mode, CertificateMode::Allow);
    let variables = [
        ("PGSSLCERT", "/c.crt"),
        ("PGSSLKEY", "/c.key"),
        ("PGSSLCERTMODE", "disable"),
    ];
    let config = read_in("pgsql:sslkey=/d.key;sslpassword=hunter2", &variables).unwrap();
    let client = &config.tls.settings().client;
    assert_eq!(client.certificate, FileOption::Named("/c.crt".into()));
    assert_eq!(client.key, FileOption::Named("/d.key".into()));
    assert_eq!(client.mode, CertificateMode::Disable);
    assert_eq!(client.password.as_ref().unwrap().expose(), "hunter2");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}
