//! Starting the command, and looking at what it leaves behind.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use cenote::Db;
use tempfile::TempDir;

/// A folder for one test. The command finds its temporary files in there, too.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A DSN for a file in it.
    pub(crate) fn dsn(&self) -> String {
        format!("sqlite:{}", self.path().join("theirs.db").display())
    }

    /// What the command has left of its own.
    pub(crate) fn left_behind(&self) -> Vec<PathBuf> {
        let entries = self.path().read_dir().unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("cenote-")
        };
        paths.filter(is_ours).collect()
    }

    /// The command with these arguments, and nothing of our own environment in it.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CENOTE_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .env_remove("DATABASE_URL")
            .env("TMPDIR", self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(self.command(args))
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(mut command: Command) -> Self {
        let output = command.output().unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It ended with this code, said nothing on standard output and one line on
    /// standard error, which is given back.
    #[track_caller]
    pub(crate) fn one_line(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("cenote: "), "{self:?}");
        self.err.trim_end()
    }
}

/// A command that is running. It is killed if a test fails meanwhile.
pub(crate) struct Running {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    seen: String,
}

impl Running {
    /// Starts it, and waits for its first line: the tables are there then.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running {
            child,
            out: Some(out),
            seen: String::new(),
        };
        running.wait_for("connection");
        running
    }

    /// Reads up to the line that has this in it.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let out = self.out.as_mut().unwrap();
        loop {
            let mut line = String::new();
            let read = out.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended before it said {text:?}: {}", self.seen);
            self.seen.push_str(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    /// Stops reading what it writes.
    pub(crate) fn stop_reading(&mut self) {
        self.out = None;
    }

    /// As Ctrl-C does.
    #[cfg(unix)]
    pub(crate) fn interrupt(&self) {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("kill");
        let status = kill.args([OsStr::new("-INT"), OsStr::new(&pid)]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        if let Some(mut out) = self.out.take() {
            out.read_to_string(&mut self.seen).unwrap();
        }
        let mut err = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut err).unwrap();
        Ended {
            code: self.child.wait().unwrap().code(),
            out: std::mem::take(&mut self.seen),
            err,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does something with a database, from this process.
pub(crate) fn with_db<T>(dsn: &str, work: impl AsyncFnOnce(Db) -> cenote::Result<T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let done = runtime.block_on(async {
        let db = Db::open(dsn).await?;
        work(db).await
    });
    done.unwrap()
}

/// Executes a statement from this process while the command works on the same rows, and returns
/// the number of rows.
#[cfg(unix)]
pub(crate) fn exec_elsewhere(dsn: &str, sql: &str) -> u64 {
    with_db(dsn, async |db| {
        loop {
            match db.exec(sql, ()).await {
                Err(error) if error.kind() == cenote::Kind::Database && error.is_retryable() => {}
                done => return Ok(done?.rows_affected),
            }
        }
    })
}
