//! `--page`: the live page of a run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::process::Folder;

/// Asks with these lines of a request, and returns the answer up to its end, or up to the first event.
fn ask(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).unwrap();
        answer.push_str(&line);
        if read == 0 || line.starts_with("data: ") {
            return answer;
        }
    }
}

#[test]
fn page_is_at_a_secret_address_on_loopback() {
    let folder = Folder::new();
    let mut command = folder.command(&["run", "--page", "--seconds", "4", "--tasks", "20"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("page: http://").unwrap();
    let (host, token) = address.split_once('/').unwrap();
    assert!(host.starts_with("127.0.0.1:"), "{host}");
    assert_eq!(token.len(), 32, "{token}");

    let get = |path: &str, name: &str| {
        ask(
            host,
            &format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n"),
        )
    };
    let page = get(&format!("/{token}"), host);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("<title>Cenote</title>"), "{page}");
    let events = get(&format!("/{token}?events"), host);
    assert!(events.contains("\"diagnosis\":"), "{events}");
    for (path, name) in [
        ("/", host),
        ("/?events", host),
        ("/0123456789abcdef0123456789abcdef", host),
        // A foreign name that points to this machine.
        (&format!("/{token}"), "attacker.example"),
    ] {
        let answer = get(path, name);
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }

    let ended = child.wait_with_output().unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(ended.status.success(), "{rest}");
}
