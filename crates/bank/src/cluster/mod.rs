//! A throw-away PostgreSQL cluster: a primary and two streaming standbys on loopback, with what an operator does to it.
//!
//! A commit is acknowledged when one standby has it on disk (`ANY 1`). So before a promotion both standbys are cut off from the old
//! primary, and the one with more of its log is promoted: it has every acknowledged commit, and no later one can be acknowledged
//! by a former primary that wakes up.

mod programs;

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use cenote::{Builder, Db, DbConfig, Secret};
use tempfile::TempDir;
use tokio::time::{Instant, interval};

use self::programs::{Programs, append, last_line};
use crate::faults::{Dialect, SESSIONS, Server};
use crate::run::Error;

const HOSTS: usize = 3;

/// How long a server may take to start, to follow, or to be promoted.
const PATIENCE: Duration = Duration::from_secs(30);

const USER: &str = "cenote";

/// Ports below those of outgoing connections.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// What the hosts share. No machine loses its power here, so nothing waits for a disk. Deadlocks of clients are found early,
/// so that they do not count as the time that a failover takes.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
synchronous_standby_names = 'ANY 1 (host1, host2, host3)'
synchronous_commit = on
fsync = off
wal_log_hints = on
wal_keep_size = 64MB
max_wal_size = 128MB
wal_retrieve_retry_interval = 100ms
wal_receiver_status_interval = 1s
deadlock_timeout = 100ms
shared_buffers = 16MB
jit = off
";

/// The cluster. Dropped, its servers are killed, and its directory is removed.
#[derive(Debug)]
pub struct Cluster {
    hosts: Vec<Host>,
    /// The index of the primary.
    primary: usize,
    programs: Programs,
    password: Secret,
    home: TempDir,
    /// Nothing was broken since it was healed.
    is_whole: bool,
    /// The directory stays.
    is_kept: bool,
}

/// One of its hosts.
#[derive(Debug)]
struct Host {
    name: String,
    port: u16,
    data: PathBuf,
    log: PathBuf,
    server: Server,
    /// It was the primary, and another one was promoted since: it has to rejoin.
    is_former: bool,
}

/// What went wrong with the cluster itself.
pub type Trouble = String;

