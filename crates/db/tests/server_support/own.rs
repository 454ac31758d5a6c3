//! A server of a test's own, to be stopped, killed and started again.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use super::{MAKE, PATIENCE, dsn_at, free_port, unique, until, until_within, variable_of_make};

/// It ends with this, and at the latest with the command that its script runs.
pub(crate) struct OwnServer {
    name: String,
    port: u16,
    settings: Vec<String>,
    place: Place,
    process: Option<Child>,
}

/// What a node of Galera 26.4 says that gives up because one of its threads has not started yet.
const STUMBLE: &str = "Failed to set thread schedparams";

/// Whom it belongs to.
enum Place {
    Alone,
    /// It follows the server on this port.
    Behind(u16),
    /// It is a node of the cluster of those on these ports, or the first one.
    Beside(Vec<u16>),
}

impl OwnServer {
    /// Starts one with these settings, each `name=value`.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        OwnServer::start_at(Place::Alone, settings).await
    }

    /// Starts one that follows this one.
    pub(crate) async fn start_standby(&self, settings: &[&str]) -> Self {
        OwnServer::start_at(Place::Behind(self.port), settings).await
    }

    /// Starts a node of the cluster of these others, or the first one of a new cluster.
    pub(crate) async fn start_node(others: &[OwnServer]) -> Self {
        OwnServer::start_at(Place::beside(others), &[]).await
    }

    async fn start_at(place: Place, settings: &[&str]) -> Self {
        let mut server = OwnServer {
            name: unique("server"),
            port: free_port(),
            settings: settings.iter().map(|it| format!("--{it}")).collect(),
            place,
            process: None,
        };
        server.start_again().await;
        server
    }

    /// After a crash, starts where it was and joins the cluster of these others.
    pub(crate) async fn join(&mut self, others: &[OwnServer]) {
        self.place = Place::beside(others);
        self.start_again().await;
    }

    /// After a crash, starts where it was as a copy of another one, which it follows.
    pub(crate) async fn follow(&mut self, other: &OwnServer) {
        self.name = unique("server");
        self.place = Place::Behind(other.port);
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
        let mut process = self.spawn();
        let log = self.log();
        // A node gets all data from another one first.
        let limit = PATIENCE * if self.place.is_node() { 3 } else { 1 };
        until_within(limit, "the server starts", async || {
            let said = std::fs::read_to_string(&log).unwrap();
            if process.try_wait().unwrap().is_some() {
                assert!(said.contains(STUMBLE), "the server ended: {said}");
                process = self.spawn();
                return false;
            }
            said.contains(MAKE.is_ready) || said.contains("accept read-only connections")
        })
        .await;
        self.process = Some(process);
    }

    fn spawn(&self) -> Child {
        let log = File::create(self.log()).unwrap();
        Command::new(variable_of_make("_SCRIPT"))
            .arg(match self.place {
                Place::Alone => "own",
                Place::Behind(_) => "follow",
                Place::Beside(_) => "node",
            })
            .args([&variable_of_make("_HOME"), &self.name])
            .arg(self.port.to_string())
            .args(self.place.ports().iter().map(u16::to_string))
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
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

impl Place {
    fn beside(others: &[OwnServer]) -> Self {
        Place::Beside(others.iter().map(OwnServer::port).collect())
    }

    fn is_node(&self) -> bool {
        matches!(self, Place::Beside(_))
    }

    fn ports(&self) -> &[u16] {
        match self {
            Place::Alone => &[],
            Place::Behind(port) => std::slice::from_ref(port),
            Place::Beside(ports) => ports,
        }
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
