//! libpq's environment variables and files.
//!
//! A test cannot change its environment while others run. So each test runs itself again, in a process with the
//! environment that it needs.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use cenote::{Db, Kind};

use crate::servers::{WHO, port, refused, second_port, soon, tls_file};

/// Runs a test of this file in a process of its own, with these variables and without the machine's variables of
/// libpq and OpenSSL.
fn run_again(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test_path = format!("connect::around::{test}");
    command.args(["--exact", &test_path, "--nocapture"]);
    let is_foreign = |name: &str| name.starts_with("PG") || name.starts_with("SSL_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_foreign(name)) {
        command.env_remove(name);
    }
    command.env("CENOTE_TEST_INSIDE", test);
    command.envs(variables.iter().copied());
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

fn is_inside(test: &str) -> bool {
    std::env::var("CENOTE_TEST_INSIDE").is_ok_and(|inside| inside == test)
}

async fn ask(dsn: &str, sql: &str) -> String {
    let db = Db::open(dsn).await.unwrap();
    soon("it connects", db.query_as_one(sql, ())).await.unwrap()
}

#[tokio::test]
async fn libpqs_variables_hold_where_the_dsn_is_silent() {
    const TEST: &str = "libpqs_variables_hold_where_the_dsn_is_silent";
    if !is_inside(TEST) {
        let port = port().to_string();
        let ca = tls_file("ca.crt");
        return run_again(
            TEST,
            &[
                ("PGHOST", "localhost"),
                ("PGPORT", &port),
                ("PGDATABASE", "cenote"),
                ("PGUSER", "scram"),
                ("PGPASSWORD", "scram-secret"),
                ("PGSSLMODE", "verify-full"),
                ("PGSSLROOTCERT", &ca),
                ("PGAPPNAME", "around"),
                ("PGOPTIONS", "-c geqo=off"),
                ("PGTZ", "Asia/Tokyo"),
                ("PGTARGETSESSIONATTRS", "read-write"),
                ("PGCHANNELBINDING", "require"),
                ("PGCONNECT_TIMEOUT", "15"),
            ],
        );
    }
    let told = "SELECT concat_ws(' ', current_user, current_database(), \
                current_setting('application_name'), current_setting('geqo'), \
                current_setting('timezone'), \
                (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()))";
    assert_eq!(
        ask("pgsql:", told).await,
        "scram cenote around off Asia/Tokyo t"
    );
    // The DSN goes before them.
    let dsn = "pgsql:user=hashed;password=hashed-secret;channel_binding=prefer;application_name=x";
    assert_eq!(ask(dsn, told).await, "hashed cenote x off Asia/Tokyo t");
}

#[tokio::test]
async fn a_variable_that_makes_no_sense_is_named() {
    const TEST: &str = "a_variable_that_makes_no_sense_is_named";
    if !is_inside(TEST) {
        return run_again(TEST, &[("PGSSLMODE", "always")]);
    }
    let error = Db::open("pgsql:host=127.0.0.1").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("PGSSLMODE"), "{error}");
}

#[tokio::test]
async fn password_file_in_the_home_directory_is_read_at_each_connect() {
    const TEST: &str = "password_file_in_the_home_directory_is_read_at_each_connect";
    if !is_inside(TEST) {
        let home = tempfile::tempdir().unwrap();
        return run_again(TEST, &[("HOME", home.path().to_str().unwrap())]);
    }
    let port = port();
    let dsn = format!("pgsql:host=127.0.0.1;port={port};dbname=cenote;user=scram");
    let error = refused(&dsn).await;
    assert!(error.message().contains("password file"), "{error}");

    let file = std::env::home_dir().unwrap().join(".pgpass");
    std::fs::write(&file, format!("127.0.0.1:{port}:*:scram:scram-secret\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&dsn).await;
    assert!(
        error.message().contains("password file"),
        "others may read it: {error}"
    );

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ask(&dsn, "SELECT current_user::text").await, "scram");
    // A password that was given goes before it.
    let error = refused(&format!("{dsn};password=wrong")).await;
    assert_eq!(error.sql_state(), Some("28P01"));
}

#[tokio::test]
async fn the_root_certificate_of_the_home_directory_is_used() {
    const TEST: &str = "the_root_certificate_of_the_home_directory_is_used";
    if !is_inside(TEST) {
        let home = tempfile::tempdir().unwrap();
        return run_again(TEST, &[("HOME", home.path().to_str().unwrap())]);
    }
    let dsn = crate::servers::dsn_with("sslmode=verify-full");
    let error = refused(&dsn).await;
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("sslrootcert"), "{error}");

    let folder = std::env::home_dir().unwrap().join(".postgresql");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(tls_file("ca.crt"), folder.join("root.crt")).unwrap();
    assert_eq!(ask(&dsn, "SELECT current_user::text").await, "cenote");

    std::fs::copy(tls_file("stranger.crt"), folder.join("root.crt")).unwrap();
    let error = refused(&dsn).await;
    assert!(error.message().contains("root.crt"), "{error}");
}

