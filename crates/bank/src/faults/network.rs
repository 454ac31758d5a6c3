//! The network between the clients and their server: a proxy, where the DSN allows one.

use std::net::SocketAddr;
use std::path::Path;

use cenote::DbConfig;
use cenote::driver::Dsn;
use cenote_testkit::proxy::{Address, Proxy};

use super::dialect::Dialect;

/// Why there can be no proxy.
pub(crate) type WhyNot = String;

/// Starts a proxy in front of the server that a configuration names.
pub(crate) async fn start_proxy(
    config: &DbConfig,
    dsn: &Dsn,
    dialect: Dialect,
    seed: u64,
) -> Result<Proxy, WhyNot> {
    let server = server(config, dsn, dialect).await?;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let proxy = Proxy::listen(anywhere, server, seed).await;
    proxy.map_err(|error| format!("no proxy can listen: {error}"))
}

/// Changes a configuration to connect through the proxy.
pub(crate) fn reroute(config: &mut DbConfig, dsn: &Dsn, dialect: Dialect, proxy: &Proxy) {
    let Some(port) = proxy.address().port() else {
        return;
    };
    let options = &mut config.options;
    options.set("port", port.to_string());
    let by_socket = dsn
        .option("host")
        .is_none_or(|host| host.starts_with(['/', '@']));
    match dialect {
        // The host name stays: the certificate is for it.
        Dialect::Postgres if !by_socket => options.set("hostaddr", "127.0.0.1"),
        _ => options.set("host", "127.0.0.1"),
    }
}

async fn server(config: &DbConfig, dsn: &Dsn, dialect: Dialect) -> Result<Address, WhyNot> {
    let option = |name: &str| config.options.get(name).or_else(|| dsn.option(name));
    let default_port = match dialect {
        Dialect::Sqlite => return Err("there is no network to a file".to_owned()),
        Dialect::Postgres => "5432",
        Dialect::MySql => "3306",
    };
    if option("unix_socket").is_some() {
        return Err("the server is named by its unix socket; name its host and port".to_owned());
    }
    let host = option("hostaddr")
        .or_else(|| option("host"))
        .ok_or("the DSN names no host")?;
    let port = option("port").unwrap_or(default_port);
    if host.contains(',') || port.contains(',') {
        return Err("the DSN names several hosts".to_owned());
    }
    let port: u16 = port.parse().map_err(|_| "the port is no number")?;
    if host.starts_with('/') && dialect == Dialect::Postgres {
        return Ok(Address::Unix(
            Path::new(host).join(format!(".s.PGSQL.{port}")),
        ));
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| format!("{host} is not known: {error}"))?;
    let first = { found }.next();
    first
        .map(Address::Tcp)
        .ok_or_else(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(dsn: &str) -> Result<Address, WhyNot> {
        let config = DbConfig::new(dsn);
        let dsn = config.parse_dsn().unwrap();
        let dialect = Dialect::of(dsn.driver()).unwrap();
        server(&config, &dsn, dialect).await
    }

    #[tokio::test]
    async fn the_server_is_found_in_every_dsn_or_the_reason_is_given() {
        for (dsn, address) in [
            ("pgsql:host=127.0.0.1;port=7000", "127.0.0.1:7000"),
            ("postgres://app@127.0.0.1/shop", "127.0.0.1:5432"),
            ("pgsql:host=db.example;hostaddr=127.0.0.2", "127.0.0.2:5432"),
            ("pgsql:host=/run/pg;port=7000", "/run/pg/.s.PGSQL.7000"),
            ("mysql:host=127.0.0.1;dbname=shop", "127.0.0.1:3306"),
        ] {
            assert_eq!(found(dsn).await.unwrap().to_string(), address, "{dsn}");
        }
        for (dsn, why) in [
            ("pgsql:dbname=shop", "no host"),
            ("pgsql:host=a,b", "several hosts"),
            ("mysql:unix_socket=/run/my", "unix socket"),
            ("sqlite:shop.db", "no network"),
        ] {
            let said = found(dsn).await.unwrap_err();
            assert!(said.contains(why), "{dsn}: {said}");
        }
    }

    #[tokio::test]
    async fn a_rerouted_configuration_names_the_proxy() {
        let mut config = DbConfig::new("pgsql:host=/run/pg;port=7000;dbname=shop");
        let dsn = config.parse_dsn().unwrap();
        let proxy = start_proxy(&config, &dsn, Dialect::Postgres, 1).await;
        let proxy = proxy.unwrap();
        reroute(&mut config, &dsn, Dialect::Postgres, &proxy);
        let port = proxy.address().port().unwrap().to_string();
        assert_eq!(config.options.get("port"), Some(port.as_str()));
        assert_eq!(config.options.get("host"), Some("127.0.0.1"));
    }
}
