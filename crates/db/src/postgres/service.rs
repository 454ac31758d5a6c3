//! libpq's service files: named sets of options.
//!
//! ```text
//! # comment
//! [shop]
//! host=db1,db2
//! dbname=shop
//! ```
//!
//! The driver looks for the service in `PGSERVICEFILE` (or `servicefile=`), otherwise in `~/.pg_service.conf`, and then in
//! `pg_service.conf` of the system's folder. As in libpq, the first value of an option counts. Blanks around `=` are an
//! error here; libpq takes them for a part of the name or of the value.

use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::config::dsn::{Dsn, Options};
use crate::config::secret::Secret;
use crate::{Error, Kind, Result};

/// libpq's folder for `pg_service.conf` on Debian, on Fedora, and as PostgreSQL builds it.
const SYSTEM_FOLDERS: [&str; 3] = [
    "/etc/postgresql-common",
    "/etc/sysconfig/pgsql",
    "/usr/local/pgsql/etc",
];

/// The places where service files may be.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceFiles {
    /// `PGSERVICEFILE` or `servicefile=`. This file must exist.
    pub(super) named: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    /// `PGSYSCONFDIR`.
    pub(super) system: Option<PathBuf>,
}

/// The options of one service.
#[derive(Debug)]
pub(super) struct Service {
    name: String,
    file: PathBuf,
    options: Vec<(String, Secret)>,
}

impl ServiceFiles {
    /// Reads the service of this name.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if no file has it, or if its file is malformed.
    pub(super) fn find(&self, name: &str) -> Result<Service> {
        let mut searched = Vec::new();
        for path in self.candidates() {
            let must_exist = self.named.as_ref() == Some(&path);
            let text = match read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => continue,
                Err(error) => {
                    let message = format!("the service file {} cannot be read", path.display());
                    return Err(wrong(message).because(error));
                }
            };
            if let Some(options) = parse(&text, name).map_err(|problem| {
                wrong(format!("the service file {} {problem}", path.display()))
            })? {
                return Ok(Service {
                    name: name.to_owned(),
                    file: path,
                    options,
                });
            }
            searched.push(path.display().to_string());
        }
        let place = match searched.is_empty() {
            true => "there is no service file: create ~/.pg_service.conf or set PGSERVICEFILE"
                .to_owned(),
            false => format!("it is not defined in {}", searched.join(" or ")),
        };
        Err(wrong(format!("the service {name:?} is unknown: {place}")))
    }

    fn candidates(&self) -> Vec<PathBuf> {
        let own = match &self.named {
            Some(named) => Some(named.clone()),
            None => self.home.as_ref().map(|home| home.join(".pg_service.conf")),
        };
        let system: Vec<PathBuf> = match &self.system {
            Some(folder) => vec![folder.clone()],
            None => SYSTEM_FOLDERS.iter().map(PathBuf::from).collect(),
        };
        let system = system
            .into_iter()
            .map(|folder| folder.join("pg_service.conf"));
        own.into_iter().chain(system).collect()
    }
}