#[tokio::test]
async fn the_certificates_of_the_operating_system_can_be_trusted() {
    const TEST: &str = "the_certificates_of_the_operating_system_can_be_trusted";
    if !is_inside(TEST) {
        // The variable that names the certificates for other programs, too.
        run_again(TEST, &[("SSL_CERT_FILE", &tls_file("ca.crt"))]);
        return run_again(TEST, &[("SSL_CERT_FILE", &tls_file("stranger.crt"))]);
    }
    let dsn = crate::servers::dsn_with("sslrootcert=system");
    if std::env::var("SSL_CERT_FILE").unwrap().ends_with("ca.crt") {
        let encrypted = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(ask(&dsn, encrypted).await, "true");
    } else {
        let error = refused(&dsn).await;
        assert!(error.message().contains("operating system"), "{error}");
    }
}

#[tokio::test]
async fn system_certificates_need_the_right_host_name() {
    const TEST: &str = "system_certificates_need_the_right_host_name";
    if !is_inside(TEST) {
        return run_again(TEST, &[("SSL_CERT_FILE", &tls_file("ca.crt"))]);
    }
    let second = format!("pgsql:host=127.0.0.1;port={};{WHO}", second_port());
    let error = refused(&format!("{second};sslrootcert=system")).await;
    assert!(error.message().contains("not for 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn missing_system_certificates_are_an_error_with_a_remedy() {
    const TEST: &str = "missing_system_certificates_are_an_error_with_a_remedy";
    if !is_inside(TEST) {
        return run_again(TEST, &[("SSL_CERT_FILE", "/no/such/file")]);
    }
    let error = refused(&crate::servers::dsn_with("sslrootcert=system")).await;
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("SSL_CERT_FILE"), "{error}");
}

#[tokio::test]
async fn client_certificate_of_the_home_directory_is_used() {
    const TEST: &str = "client_certificate_of_the_home_directory_is_used";
    if !is_inside(TEST) {
        let home = tempfile::tempdir().unwrap();
        return run_again(TEST, &[("HOME", home.path().to_str().unwrap())]);
    }
    let port = port();
    let dsn =
        format!("pgsql:host=127.0.0.1;port={port};dbname=cenote;user=certified;sslmode=require");
    let error = refused(&dsn).await;
    assert_eq!(error.sql_state(), Some("28000"), "no certificate: {error}");

    let folder = std::env::home_dir().unwrap().join(".postgresql");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(tls_file("certified.crt"), folder.join("postgresql.crt")).unwrap();
    let error = refused(&dsn).await;
    assert_eq!(error.kind(), Kind::Config);
    assert!(
        error.message().contains("postgresql.key does not exist"),
        "{error}"
    );

    let key = folder.join("postgresql.key");
    std::fs::copy(tls_file("certified.key"), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ask(&dsn, "SELECT current_user::text").await, "certified");
}

#[tokio::test]
async fn service_file_gives_the_options_of_a_service() {
    const TEST: &str = "service_file_gives_the_options_of_a_service";
    if !is_inside(TEST) {
        let home = tempfile::tempdir().unwrap();
        let system = tempfile::tempdir().unwrap();
        let text = format!(
            "[shop]\nhost=127.0.0.1\nport={}\ndbname=cenote\nuser=scram\npassword=scram-secret\n\
             application_name=service\n",
            port()
        );
        std::fs::write(home.path().join(".pg_service.conf"), &text).unwrap();
        let text = text.replace("[shop]", "[hall]");
        let text = text
            .replace("scram-secret", "hashed-secret")
            .replace("scram", "hashed");
        std::fs::write(system.path().join("pg_service.conf"), text).unwrap();
        return run_again(
            TEST,
            &[
                ("HOME", home.path().to_str().unwrap()),
                ("PGSYSCONFDIR", system.path().to_str().unwrap()),
                ("PGSERVICE", "shop"),
                ("PGPORT", "1"),
                ("PGAPPNAME", "environment"),
                ("PGTZ", "Asia/Tokyo"),
            ],
        );
    }
    let sql = "SELECT concat_ws(' ', current_user, current_setting('application_name'), current_setting('timezone'))";
    assert_eq!(ask("pgsql:", sql).await, "scram service Asia/Tokyo");
    assert_eq!(
        ask("pgsql:service=hall", sql).await,
        "hashed service Asia/Tokyo"
    );
    let dsn = "postgres:///?service=hall&application_name=dsn";
    assert_eq!(ask(dsn, sql).await, "hashed dsn Asia/Tokyo");
    let error = Db::open("pgsql:service=mall").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains(".pg_service.conf or "), "{error}");
}
