//! The server's process: started by the actor, so that it can be ended, frozen and started again.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{interval, timeout};

use super::dialect::Dialect;

/// How long a server may take to end in order.
const ENDING: Duration = Duration::from_secs(10);

/// A server of the run's own. It ends with this.
#[derive(Debug)]
pub(crate) struct Server {
    command: String,
    dialect: Dialect,
    process: Option<Child>,
}

impl Server {
    /// Starts it: a command for the shell that runs in the foreground as long as the server
    /// does, and becomes the server by `exec`.
    pub(crate) fn start(command: &str, dialect: Dialect) -> io::Result<Self> {
        let mut server = Server {
            command: command.to_owned(),
            dialect,
            process: None,
        };
        server.start_again()?;
        Ok(server)
    }

    /// Starts it where it was, on the same data.
    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec {}", self.command)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C is for us alone: the books are read after it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.process = Some(command.spawn()?);
        Ok(())
    }

    /// Whether its process is there.
    pub(crate) fn is_running(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// It ends in order, but waits for no client.
    pub(crate) async fn stop(&mut self) {
        let Some(main) = self.main() else { return };
        let politely = match self.dialect {
            // Its "fast" shutdown.
            Dialect::Postgres => "INT",
            _ => "TERM",
        };
        send(politely, &[main]);
        if timeout(ENDING, self.ended()).await.is_err() {
            self.crash().await;
        }
    }

    /// All of its processes are killed at once.
    pub(crate) async fn crash(&mut self) {
        send("KILL", &self.all());
        // What is killed ends.
        let _ = timeout(ENDING, self.ended()).await;
    }

    /// Nothing of it runs any more, though all stays connected.
    pub(crate) fn freeze(&self) {
        send("STOP", &self.all());
    }

    /// It goes on as if nothing had been.
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

    fn main(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The main process first, then its children, where the system tells of them.
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
        let all = self.all();
        if let Some(mut process) = self.process.take() {
            send("KILL", &all);
            // It has been killed: this does not take long.
            let _ = process.wait();
        }
    }
}

/// One that is gone already gets no signal, and needs none.
fn send(signal: &str, processes: &[u32]) {
    if processes.is_empty() {
        return;
    }
    let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
    let kill = format!("kill -{signal} {} 2>/dev/null", processes.join(" "));
    // The shell has a `kill` of its own, wherever there is a shell.
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
    async fn a_server_is_frozen_with_its_children_and_killed_with_them() {
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
        server.start_again().unwrap();
        assert!(server.is_running());
        let again = server.main().unwrap();
        drop(server);
        until(again, &["gone"]).await;
    }
}
