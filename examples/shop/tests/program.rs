//! The program itself: starts, serves, and ends in order when it is asked to.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Kills the process when the test ends, also by a panic.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn server_runs_until_asked_to_end_and_then_closes_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_cenote-shop"))
        .arg(format!(
            "sqlite:{}",
            folder.path().join("shop.db").display()
        ))
        .env("SHOP_LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut program = Program(child);
    let mut said = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let listening = said.next().unwrap().unwrap();
    let address = listening.strip_prefix("listening on http://").unwrap();

    let mut socket = TcpStream::connect(address).unwrap();
    let request = "GET /products/1 HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""name":"lamp""#), "{answer}");

    let pid = program.0.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(killed.unwrap().success());
    assert_eq!(said.next().unwrap().unwrap(), "closed");
    assert!(program.0.wait().unwrap().success());
    // Closing the last connection deletes the write-ahead log.
    assert!(!folder.path().join("shop.db-wal").exists());
}

#[test]
fn help_names_the_environment_variables() {
    let help = Command::new(env!("CARGO_BIN_EXE_cenote-shop"))
        .arg("--help")
        .output()
        .unwrap();
    assert!(help.status.success());
    let said = String::from_utf8(help.stdout).unwrap();
    assert!(
        said.contains("SHOP_DSN") && said.contains("SHOP_LISTEN"),
        "{said}"
    );
}
