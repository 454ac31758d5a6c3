//! The PostgreSQL programs of this machine, and the user who runs them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::interval;

/// What a cluster needs.
const NEEDED: [&str; 4] = ["postgres", "initdb", "pg_basebackup", "pg_rewind"];

/// The first version that repairs a crashed server in `pg_rewind`, and that changes the server to follow without a restart.
const OLDEST: u32 = 13;

/// Where Debian and Red Hat keep the programs of their servers, one directory a version.
const VERSIONS: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];

/// The PostgreSQL programs, and how to start them.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// The user and the group of the servers, if this process is root.
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no such users"))]
    user: Option<(u32, u32)>,
    /// The working directory, which that user can enter.
    home: PathBuf,
}

impl Programs {
    /// Finds the programs on the PATH, or else the newest of a distribution. `home` decides whether they need another user.
    ///
    /// # Errors
    ///
    /// Says what is missing.
    pub(crate) async fn find(home: &Path) -> Result<Self, String> {
        let programs = Programs {
            folder: choose(&folders())?,
            user: user_of_servers(home)?,
            home: home.to_owned(),
        };
        let version = programs.command("postgres").arg("--version").output();
        let version = version.map_err(|error| {
            let home = home.display();
            format!("postgres cannot be run in {home}: {error}; TMPDIR names another directory")
        })?;
        check_version(&String::from_utf8_lossy(&version.stdout))?;
        Ok(programs)
    }

    /// A program without the settings of this process for PostgreSQL.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .env("LC_ALL", "C")
            .current_dir(&self.home)
            .stdin(Stdio::null());
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt;
            // Ctrl-C must not reach it: the cluster has to be healed for the checks.
            command.process_group(0);
            if let Some((user, group)) = self.user {
                command.uid(user).gid(group);
            }
        }
        command
    }

    /// Runs a command to its end, with its output at the end of a file.
    ///
    /// # Errors
    ///
    /// It failed; with the last line of its output.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it kills the command.
    pub(crate) async fn run(&self, mut command: Command, log: &Path) -> Result<(), String> {
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let run = async {
            let file = append(log)?;
            command.stdout(file.try_clone()?).stderr(file);
            Tool(command.spawn()?).end().await
        };
        match run.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{name} failed: {}", last_line(log))),
            Err(error) => Err(format!("{name} cannot be run: {error}")),
        }
    }

    /// Gives a file or directory to the user of the servers.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        #[cfg(unix)]
        if let Some((user, group)) = self.user {
            std::os::unix::fs::chown(path, Some(user), Some(group))?;
        }
        let _ = path;
        Ok(())
    }
}

/// A command under way. Dropped, it is killed.
struct Tool(Child);

impl Tool {
    /// Waits for its end, and returns whether it was successful.
    async fn end(mut self) -> io::Result<bool> {
        let mut looks = interval(Duration::from_millis(5));
        loop {
            looks.tick().await;
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
        }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It has ended already, unless it was given up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a file to write at its end.
pub(crate) fn append(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true).open(path)
}

/// The last line of a log that says something.
pub(crate) fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().map(str::trim).find(|it| !it.is_empty());
    last.unwrap_or("it says nothing").to_owned()
}

/// The directories of the PATH, then those of distributions, the newest version first.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for (parent, prefix) in VERSIONS {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let version = name.strip_prefix(prefix)?.parse().ok()?;
                Some((version, entry.path().join("bin")))
            })
            .collect();
        versions.sort();
        found.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    }
    found
}

/// Returns the first directory that has all programs.
fn choose(folders: &[PathBuf]) -> Result<PathBuf, String> {
    let missing = |folder: &PathBuf| -> Vec<&str> {
        let lacks = |name: &&str| !folder.join(name).is_file();
        NEEDED.into_iter().filter(lacks).collect()
    };
    let best = folders.iter().min_by_key(|folder| missing(folder).len());
    match best.map(missing) {
        Some(missing) if missing.is_empty() => Ok(best.cloned().unwrap_or_default()),
        missing => {
            let missing = missing.unwrap_or(NEEDED.to_vec()).join(", ");
            Err(format!(
                "--cluster needs the programs of PostgreSQL {OLDEST} or newer, and finds no {missing} on the PATH or in \
                 /usr/lib/postgresql; on Debian: apt-get install postgresql"
            ))
        }
    }
}

fn check_version(told: &str) -> Result<(), String> {
    // "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)"
    let version = told.split(") ").nth(1).unwrap_or_default();
    let digits = version.find(|it: char| !it.is_ascii_digit());
    match version[..digits.unwrap_or(version.len())].parse::<u32>() {
        Ok(major) if major >= OLDEST => Ok(()),
        _ => {
            let told = told.trim();
            Err(format!(
                "--cluster needs PostgreSQL {OLDEST} or newer, and finds: {told}"
            ))
        }
    }
}

/// PostgreSQL refuses to run as root: then its own user has to run it. Returns `None` if this process is not root.
#[cfg(unix)]
fn user_of_servers(home: &Path) -> Result<Option<(u32, u32)>, String> {
    use std::os::unix::fs::MetadataExt;
    let made = std::fs::metadata(home).map_err(|error| format!("{}: {error}", home.display()))?;
    if made.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_among(&users).map(Some).ok_or_else(|| {
        "PostgreSQL refuses to run as root, and there is no user postgres; run cenote as another user".to_owned()
    })
}

#[cfg(not(unix))]
fn user_of_servers(_: &Path) -> Result<Option<(u32, u32)>, String> {
    Err("--cluster needs a Unix: it sends signals to servers".to_owned())
}

/// The ids of the user postgres in the text of `/etc/passwd`.
#[cfg(unix)]
fn user_among(users: &str) -> Option<(u32, u32)> {
    let line = users
        .lines()
        .find_map(|line| line.strip_prefix("postgres:"))?;
    let mut fields = line.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named() {
        let some = tempfile::tempdir().unwrap();
        let all = tempfile::tempdir().unwrap();
        for (at, name) in NEEDED.iter().enumerate() {
            std::fs::write(all.path().join(name), "").unwrap();
            if at < 2 {
                std::fs::write(some.path().join(name), "").unwrap();
            }
        }
        let (some, all) = (some.path().to_owned(), all.path().to_owned());
        assert_eq!(choose(&[some.clone(), all.clone()]), Ok(all));
        let said = choose(&[some]).unwrap_err();
        assert!(said.contains("no pg_basebackup, pg_rewind on"), "{said}");
        let said = choose(&[]).unwrap_err();
        assert!(said.contains("no postgres, initdb,"), "{said}");
        assert!(said.contains("apt-get install postgresql"), "{said}");
    }

    #[test]
    fn versions_that_are_too_old_are_refused() {
        assert_eq!(
            check_version("postgres (PostgreSQL) 15.14 (Debian)\n"),
            Ok(())
        );
        assert_eq!(check_version("postgres (PostgreSQL) 19devel"), Ok(()));
        let said = check_version("postgres (PostgreSQL) 12.3\n").unwrap_err();
        assert!(
            said.ends_with("finds: postgres (PostgreSQL) 12.3"),
            "{said}"
        );
        assert!(check_version("").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn the_user_of_the_servers_is_found_by_its_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(user_among(users), Some((101, 104)));
        assert_eq!(user_among("root:x:0:0:root:/root:/bin/bash"), None);
    }
}
