//! DSNs that are URLs, or file names with a query.
//!
//! `//user:password@host:port,host/dbname?key=value&…`, with every part percent-encoded. As in libpq, an option of the query
//! takes precedence over the same part of the URL.
//!
//! A password that is not encoded can hide in any part: `//me:12/34@host` parses as the host `me` with port 12. So an `@`
//! after the host is an error, and no error quotes the text.

use std::net::Ipv6Addr;

use super::{Parts, is_option_name, redact, texts};
use crate::config::secret::{Credentials, Secret};

/// Parses `//…` for a database on a server.
pub(super) fn parse_server(address: &str) -> Result<Parts, String> {
    let (before, query) = split_query(address);
    let (authority, path) = match before.split_once('/') {
        Some((authority, path)) => (authority, Some(path)),
        None => (before, None),
    };
    if address[authority.len()..].contains('@') {
        return Err("there is an @ after the host; in a name or a password \
                    write %40 for an @, %2F for a / and %3F for a ?"
            .to_owned());
    }
    let (userinfo, hosts) = match authority.rsplit_once('@') {
        Some((userinfo, hosts)) => (Some(userinfo), hosts),
        None => (None, authority),
    };

    let mut parts = Parts::default();
    let shown_query = read_query(query, |name, value| parts.keep(name, value))?;
    let mut address_options = decode_hosts(hosts)?;
    if let Some(database) = path.filter(|path| !path.is_empty()) {
        address_options.push(("dbname", decode(database, "the database name")?));
    }
    address_options.retain(|(name, _)| super::find(&parts.options, name).is_none());
    let named = address_options
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    parts.options.splice(..0, named);

    let mut shown = "//".to_owned();
    if let Some(userinfo) = userinfo {
        let (credentials, shown_userinfo) = decode_userinfo(userinfo)?;
        parts.credentials = parts.credentials.or(credentials);
        shown.push_str(&shown_userinfo);
    }
    shown.push_str(hosts);
    if let Some(path) = path {
        shown.push('/');
        shown.push_str(path);
    }
    shown.push_str(&shown_query);
    parts.shown = shown;
    Ok(parts)
}

/// Parses `//…` for a database in a file: it contains no server.
pub(super) fn parse_file(address: &str) -> Result<Parts, String> {
    let before_at = address.rsplit_once('@').map(|(before, _)| before);
    if before_at.is_some_and(|before| before.contains(':') && !before.starts_with('/')) {
        return Err("it is a file, with no user and no password; in its name \
                    write %3A for a : and %40 for an @"
            .to_owned());
    }
    let (path, query) = split_query(address);
    with_file_query(decode(path, "the path")?, format!("//{path}"), query)
}

/// Parses a file name, which is not percent-encoded.
pub(super) fn parse_path(rest: &str) -> Result<Parts, String> {
    let (path, query) = split_query(rest);
    if rest.starts_with("file:") {
        // SQLite's own URI, which SQLite parses by its own rules.
        let shown_query = query.map(hide_secrets).unwrap_or_default();
        return Ok(Parts {
            path: Some(Secret::from(rest)),
            shown: format!("{path}{shown_query}"),
            ..Parts::default()
        });
    }
    with_file_query(Secret::from(path), path.to_owned(), query)
}

fn with_file_query(path: Secret, shown: String, query: Option<&str>) -> Result<Parts, String> {
    let mut parts = Parts {
        path: Some(path),
        shown,
        ..Parts::default()
    };
    let shown_query = read_query(query, |name, value| parts.keep_option(name, value))
        .map_err(|wrong| format!("{wrong} (in the name of a file, write %3F for a ?, after //)"))?;
    parts.shown.push_str(&shown_query);
    Ok(parts)
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    match text.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (text, None),
    }
}

/// Parses `key=value&…`. Returns its displayed form, with the `?`.
fn read_query(
    query: Option<&str>,
    mut keep: impl FnMut(String, Secret) -> Result<(), String>,
) -> Result<String, String> {
    let mut shown = String::new();
    let pairs = query.unwrap_or_default().split('&');
    for (n, pair) in pairs.enumerate().filter(|(_, pair)| !pair.is_empty()) {
        let pair = read_pair(pair, n + 1)?;
        shown.push(if shown.is_empty() { '?' } else { '&' });
        shown.push_str(&pair.shown);
        keep(pair.name, pair.value)?;
    }
    Ok(shown)
}