impl Service {
    pub(super) fn get(&self, name: &str) -> Option<&Secret> {
        let found = self.options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// Adds the options that neither the DSN nor the builder has. User and password are no options.
    pub(super) fn merge(&self, dsn: &Dsn, options: &mut Options) {
        for (name, value) in &self.options {
            let is_login = matches!(name.as_str(), "user" | "password");
            if !is_login && dsn.option(name).is_none() && options.get(name).is_none() {
                options.set(name.as_str(), value.clone());
            }
        }
    }

    /// Adds to an error which service it comes from.
    pub(super) fn blame(&self, error: &Error) -> Error {
        wrong(format!(
            "{}; it comes from the service {:?} in {}",
            error.message(),
            self.name,
            self.file.display()
        ))
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    // The handle is being opened: nothing else runs on it yet, and the file is small.
    std::fs::read_to_string(path).map(Zeroizing::new)
}

/// Returns the options of a service; `None` if the text does not define it.
fn parse(text: &str, service: &str) -> Result<Option<Vec<(String, Secret)>>, String> {
    let mut found: Option<Vec<(String, Secret)>> = None;
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim();
        let problem = |what: &str| Err(format!("has an error in line {}: {what}", nth + 1));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(group) = line.strip_prefix('[') {
            match (&found, group.split_once(']')) {
                (Some(_), _) => break,
                (None, Some((name, _))) if name == service => found = Some(Vec::new()),
                (None, _) => {}
            }
            continue;
        }
        let Some(options) = &mut found else { continue };
        if line.starts_with("ldap:") || line.starts_with("ldaps:") {
            return problem("services in LDAP are not supported");
        }
        let Some((name, value)) = line.split_once('=') else {
            return problem("an option is written name=value");
        };
        if name.ends_with(char::is_whitespace) || value.starts_with(char::is_whitespace) {
            return problem("there must be no blank before or after the =");
        }
        if matches!(name, "service" | "servicefile") {
            return problem("a service cannot refer to another service");
        }
        if !options.iter().any(|(known, _)| known == name) {
            options.push((name.to_owned(), Secret::from(value)));
        }
    }
    Ok(found)
}

fn wrong(message: String) -> Error {
    Error::new(Kind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# services\nstray line\n[other]\nhost=other\n\n[shop] \n  host=db1,db2\n# comment\n\
                        password=a=b #c\nhost=ignored\nuser=app  \n[shop]\nport=7\n";

    fn options(text: &str, service: &str) -> Vec<(String, String)> {
        let found = parse(text, service).unwrap().unwrap();
        let shown = |(name, value): (String, Secret)| (name, value.expose().to_owned());
        found.into_iter().map(shown).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn first_group_and_first_value_of_an_option_count() {
        assert_eq!(
            options(TEXT, "shop"),
            pairs(&[("host", "db1,db2"), ("password", "a=b #c"), ("user", "app")])
        );
        assert_eq!(options(TEXT, "other"), pairs(&[("host", "other")]));
        assert!(parse(TEXT, "sho").unwrap().is_none());
    }

    #[test]
    fn malformed_lines_are_errors_with_their_number() {
        for (line, says) in [
            ("host", "line 2: an option is written name=value"),
            ("host = db1", "no blank before or after"),
            ("host= db1", "no blank before or after"),
            ("service=other", "cannot refer to another service"),
            ("ldap://ldap.example/dc=x?y?one?z", "LDAP"),
        ] {
            let error = parse(&format!("[shop]\n{line}\n"), "shop").unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        // Other services are not read.
        assert!(
            parse("[other]\nhost\n[shop]\nhost=a\n", "shop")
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn own_file_is_searched_before_the_systems() {
        let (home, system) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(
            system.path().join("pg_service.conf"),
            "[a]\nhost=system\n[b]\nhost=system\n",
        );
        let mut files = ServiceFiles {
            named: None,
            home: Some(home.path().to_owned()),
            system: Some(system.path().to_owned()),
        };
        let host = |files: &ServiceFiles, name: &str| {
            let found = files.find(name).unwrap();
            found.get("host").unwrap().expose().to_owned()
        };
        assert_eq!(host(&files, "a"), "system");
        write(home.path().join(".pg_service.conf"), "[a]\nhost=home\n");
        assert_eq!(host(&files, "a"), "home");
        assert_eq!(host(&files, "b"), "system");
        // A file that is named takes the place of the one at home.
        let named = home.path().join("named.conf");
        files.named = Some(named.clone());
        let error = files.find("a").unwrap_err();
        assert!(error.message().contains("named.conf"), "{error}");
        write(named, "[c]\nhost=named\n");
        assert_eq!(host(&files, "a"), "system");
        assert_eq!(host(&files, "c"), "named");
        let error = files.find("d").unwrap_err();
        assert!(error.message().contains("named.conf or "), "{error}");
    }
}
