//! Client certificates, by libpq's options.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cenote::{Db, Error, Kind};

use crate::servers::{WHO, dsn_with, port, refused, second_port, soon, tls_file};

/// A user whom the server lets in by certificate only.
fn certified(options: &str) -> String {
    let port = port();
    let ca = tls_file("ca.crt");
    format!(
        "pgsql:host=127.0.0.1;port={port};dbname=cenote;user=certified;sslmode=verify-full;sslrootcert={ca};{options}"
    )
}

fn with_key(key: &str) -> String {
    format!(
        "sslcert={};sslkey={}",
        tls_file("certified.crt"),
        tls_file(key)
    )
}

/// The subject of the certificate that the server has seen.
async fn subject(dsn: &str) -> Result<Option<String>, Error> {
    let db = Db::builder(dsn).max(1).open().await?;
    let sql = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let (subject,) = soon("it connects", db.query_as_one(sql, ())).await?;
    Ok(subject)
}

/// A copy of a key with these permissions, in a folder of its own.
fn copy_of(key: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.key");
    std::fs::copy(tls_file(key), &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

#[tokio::test]
async fn client_certificate_logs_its_user_in() {
    let named = Some("/CN=certified".to_owned());
    for key in ["certified.key", "certified-der.key"] {
        let found = subject(&certified(&with_key(key))).await;
        assert_eq!(found.unwrap(), named, "{key}");
    }
    let encrypted = with_key("certified-encrypted.key") + ";sslpassword=key-secret";
    assert_eq!(subject(&certified(&encrypted)).await.unwrap(), named);
    // A certificate is no login that the server asks for.
    let more = with_key("certified.key") + ";require_auth=none;sslcertmode=require";
    assert_eq!(subject(&certified(&more)).await.unwrap(), named);
    // Other users log in as before, and the server sees the certificate.
    let other = dsn_with(&(with_key("certified.key") + ";sslmode=require"));
    assert_eq!(subject(&other).await.unwrap(), named);
}

#[tokio::test]
async fn login_by_certificate_needs_one() {
    for options in [
        "".to_owned(),
        with_key("certified.key") + ";sslcertmode=disable",
    ] {
        let error = refused(&certified(&options)).await;
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        assert_eq!(error.sql_state(), Some("28000"), "{error}");
        assert!(error.message().contains("client certificate"), "{error}");
    }
    // The certificate is another user's.
    let other = certified(&with_key("certified.key")).replace("user=certified", "user=cenote");
    let error = refused(&other).await;
    assert!(error.message().contains("password"), "{error}");
}

#[tokio::test]
async fn server_that_does_not_trust_the_certificate_is_quoted() {
    let stranger = format!(
        "sslcert={};sslkey={}",
        tls_file("stranger.crt"),
        tls_file("stranger.key")
    );
    let error = refused(&certified(&stranger)).await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(
        error.message().contains("refused the client certificate"),
        "{error}"
    );
    assert!(error.message().contains("ssl_ca_file"), "{error}");
}

#[tokio::test]
async fn required_certificate_must_be_asked_for() {
    let second = format!(
        "pgsql:host=127.0.0.1;port={};{WHO};sslmode=require",
        second_port()
    );
    let cert = with_key("certified.key");
    assert_eq!(subject(&format!("{second};{cert}")).await.unwrap(), None);
    let error = refused(&format!("{second};{cert};sslcertmode=require")).await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(error.message().contains("did not ask"), "{error}");
    let error = refused(&dsn_with("sslmode=require;sslcertmode=require")).await;
    assert_eq!(error.kind(), Kind::Config, "{error}");
    assert!(error.message().contains("sslcert=FILE"), "{error}");
}

#[tokio::test]
async fn file_that_cannot_be_used_is_named_with_a_remedy() {
    let named = |certificate: &str, key: &str| format!("sslcert={certificate};sslkey={key}");
    let (certificate, key) = (tls_file("certified.crt"), tls_file("certified.key"));
    let encrypted = tls_file("certified-encrypted.key");
    for (options, file, says) in [
        (
            named("/no/such.crt", &key),
            "/no/such.crt",
            "does not exist",
        ),
        (
            named("/etc/hostname", &key),
            "/etc/hostname",
            "contains no certificate",
        ),
        (
            named(&certificate, "/no/such.key"),
            "/no/such.key",
            "does not exist",
        ),
        (named(&certificate, "/etc"), "/etc", "not a regular file"),
        (
            named(&certificate, &tls_file("ca.key")),
            "ca.key",
            "does not belong to",
        ),
        (
            named(&certificate, &encrypted),
            "encrypted.key",
            "set sslpassword",
        ),
        (
            named(&certificate, &encrypted) + ";sslpassword=wrong",
            "encrypted.key",
            "sslpassword is wrong",
        ),
        (
            named(&certificate, &tls_file("certified-scrypt.key")) + ";sslpassword=key-secret",
            "scrypt.key",
            "openssl pkcs8 -topk8",
        ),
        (
            named(&certificate, &tls_file("certified-old.key")) + ";sslpassword=key-secret",
            "old.key",
            "openssl pkcs8 -topk8",
        ),
    ] {
        // Not even `prefer` goes on without: a wrong file is no server without TLS.
        for mode in ["verify-full", "prefer"] {
            let dsn =
                certified(&options).replace("sslmode=verify-full", &format!("sslmode={mode}"));
            let error = refused(&dsn).await;
            assert_eq!(error.kind(), Kind::Config, "{error}");
            assert!(error.message().contains(file), "{options}: {error}");
            assert!(error.message().contains(says), "{options}: {error}");
            assert!(!format!("{error:?}").contains("key-secret"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn file_without_a_key_in_it_is_named() {
    let (_folder, path) = copy_of("certified.crt", 0o600);
    let options = format!(
        "sslcert={};sslkey={}",
        tls_file("certified.crt"),
        path.display()
    );
    let error = refused(&certified(&options)).await;
    assert!(error.message().contains("no private key"), "{error}");
}

#[tokio::test]
async fn key_that_others_may_read_is_refused() {
    // For root's files libpq allows 0640; tests may run as root.
    for (mode, is_used) in [(0o600, true), (0o400, true), (0o644, false), (0o660, false)] {
        let (_folder, path) = copy_of("certified.key", mode);
        let options = format!(
            "sslcert={};sslkey={}",
            tls_file("certified.crt"),
            path.display()
        );
        match subject(&certified(&options)).await {
            Ok(_) => assert!(is_used, "{mode:o}"),
            Err(error) => {
                assert!(!is_used, "{mode:o}: {error}");
                assert_eq!(error.kind(), Kind::Config);
                assert!(error.message().contains("copy.key"), "{error}");
                assert!(error.message().contains("chmod 0600"), "{error}");
            }
        }
    }
}

/// A handle outlives its certificate: the next connection uses the renewed one.
#[tokio::test]
async fn renewed_certificate_is_used_by_the_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
    let install = |from: &str, to: &Path| {
        std::fs::copy(tls_file(from), to).unwrap();
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    install("stranger.crt", &certificate);
    install("stranger.key", &key);
    let options = format!("sslcert={};sslkey={}", certificate.display(), key.display());
    let db = Db::builder(&certified(&options))
        .max(1)
        .open()
        .await
        .unwrap();
    let error = soon("it is refused", db.ping()).await.unwrap_err();
    assert!(
        error.message().contains("refused the client certificate"),
        "{error}"
    );
    // Only one of the two is renewed: they do not match, and the old ones are used on.
    install("certified.crt", &certificate);
    let error = soon("it is refused", db.ping()).await.unwrap_err();
    assert!(
        error.message().contains("refused the client certificate"),
        "{error}"
    );
    install("certified.key", &key);
    soon("it connects", db.ping()).await.unwrap();
}
