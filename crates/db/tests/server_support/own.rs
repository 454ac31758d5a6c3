//! A server of a test's own, to be stopped, killed and started again.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use super::{MAKE, dsn_at, free_port, unique, until, variable_of_make};

/// It ends with this, and at the latest with the command that its script runs.
pub(crate) struct OwnServer {
    name: String,
    port: u16,
    settings: Vec<String>,
    /// The port of the server that it follows.
    follows: Option<u16>,
    process: Option<Child>,
}

impl OwnServer {
    /// Starts one with these settings, each `name=value`.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let mut server = OwnServer {
            name: unique("server"),
            port: free_port(),
            settings: settings.iter().map(|it| format!("--{it}")).collect(),
            follows: None,
            process: None,
        };
        server.start_again().await;
        server
    }

    /// Starts one that follows this one.
    pub(crate) async fn start_standby(&self, settings: &[&str]) -> Self {
        let mut server = OwnServer {
            name: unique("server"),
            port: free_port(),
            settings: settings.iter().map(|it| format!("--{it}")).collect(),
            follows: Some(self.port),
            process: None,
        };
        server.start_again().await;
        server
    }

    /// After a crash, starts where it was as a copy of another one, which it follows.
    pub(crate) async fn follow(&mut self, other: &OwnServer) {
        self.name = unique("server");
        self.follows = Some(other.port);
        self.start_again().await;
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dsn(&self) -> String {
        dsn_at(self.port)
    }

    fn log(&self) -> String {
        format!("{}/{}.log", variable_of_make("_HOME"), self.name)
    }

    /// Starts it again on the same data, where it was.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::create(self.log()).unwrap();
        let mut process = Command::new(variable_of_make("_SCRIPT"))
            .arg(if self.follows.is_some() {
                "follow"
            } else {
                "own"
            })
            .args([&variable_of_make("_HOME"), &self.name])
            .arg(self.port.to_string())
            .args(self.follows.map(|port| port.to_string()))
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let log = self.log();
        until("the server starts", async || {
            let said = std::fs::read_to_string(&log).unwrap();
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {said}");
            said.contains(MAKE.is_ready) || said.contains("accept read-only connections")
        })
        .await;
        self.process = Some(process);
    }

    /// Sends a signal to its main process.
    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs");
        send(signal, &process.id().to_string());
    }

    /// It goes at once, as if the machine had lost its power.
    pub(crate) async fn crash(&mut self) {
        self.signal(MAKE.crash);
        self.wait().await;
    }

    /// It ends in order, but waits for no client.
    pub(crate) async fn stop(&mut self) {
        self.signal(MAKE.stop);
        self.wait().await;
    }

    async fn wait(&mut self) {
        let process = self.process.as_mut().expect("it runs");
        until("the server ends", async || {
            process.try_wait().unwrap().is_some()
        })
        .await;
        self.process = None;
    }
}

/// Sends a signal to a process of a server: to a backend of PostgreSQL, too.
pub(crate) fn send(signal: &str, process: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), process])
        .status();
    assert!(sent.unwrap().success());
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            send(MAKE.crash, &process.id().to_string());
            // It has nothing to write down, so it does not take long.
            let _ = process.wait();
        }
    }
}
