//! The server's process, which the injector starts, kills, freezes and restarts.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{interval, timeout};

use super::dialect::Dialect;

/// How long an orderly shutdown may take.
const ENDING: Duration = Duration::from_secs(10);

/// A server of the run's own. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Server {
    command: Command,
    dialect: Dialect,
    process: Option<Child>,
}

impl Server {
    /// Starts it by a shell command that becomes the server, in the foreground.
    pub(crate) fn start(command: &str, dialect: Dialect) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Server::new(shell, dialect);
        server.restart()?;
        Ok(server)
    }

    /// A server that does not run yet, of a command that becomes the server.
    pub(crate) fn new(mut command: Command, dialect: Dialect) -> Self {
        // Ctrl-C must not reach the server: the checks need it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Server {
            command,
            dialect,
            process: None,
        }
    }

    /// Starts it again, on the same data.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.process = Some(self.command.spawn()?);
        Ok(())
    }

    /// Whether its process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Shuts it down in order, without waiting for its clients.
    pub(crate) async fn stop(&mut self) {
        let Some(main) = self.main() else { return };
        let signal = match self.dialect {
            // PostgreSQL's fast shutdown.
            Dialect::Postgres => "INT",
            _ => "TERM",
        };
        send(signal, &[main]);
        if timeout(ENDING, self.ended()).await.is_err() {
            self.crash().await;
        }
    }

    /// Kills all of its processes at once.
    pub(crate) async fn crash(&mut self) {
        send("KILL", &self.hold());
        // A killed process ends.
        let _ = timeout(ENDING, self.ended()).await;
    }

    /// Stops all of its processes; connections stay open.
    pub(crate) fn freeze(&self) {
        send("STOP", &self.hold());
    }

    /// Continues after a freeze.
    pub(crate) fn thaw(&self) {
        send("CONT", &self.all());
    }

    async fn ended(&mut self) {
        let mut looks = interval(Duration::from_millis(5));
        while self.is_running() {
            looks.tick().await;
        }
        self.process = None;
    }

    /// Stops the main process, so that it starts no other, and returns all of its processes.
    fn hold(&self) -> Vec<u32> {
        send("STOP", self.main().as_slice());
        self.all()
    }

    fn main(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The main process first, then its children, where the system lists them.
    fn all(&self) -> Vec<u32> {
        let Some(main) = self.main() else {
            return Vec::new();
        };
        let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
        let children = children.unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(main).chain(children).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let all = self.hold();
        if let Some(mut process) = self.process.take() {
            send("KILL", &all);
            // Killed: this does not take long.
            let _ = process.wait();
        }
    }
}

/// Sends a signal to those that still run.
fn send(signal: &str, processes: &[u32]) {
    if processes.is_empty() {
        return;
    }
    let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
    let kill = format!("kill -{signal} {} 2>/dev/null", processes.join(" "));
    // Every shell has a `kill` of its own.
    let _ = Command::new("sh").args(["-c", &kill]).status();
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn state(process: u32) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name
            .split_whitespace()
            .next()
            .unwrap_or("gone")
            .to_owned()
    }

    async fn until(process: u32, wanted: &[&str]) {
        let mut looks = interval(Duration::from_millis(5));
        let come = async {
            while !wanted.contains(&state(process).as_str()) {
                looks.tick().await;
            }
        };
        let come = timeout(Duration::from_secs(10), come).await;
        assert!(come.is_ok(), "{wanted:?}: it is {}", state(process));
    }

    #[tokio::test]
    async fn children_are_frozen_and_killed_with_their_server() {
        // A main process with a child, as a server has.
        let command = "sh -c 'sleep 600 & wait'";
        let mut server = Server::start(command, Dialect::Postgres).unwrap();
        let mut looks = interval(Duration::from_millis(5));
        while server.all().len() < 2 {
            assert!(server.is_running());
            looks.tick().await;
        }
        let all = server.all();
        server.freeze();
        for process in &all {
            until(*process, &["T"]).await;
        }
        server.thaw();
        for process in &all {
            until(*process, &["S", "R"]).await;
        }
        server.crash().await;
        assert!(!server.is_running());
        for process in &all {
            until(*process, &["gone", "Z"]).await;
        }
        server.restart().unwrap();
        assert!(server.is_running());
        let again = server.main().unwrap();
        drop(server);
        until(again, &["gone"]).await;
    }
}
