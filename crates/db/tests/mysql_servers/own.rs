//! A server of a test's own, to be stopped, killed and started again.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use super::{dsn_at, free_port, told, unique, until};

/// It ends with this, and at the latest with the command that `ci/mariadb.sh` runs.
pub(crate) struct OwnServer {
    name: String,
    port: u16,
    settings: Vec<String>,
    process: Option<Child>,
}

impl OwnServer {
    /// Starts one with these settings, each `name=value`.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let mut server = OwnServer {
            name: unique("server"),
            port: free_port(),
            settings: settings.iter().map(|it| format!("--{it}")).collect(),
            process: None,
        };
        server.start_again().await;
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dsn(&self) -> String {
        dsn_at(self.port)
    }

    fn log(&self) -> String {
        format!("{}/{}.log", told("CENOTE_TEST_MARIADB_HOME"), self.name)
    }

    /// Starts it again on the same data, where it was.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::create(self.log()).unwrap();
        let mut process = Command::new(told("CENOTE_TEST_MARIADB_SCRIPT"))
            .args(["own", &told("CENOTE_TEST_MARIADB_HOME"), &self.name])
            .arg(self.port.to_string())
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
            said.contains("ready for connections")
        })
        .await;
        self.process = Some(process);
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs");
        send(signal, &process.id().to_string());
    }

    /// It goes at once, as if the machine had lost its power.
    pub(crate) async fn crash(&mut self) {
        self.signal("KILL");
        self.wait().await;
    }

    /// It ends in order.
    pub(crate) async fn stop(&mut self) {
        self.signal("TERM");
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

fn send(signal: &str, process: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), process])
        .status();
    assert!(sent.unwrap().success());
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            send("KILL", &process.id().to_string());
            let _ = process.wait();
        }
    }
}
