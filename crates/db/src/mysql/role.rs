//! What a server is: primary or standby, in sync with its cluster or not.

use std::collections::HashMap;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::connect::{ToMysql, refused};
use super::wire::Wire;
use crate::Result;
use crate::driver::{BoxFuture, HostProbe, HostRole};
use crate::hosts::search;

/// SHOW, because a node of Galera that is not synced answers it, and because no server has all of these variables.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'innodb_read_only', \
     'tx_read_only', 'transaction_read_only', 'wsrep_on', 'group_replication_single_primary_mode', 'server_uuid', \
     'hostname', 'port', 'server_id')";

const CLUSTER: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state')";

/// The state of a node of Galera that has all write sets. Others receive them, or are giving their data to a node that joins.
const SYNCED: &str = "4";

/// A server's role, and who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) role: HostRole,
    /// Identifies the server. `None` for one of several primaries, whose promotions say nothing about the others.
    pub(super) server: Option<String>,
}

/// Variables of a server, by their names in lower case.
#[derive(Default)]
struct Told(HashMap<String, String>);

impl Told {
    async fn ask(conn: &mut Conn, sql: &str) -> mysql_async::Result<Self> {
        let told: Vec<(String, Option<String>)> = conn.query(sql).await?;
        let told = told.into_iter().map(|(name, value)| {
            let value = value.unwrap_or_default();
            (name.to_ascii_lowercase(), value)
        });
        Ok(Told(told.collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name).eq_ignore_ascii_case(value)
    }

    /// Returns whether a variable has another value than off: `read_only` has more than two.
    fn is_on(&self, name: &str) -> bool {
        !matches!(self.get(name), "" | "0") && !self.is(name, "OFF")
    }
}

/// Asks the server what it is.
pub(super) async fn ask(conn: &mut Conn) -> mysql_async::Result<Described> {
    let variables = Told::ask(conn, VARIABLES).await?;
    let cluster = match variables.is_on("wsrep_on") {
        true => Some(Told::ask(conn, CLUSTER).await?),
        false => None,
    };
    Ok(describe(&variables, cluster.as_ref()))
}

fn describe(variables: &Told, cluster: Option<&Told>) -> Described {
    let is_on = |names: &[&str]| names.iter().any(|name| variables.is_on(name));
    let standby = is_on(&["read_only", "super_read_only", "innodb_read_only"]);
    let read_only = standby || is_on(&["tx_read_only", "transaction_read_only"]);
    let mut role = HostRole::new(standby, read_only);
    role.ready = cluster.is_none_or(|told| {
        told.is_on("wsrep_ready")
            && told.is("wsrep_cluster_status", "Primary")
            && told.is("wsrep_local_state", SYNCED)
    });
    let has_several_primaries =
        cluster.is_some() || variables.is("group_replication_single_primary_mode", "OFF");
    let server = match variables.get("server_uuid") {
        "" => ["hostname", "port", "server_id"]
            .map(|name| variables.get(name))
            .join(":"),
        uuid => uuid.to_owned(),
    };
    Described {
        role,
        server: (!has_several_primaries).then_some(server),
    }
}

/// A session that only asks what its server is.
pub(super) struct Probe {
    wire: Wire,
    promotions: super::connect::SharedPromotions,
}

impl Probe {
    /// Logs in to one of the servers.
    ///
    /// # Cancel safety
    ///
    /// If dropped, nothing stays open.
    pub(super) async fn open(connector: &ToMysql<'_>, server: usize) -> Result<Self> {
        let session = search::log_in_to(connector, server).await?;
        Ok(Probe {
            wire: session.wire,
            promotions: connector.promotions.clone(),
        })
    }
}

impl HostProbe for Probe {
    fn ask(&mut self) -> BoxFuture<'_, Result<HostRole>> {
        Box::pin(async move {
            let told = self.promotions.ask(&mut self.wire).await;
            told.map_err(refused)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[(&str, &str)]) -> Told {
        let pairs = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        Told(pairs.collect())
    }

    fn role(variables: &[(&str, &str)]) -> (bool, bool) {
        let role = describe(&told(variables), None).role;
        assert!(role.ready);
        (role.standby, role.read_only)
    }

    #[test]
    fn read_only_servers_are_standbys() {
        assert_eq!(role(&[]), (false, false));
        assert_eq!(role(&[("read_only", "OFF")]), (false, false));
        for value in ["ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN"] {
            assert_eq!(role(&[("read_only", value)]), (true, true), "{value}");
        }
        for name in ["super_read_only", "innodb_read_only"] {
            assert_eq!(role(&[("read_only", "OFF"), (name, "ON")]), (true, true));
        }
        for name in ["tx_read_only", "transaction_read_only"] {
            assert_eq!(role(&[("read_only", "OFF"), (name, "ON")]), (false, true));
        }
    }

    #[test]
    fn node_fits_only_while_it_is_synced() {
        let on = told(&[("wsrep_on", "ON")]);
        let is_ready = |ready: &str, status: &str, state: &str| {
            let cluster = told(&[
                ("wsrep_ready", ready),
                ("wsrep_cluster_status", status),
                ("wsrep_local_state", state),
            ]);
            let described = describe(&on, Some(&cluster));
            assert_eq!(described.server, None, "each node is a primary");
            described.role.ready
        };
        assert!(is_ready("ON", "Primary", "4"));
        assert!(!is_ready("OFF", "Primary", "4"));
        assert!(!is_ready("ON", "non-Primary", "4"));
        for state in ["0", "1", "2", "3", ""] {
            assert!(!is_ready("ON", "Primary", state), "{state}");
        }
    }

    #[test]
    fn servers_are_told_apart() {
        let server = |pairs: &[(&str, &str)]| describe(&told(pairs), None).server;
        let names = [("hostname", "db"), ("port", "3306"), ("server_id", "7")];
        assert_eq!(server(&names), Some("db:3306:7".to_owned()));
        let uuid = [("server_uuid", "u"), ("hostname", "db")];
        assert_eq!(server(&uuid), Some("u".to_owned()));
        let several = [
            ("server_uuid", "u"),
            ("group_replication_single_primary_mode", "OFF"),
        ];
        assert_eq!(server(&several), None);
    }
}
