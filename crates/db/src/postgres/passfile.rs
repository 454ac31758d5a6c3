//! The password file: lines of `host:port:database:user:password`.
//!
//! The first line that matches gives the password. `*` matches everything; `\:` and `\\` are a colon and a backslash; `#`
//! begins a comment. A file that other users can read is ignored.

use std::io::Read;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::config::secret::Secret;

/// The login whose password is searched for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) user: String,
}

/// Returns the password for this login, if the file contains one. Logs a warning about a file that cannot be read or that
/// other users can read, and returns `None`.
///
/// # Cancel safety
///
/// If dropped, nothing remains.
pub(super) async fn find(path: PathBuf, wanted: Wanted) -> Option<Secret> {
    // A home directory may be on a slow disk.
    let found = tokio::task::spawn_blocking(move || {
        let text = read(&path)?;
        search(&text, &wanted)
    });
    // Fails only if the runtime shuts down; then nobody connects any more.
    found.await.ok().flatten()
}

fn read(path: &Path) -> Option<Zeroizing<String>> {
    let file = std::fs::File::open(path);
    let opened = file.and_then(|file| file.metadata().map(|found| (file, found)));
    let (mut file, metadata) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "ignoring the password file: it cannot be read");
            return None;
        }
    };
    if !metadata.is_file() {
        tracing::warn!(path = %path.display(), "ignoring the password file: it is not a regular file");
        return None;
    }
    if is_open_to_others(&metadata) {
        tracing::warn!(
            path = %path.display(),
            "ignoring the password file: other users can read it; chmod 0600"
        );
        return None;
    }
    // Sized in advance: a buffer that grows leaves copies behind.
    let size = usize::try_from(metadata.len()).ok()?;
    let mut text = Zeroizing::new(String::with_capacity(size + 1));
    match file.read_to_string(&mut text) {
        Ok(_) => Some(text),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "ignoring the password file: it cannot be read");
            None
        }
    }
}

#[cfg(unix)]
fn is_open_to_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &std::fs::Metadata) -> bool {
    false
}

fn search(text: &str, wanted: &Wanted) -> Option<Secret> {
    let port = wanted.port.to_string();
    let asked = [&wanted.host, &port, &wanted.database, &wanted.user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for asked in asked {
                let (field, after) = split_field(rest)?;
                if field != "*" && *unescape(field) != *asked {
                    return None;
                }
                rest = after;
            }
            // libpq reserves what follows a colon after the password.
            let password = split_field(rest).map_or(rest, |(password, _)| password);
            (!password.is_empty()).then(|| Secret::from(std::mem::take(&mut *unescape(password))))
        })
}

/// Splits at the next colon without a backslash before it.
fn split_field(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn unescape(field: &str) -> Zeroizing<String> {
    let mut plain = Zeroizing::new(String::with_capacity(field.len()));
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            host: "db.example".to_owned(),
            port: 5432,
            database: "shop".to_owned(),
            user: "app".to_owned(),
        }
    }

    fn found(text: &str) -> Option<String> {
        search(text, &wanted()).map(|password| password.expose().to_owned())
    }

    #[test]
    fn first_line_that_matches_gives_the_password() {
        let text = "other:5432:shop:app:one\ndb.example:5432:shop:app:two\n*:*:*:*:three\n";
        assert_eq!(found(text).as_deref(), Some("two"));
        let other = Wanted {
            port: 6432,
            ..wanted()
        };
        assert_eq!(
            search(text, &other).map(|it| it.expose().to_owned()),
            Some("three".to_owned())
        );
    }

    #[test]
    fn star_matches_everything_and_a_part_of_a_name_nothing() {
        assert_eq!(found("*:*:*:app:secret").as_deref(), Some("secret"));
        assert_eq!(found("db.*:*:*:app:secret"), None);
        assert_eq!(found("db.example:5432:shop:ap:secret"), None);
    }

    #[test]
    fn backslash_escapes_colons_and_backslashes() {
        assert_eq!(
            found(r"*:*:*:*:a\:b\\c").as_deref(),
            Some(r"a:b\c"),
            "in the password"
        );
        let mut odd = wanted();
        odd.database = "sh:op".to_owned();
        let password = search(r"*:*:sh\:op:*:secret", &odd).unwrap();
        assert_eq!(password.expose(), "secret");
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let text = "# *:*:*:*:comment\n\nnonsense\n*:*:*:*:\n*:*:*:*:secret:and more\r\n";
        assert_eq!(found(text).as_deref(), Some("secret"));
        assert_eq!(found(""), None);
    }

    #[test]
    fn password_may_contain_any_letters() {
        assert_eq!(found("*:*:*:*:pä ß'wörd").as_deref(), Some("pä ß'wörd"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn file_that_others_can_read_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        assert!(find(path.clone(), wanted()).await.is_none(), "not there");
        std::fs::write(&path, "*:*:*:*:secret\n").unwrap();
        for (mode, used) in [(0o600, true), (0o640, false), (0o604, false), (0o400, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = find(path.clone(), wanted()).await;
            assert_eq!(found.is_some(), used, "{mode:o}");
        }
    }
}