/// Returns the displayed form of a query that SQLite parses, with the `?`.
fn hide_secrets(query: &str) -> String {
    let shown = query.split('&').map(|pair| match read_pair(pair, 1) {
        Ok(pair) => pair.shown,
        Err(_) => redact::HIDDEN.to_owned(),
    });
    format!("?{}", shown.collect::<Vec<_>>().join("&"))
}

struct Pair {
    name: String,
    value: Secret,
    /// The text with secrets hidden.
    shown: String,
}

fn read_pair(pair: &str, nth: usize) -> Result<Pair, String> {
    let (written_name, written_value) = pair
        .split_once('=')
        .ok_or_else(|| format!("option {nth} after the ? has no = in it"))?;
    let whose = format!("the name of option {nth} after the ?");
    let name = decode(written_name, &whose)?.expose().to_owned();
    if !is_option_name(&name) {
        return Err(format!("{whose} is not one that an option can have"));
    }
    let value = decode(written_value, &format!("the value of the option {name}"))?;
    let hidden = redact::shown(&name, value.expose()) != value.expose();
    let shown_value = if hidden {
        redact::HIDDEN
    } else {
        written_value
    };
    let shown = format!("{written_name}={shown_value}");
    Ok(Pair { name, value, shown })
}

/// Returns user and password, and their displayed form.
fn decode_userinfo(userinfo: &str) -> Result<(Credentials, String), String> {
    let (user, password) = match userinfo.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (userinfo, None),
    };
    let mut credentials = Credentials::default();
    if !user.is_empty() {
        credentials.user = Some(decode(user, "the user")?.expose().to_owned());
    }
    let mut shown = format!("{user}@");
    if let Some(password) = password {
        credentials.password = Some(decode(password, "the password")?);
        shown = format!("{user}:{}@", redact::HIDDEN);
    }
    Ok((credentials, shown))
}

/// Returns hosts and ports as lists with commas, as libpq has them.
fn decode_hosts(hosts: &str) -> Result<Vec<(&'static str, Secret)>, String> {
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for host in hosts.split(',') {
        let (name, port) = split_host(host)?;
        names.push(name);
        ports.push(port);
    }
    if names.len() > 1 && names.iter().any(String::is_empty) {
        return Err("there is an empty host between the commas".to_owned());
    }
    let lists = [("host", names), ("port", ports)].into_iter();
    let given = lists.filter(|(_, list)| list.iter().any(|text| !text.is_empty()));
    Ok(given
        .map(|(name, list)| (name, Secret::from(list.join(","))))
        .collect())
}

fn split_host(host: &str) -> Result<(String, String), String> {
    let (name, port) = if let Some(bracketed) = host.strip_prefix('[') {
        let (address, after) = bracketed
            .split_once(']')
            .ok_or("an IPv6 address has no closing bracket")?;
        let address = decode(address, "an IPv6 address")?.expose().to_owned();
        let number = address.split('%').next().unwrap_or_default();
        if number.parse::<Ipv6Addr>().is_err() {
            return Err("the text in brackets is no IPv6 address".to_owned());
        }
        let port = match after.strip_prefix(':') {
            Some(port) => port,
            None if after.is_empty() => "",
            None => return Err("after an IPv6 address comes :port or nothing".to_owned()),
        };
        (address, port)
    } else {
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        if port.contains(':') {
            return Err("put an IPv6 address in brackets, such as [::1]:5432".to_owned());
        }
        (decode(name, "a host")?.expose().to_owned(), port)
    };
    texts::parse_port(port).map_err(|wrong| format!("a port {wrong}"))?;
    if name.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control()) {
        return Err("there is a blank or a comma in the name of a host".to_owned());
    }
    Ok((name, port.to_owned()))
}

/// Undoes percent-encoding. The result may be a secret, so it is one.
fn decode(text: &str, what: &str) -> Result<Secret, String> {
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => match (rest.next().and_then(hex), rest.next().and_then(hex)) {
                (Some(high), Some(low)) => high * 16 + low,
                _ => {
                    return Err(format!(
                        "a % in {what} is not followed by two hexadecimal digits (write %25 for a %)"
                    ));
                }
            },
            byte => byte,
        };
        if decoded == 0 {
            return Err(format!("there is a NUL in {what}"));
        }
        bytes.push(decoded);
    }
    match std::str::from_utf8(&bytes) {
        Ok(decoded) => Ok(Secret::from(decoded)),
        Err(_) => Err(format!("{what}, decoded, is no UTF-8")),
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
