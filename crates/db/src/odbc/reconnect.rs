//! Refuses attributes that make a driver reconnect automatically: the rest of a transaction would run outside of it. Checks the
//! DSN, `odbc.ini` and file data sources.

use std::path::{Path, PathBuf};

use super::config::Config;
use crate::{Error, Kind, Result};

/// The bit of `OPTION` in the drivers of MariaDB and MySQL.
const AUTO_RECONNECT: u64 = 1 << 22;

/// Whether this attribute makes a driver reconnect.
fn reconnects(name: &str, value: &str) -> bool {
    let name: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let value = value.trim();
    match &*name {
        "autoreconnect" | "reconnect" => {
            let off = ["", "0", "no", "false", "off"];
            !off.iter().any(|off| off.eq_ignore_ascii_case(value))
        }
        "option" | "options" => {
            // As C parses numbers: a minus sets all the bits, and what follows the digits is ignored.
            let end = value.find(|c: char| !c.is_ascii_digit());
            let digits = &value[..end.unwrap_or(value.len())];
            value.starts_with('-') || digits.parse().unwrap_or(0_u64) & AUTO_RECONNECT != 0
        }
        _ => false,
    }
}

fn refused(name: &str, place: &str) -> Error {
    let message = format!(
        "{name} in {place} makes the ODBC driver reconnect by itself, which would run the rest of a transaction \
         outside of it: take it out; lost connections are replaced by the pool"
    );
    Error::new(Kind::Config, message)
}

/// Refuses an attribute of a DSN that makes a driver reconnect.
///
/// # Errors
///
/// [`Kind::Config`] with the attribute.
pub(super) fn check(name: &str, value: &str) -> Result<()> {
    match reconnects(name, value) {
        true => Err(refused(name, "the DSN")),
        false => Ok(()),
    }
}

/// Refuses a data source whose files make its driver reconnect, unless the DSN overrides that.
///
/// # Errors
///
/// [`Kind::Config`] with the file and the attribute.
pub(super) fn check_files(config: &Config) -> Result<()> {
    if let Some(name) = config.attribute("dsn") {
        for file in ini_files() {
            check_file(config, &file, name)?;
        }
    }
    if let Some(path) = config.attribute("filedsn") {
        check_file(config, Path::new(path), "ODBC")?;
    }
    Ok(())
}

/// Returns unixODBC's files of data sources: the user's, then the system's.
fn ini_files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = variable("ODBCINI")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".odbc.ini")));
    let system = variable("ODBCSYSINI").map(|folder| Path::new(&folder).join("odbc.ini"));
    let usual = PathBuf::from("/etc/odbc.ini");
    own.into_iter().chain([system.unwrap_or(usual)]).collect()
}

fn check_file(config: &Config, file: &Path, section: &str) -> Result<()> {
    // The driver manager reports a file that cannot be read.
    let Ok(text) = std::fs::read(file) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&text);
    for (name, value) in entries(&text, section) {
        if reconnects(name, value) && config.attribute(name).is_none() {
            return Err(refused(name, &file.display().to_string()));
        }
    }
    Ok(())
}

/// Returns the entries of a section of an INI file.
fn entries<'t>(text: &'t str, section: &str) -> impl Iterator<Item = (&'t str, &'t str)> {
    let mut is_inside = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default().trim();
            is_inside = name.eq_ignore_ascii_case(section);
            return None;
        }
        let (name, value) = line.split_once('=').filter(|_| is_inside)?;
        Some((name.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Dsn, Options};

    #[test]
    fn h17_reconnecting_attribute_is_recognised_in_every_spelling() {
        for (name, value) in [
            ("AUTO_RECONNECT", "1"),
            ("auto_reconnect", "yes"),
            ("AutoReconnect", "true"),
            ("OPTION", "4194304"),
            ("Options", "71303168"),
            ("OPTION", " 4194305x"),
            ("OPTION", "-1"),
        ] {
            assert!(reconnects(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("AUTO_RECONNECT", "0"),
            ("AUTO_RECONNECT", "No"),
            ("OPTION", "67108864"),
            ("OPTION", ""),
            ("ConnectRetryCount", "1"),
        ] {
            assert!(!reconnects(name, value), "{name}={value}");
        }
    }

    #[test]
    fn data_source_of_a_file_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("odbc.ini");
        let text = "[other]\nAUTO_RECONNECT=1\n\n[Shop]\n; AUTO_RECONNECT=1\nServer = x\n option=4194304\n";
        std::fs::write(&file, text).unwrap();
        let config = |dsn: &str| {
            let dsn: Dsn = dsn.parse().unwrap();
            Config::read(&dsn, &Options::new()).unwrap()
        };
        let error = check_file(&config("odbc:shop"), &file, "shop").unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.message().contains("odbc.ini"), "{error}");
        check_file(&config("odbc:DSN=shop;OPTION=0"), &file, "shop").unwrap();
        check_file(&config("odbc:another"), &file, "another").unwrap();
        let file = folder.path().join("shop.dsn");
        std::fs::write(&file, "[ODBC]\nDRIVER=x\nAUTO_RECONNECT=1\n").unwrap();
        let config = config(&format!("odbc:FILEDSN={}", file.display()));
        check_files(&config).unwrap_err();
    }
}
