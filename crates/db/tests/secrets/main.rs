//! Passwords and tokens: in nothing that is shown, and in memory no longer than they are needed.
#![cfg(all(
    feature = "mysql",
    feature = "odbc",
    feature = "postgres",
    feature = "sqlite"
))]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod memory;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod shown;

use self::servers::required_variable;

/// PostgreSQL's ODBC driver, as Debian and Ubuntu install it.
fn odbc_library() -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap();
    let libraries = folders.map(|folder| folder.unwrap().path().join("odbc/psqlodbcw.so"));
    let found = libraries.into_iter().find(|library| library.exists());
    let found = found.expect("run ci/test.sh, or apt-get install odbc-postgresql");
    found.display().to_string()
}

/// Who logs in where, without the password. The port of the server is an option.
fn dsn(driver: &str, user: &str) -> String {
    match driver {
        "pgsql" => format!("pgsql:host=127.0.0.1;dbname=cenote;user={user}"),
        "mysql" => {
            let port = required_variable("CENOTE_TEST_MARIADB_PORT");
            format!("mysql:host=127.0.0.1;port={port};dbname=cenote;user={user}")
        }
        _ => {
            let library = odbc_library();
            format!("odbc:Driver={library};Server=127.0.0.1;Port=0;Database=cenote;UID={user}")
        }
    }
}