impl Cluster {
    /// Starts a primary and two standbys, each for so many connections of clients.
    ///
    /// # Errors
    ///
    /// Says what is missing, or which program failed.
    ///
    /// # Cancel safety
    ///
    /// Dropped, everything ends.
    pub async fn start(connections: usize) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("cenote-cluster-").tempdir();
        let home = folder
            .map_err(|error| Error::Other(format!("there is no room for a cluster: {error}")))?;
        let programs = Programs::find(home.path()).await.map_err(Error::Other)?;
        let mut cluster = Cluster {
            hosts: Vec::new(),
            primary: 0,
            programs,
            password: password().map_err(|error| Error::Other(error.to_string()))?,
            home,
            is_whole: false,
            is_kept: false,
        };
        match cluster.set_up(connections).await {
            Ok(()) => Ok(cluster),
            Err(why) => Err(Error::Other(format!("the cluster does not start: {why}"))),
        }
    }

    async fn set_up(&mut self, connections: usize) -> Result<(), Trouble> {
        self.write_password().map_err(because)?;
        for at in 0..HOSTS {
            let host = self.host(at).map_err(because)?;
            self.hosts.push(host);
        }
        let first = &self.hosts[0];
        let mut initdb = self.programs.command("initdb");
        initdb
            .arg("--pgdata")
            .arg(&first.data)
            .arg("--pwfile")
            .arg(self.home.path().join("password"))
            .args([
                "--username",
                USER,
                "--auth-host=scram-sha-256",
                "--auth-local=reject",
            ])
            .args([
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ]);
        self.programs.run(initdb, &self.tools_log()).await?;
        let sessions = format!("max_connections = {connections}\n");
        append(&first.data.join("postgresql.conf"))
            .and_then(|mut file| file.write_all(format!("{SETTINGS}{sessions}").as_bytes()))
            .map_err(because)?;
        self.start_host(0).await?;
        for standby in 1..HOSTS {
            self.copy(standby).await?;
            self.start_host(standby).await?;
        }
        self.wait_until_whole().await
    }

    fn host(&self, at: usize) -> io::Result<Host> {
        let name = format!("host{}", at + 1);
        let (data, log) = (self.home.path().join(&name), self.log_of(&name));
        let port = free_port(&self.hosts)?;
        let file = append(&log)?;
        let mut command = self.programs.command("postgres");
        command
            .arg("-D")
            .arg(&data)
            .args([
                "-p",
                &port.to_string(),
                "-c",
                &format!("cluster_name={name}"),
            ])
            .env("PGPASSFILE", self.home.path().join("pgpass"))
            .stdout(file.try_clone()?)
            .stderr(file);
        Ok(Host {
            name,
            port,
            data,
            log,
            server: Server::new(command, Dialect::Postgres),
            is_former: false,
        })
    }

    /// Writes the password where `initdb` and the standbys read it.
    fn write_password(&self) -> io::Result<()> {
        let password = self.password.expose();
        let home = self.home.path();
        self.programs.give(home)?;
        for (name, text) in [
            ("password", password.to_owned()),
            ("pgpass", format!("127.0.0.1:*:*:{USER}:{password}\n")),
        ] {
            let path = home.join(name);
            let mut options = std::fs::OpenOptions::new();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.write(true).create_new(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            self.programs.give(&path)?;
        }
        Ok(())
    }

    /// Keeps the directory, with the data and the logs of all hosts, and returns it.
    pub(crate) fn keep(&mut self) -> String {
        self.is_kept = true;
        self.home.disable_cleanup(true);
        self.home.path().display().to_string()
    }

    /// The port of each host on 127.0.0.1.
    pub fn ports(&self) -> Vec<u16> {
        self.hosts.iter().map(|host| host.port).collect()
    }

    /// The port of the primary.
    pub fn primary_port(&self) -> u16 {
        self.hosts[self.primary].port
    }

    /// The password of the user `cenote`, whose database is `postgres`.
    pub fn password(&self) -> &Secret {
        &self.password
    }

    /// The configuration that names all hosts and wants the primary.
    pub(crate) fn config(&self) -> DbConfig {
        self.config_of(&self.hosts, "target_session_attrs=read-write")
    }

    fn config_of(&self, hosts: &[Host], options: &str) -> DbConfig {
        let names = vec!["127.0.0.1"; hosts.len()].join(",");
        let ports: Vec<String> = hosts.iter().map(|host| host.port.to_string()).collect();
        let ports = ports.join(",");
        let mut config = DbConfig::new(format!(
            "pgsql:host={names};port={ports};dbname=postgres;sslmode=disable;{options}"
        ));
        config.user = Some(USER.to_owned());
        config.password = Some(self.password.clone());
        config
    }

    /// A connection of the operator's to one host.
    async fn admin(&self, host: usize) -> Result<Db, Trouble> {
        let mut config = self.config_of(
            std::slice::from_ref(&self.hosts[host]),
            "application_name=cenote-operator",
        );
        config.max = 1;
        config.connect_timeout = Duration::from_secs(5);
        config.statement_timeout = Some(PATIENCE);
        let admin = Builder::from_config(config).open().await;
        let admin = admin.map_err(because)?;
        admin.ping().await.map_err(because)?;
        Ok(admin)
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.home.path().join(format!("{name}.log"))
    }

    fn tools_log(&self) -> PathBuf {
        self.log_of("tools")
    }

    /// Kills all processes of the primary.
    ///
    /// # Cancel safety
    ///
    /// Dropped, they are killed all the same.
    pub async fn kill_primary(&mut self) {
        self.server(self.primary).crash().await;
    }

    /// Shuts the primary down in order, without waiting for its clients.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may still shut down.
    pub async fn stop_primary(&mut self) {
        self.server(self.primary).stop().await;
    }

    /// Stops all processes of the primary; its connections stay open.
    pub fn freeze_primary(&mut self) {
        self.server(self.primary).freeze();
    }

    /// The indexes of the standbys.
    pub(crate) fn standbys(&self) -> Vec<usize> {
        (0..HOSTS).filter(|at| *at != self.primary).collect()
    }

    /// The server of a host, to break it.
    pub(crate) fn server(&mut self, host: usize) -> &mut Server {
        self.is_whole = false;
        &mut self.hosts[host].server
    }

    /// Promotes the standby that has every acknowledged commit; the other one follows it. The primary must be dead or frozen.
    /// Returns when the new one accepts writes.
    ///
    /// # Errors
    ///
    /// A standby does not do as it is told.
    ///
    /// # Cancel safety
    ///
    /// Dropped, standbys may follow nobody; [`heal`](Cluster::heal) has them follow the primary.
    pub async fn promote(&mut self) -> Result<Instant, Trouble> {
        self.is_whole = false;
        let mut reached = Vec::new();
        for standby in self.standbys() {
            let admin = self.admin(standby).await?;
            follow(&admin, "").await?;
            until("a standby leaves the former primary", async || {
                let sql = "SELECT count(*) FROM pg_stat_wal_receiver";
                Ok(admin.query_as_one::<i64>(sql, ()).await.map_err(because)? == 0)
            })
            .await?;
            let sql = "SELECT pg_wal_lsn_diff(GREATEST(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), \
                       '0/0')::int8";
            let position: i64 = admin.query_as_one(sql, ()).await.map_err(because)?;
            reached.push((position, standby, admin));
        }
        reached.sort_by_key(|(position, ..)| *position);
        let (_, next, next_admin) = reached.pop().expect("there are two standbys");
        for (_, _, other_admin) in &reached {
            follow(other_admin, &self.conninfo(next)).await?;
        }
        let sql = "SELECT pg_promote(true, 30)";
        let promoted: bool = next_admin.query_as_one(sql, ()).await.map_err(because)?;
        let now = Instant::now();
        if !promoted {
            return Err(format!(
                "{} was not promoted in time",
                self.hosts[next].name
            ));
        }
        self.hosts[self.primary].is_former = true;
        self.primary = next;
        Ok(now)
    }

    /// Counts the sessions that clients have opened on former primaries of late, without those that only ask for the role.
    /// Such a host must be awake.
    pub(crate) async fn sessions_on_former(&self, of_late: Duration) -> Result<i64, Trouble> {
        let mut count = 0;
        for at in (0..HOSTS).filter(|at| self.hosts[*at].is_former) {
            let admin = self.admin(at).await?;
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? \
                       AND backend_start > now() - ?::float8 * interval '1 second' \
                       AND query NOT LIKE '%pg_control_system%' AND query NOT LIKE '%pg_is_in_recovery%'";
            let of_it: i64 = admin
                .query_as_one(sql, (SESSIONS, of_late.as_secs_f64()))
                .await
                .map_err(because)?;
            count += of_it;
        }
        Ok(count)
    }

    /// Whether nothing was broken since it was healed.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Continues hosts that are frozen.
    pub(crate) fn thaw(&self) {
        self.hosts.iter().for_each(|host| host.server.thaw());
    }

    /// Brings every host back: former primaries are shut down and follow the new one, dead standbys start again. Returns when
    /// both standbys have all that was written up to then.
    ///
    /// # Errors
    ///
    /// A program failed, or a host does not come back in time.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    pub async fn heal(&mut self) -> Result<(), Trouble> {
        self.thaw();
        if !self.hosts[self.primary].server.is_running() {
            self.start_host(self.primary).await?;
        }
        for standby in self.standbys() {
            if self.hosts[standby].is_former {
                self.rejoin(standby).await?;
                continue;
            }
            if !self.hosts[standby].server.is_running() {
                self.start_host(standby).await?;
            }
            // A promotion that failed has left it without a server to follow.
            follow(&self.admin(standby).await?, &self.conninfo(self.primary)).await?;
        }
        self.wait_until_whole().await
    }

    /// Stops a host in order and starts it again.
    pub(crate) async fn restart(&mut self, host: usize) -> Result<(), Trouble> {
        self.server(host).stop().await;
        self.start_host(host).await?;
        self.wait_until_whole().await
    }

    /// Makes a standby of a former primary: what it has beyond the new timeline goes.
    async fn rejoin(&mut self, at: usize) -> Result<(), Trouble> {
        self.hosts[at].server.stop().await;
        // Until the first checkpoint of its timeline, the control file of the new primary has the old one.
        let admin = self.admin(self.primary).await?;
        admin.query("CHECKPOINT", ()).await.map_err(because)?;
        let (former, primary) = (&self.hosts[at], &self.hosts[self.primary]);
        let mut rewind = self.programs.command("pg_rewind");
        rewind
            .arg("--target-pgdata")
            .arg(&former.data)
            .arg(format!(
                "--source-server=host=127.0.0.1 port={} user={USER} dbname=postgres",
                primary.port
            ))
            .arg("--no-sync")
            .env("PGPASSFILE", self.home.path().join("pgpass"));
        match self.programs.run(rewind, &self.tools_log()).await {
            Ok(()) => self.write_standby(at).map_err(because)?,
            // The log that it needs is gone, for example.
            Err(_) => self.copy(at).await?,
        }
        self.hosts[at].is_former = false;
        self.start_host(at).await
    }

    /// Makes a standby by copying the primary.
    async fn copy(&self, at: usize) -> Result<(), Trouble> {
        let data = &self.hosts[at].data;
        if data.exists() {
            std::fs::remove_dir_all(data).map_err(because)?;
        }
        let mut backup = self.programs.command("pg_basebackup");
        backup
            .arg("--pgdata")
            .arg(data)
            .args(["--host=127.0.0.1", "--username", USER])
            .args(["--port", &self.hosts[self.primary].port.to_string()])
            .args(["--checkpoint=fast", "--wal-method=stream", "--no-sync"])
            .env("PGPASSFILE", self.home.path().join("pgpass"));
        self.programs.run(backup, &self.tools_log()).await?;
        self.write_standby(at).map_err(because)
    }

    /// Has a host that does not run follow the primary when it starts.
    fn write_standby(&self, at: usize) -> io::Result<()> {
        let data = &self.hosts[at].data;
        let signal = data.join("standby.signal");
        std::fs::write(&signal, "")?;
        self.programs.give(&signal)?;
        let settings = data.join("postgresql.auto.conf");
        let line = format!("primary_conninfo = '{}'\n", self.conninfo(self.primary));
        append(&settings)?.write_all(line.as_bytes())
    }

    fn conninfo(&self, followed: usize) -> String {
        let port = self.hosts[followed].port;
        format!("host=127.0.0.1 port={port} user={USER}")
    }

    /// Starts a host and waits until it answers.
    async fn start_host(&mut self, at: usize) -> Result<(), Trouble> {
        let host = &mut self.hosts[at];
        let (name, log) = (host.name.clone(), host.log.clone());
        let started = host.server.restart();
        started.map_err(|error| format!("{name}: {error}"))?;
        let begun = Instant::now();
        let mut looks = interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            let Err(error) = self.admin(at).await else {
                return Ok(());
            };
            if !self.hosts[at].server.is_running() {
                return Err(format!("{name} has ended: {}", last_line(&log)));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{name} does not answer: {error}"));
            }
        }
    }

    /// Waits until both standbys follow the primary and have all that it has written.
    async fn wait_until_whole(&mut self) -> Result<(), Trouble> {
        let admin = self.admin(self.primary).await?;
        let written: String = admin
            .query_as_one("SELECT pg_current_wal_flush_lsn()::text", ())
            .await
            .map_err(because)?;
        until("both standbys follow", async || {
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' \
                       AND application_name LIKE 'host%' AND replay_lsn >= ?::text::pg_lsn";
            let following: i64 = admin
                .query_as_one(sql, (written.as_str(),))
                .await
                .map_err(because)?;
            Ok(following == 2)
        })
        .await?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Cluster {
    #[allow(clippy::disallowed_methods, reason = "a drop cannot await")]
    fn drop(&mut self) {
        self.hosts.clear();
        // A killed process may be about to create a file still.
        for _ in 0..100 {
            if self.is_kept || std::fs::remove_dir_all(self.home.path()).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Has a standby follow another server, or none.
async fn follow(standby: &Db, conninfo: &str) -> Result<(), Trouble> {
    let set = format!("ALTER SYSTEM SET primary_conninfo = '{conninfo}'");
    standby.exec(&set, ()).await.map_err(because)?;
    let reload = "SELECT pg_reload_conf()";
    standby.query(reload, ()).await.map(drop).map_err(because)
}

/// Waits for a condition of the cluster.
async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool, Trouble>) -> Result<(), Trouble> {
    let begun = Instant::now();
    let mut looks = interval(Duration::from_millis(10));
    loop {
        looks.tick().await;
        if is_so().await? {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("not within {PATIENCE:?}: {what}"));
        }
    }
}

fn because(error: impl std::fmt::Display) -> Trouble {
    error.to_string()
}

/// A port that is free now, and that no other host has.
fn free_port(hosts: &[Host]) -> io::Result<u16> {
    let mut failed = None;
    for _ in 0..100 {
        let port = fastrand::u16(PORTS);
        if hosts.iter().any(|host| host.port == port) {
            continue;
        }
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("no port is free")))
}

/// A password that nobody can guess: a user of the machine who logs in would be the servers' superuser.
fn password() -> io::Result<Secret> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret::from(text))
}
