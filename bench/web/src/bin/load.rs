//! Starts a server, keeps it busy over a number of connections, and prints how many requests it
//! answered per second, and the CPU time of each in microseconds (if the system has /proc).
//!
//!     load NAME ROUTE CONNECTIONS SECONDS SERVER [ARGUMENT ...]
//!
//! NAME stands before the result. SERVER is a program that keeps its data in its working directory, which is a new one, and prints
//! its address on a line of its own.
//! ROUTE is `read` (a product by its number), `twenty` (twenty of them), `order` (one product) or `mixed` (of ten requests one is
//! an order). Each connection sends its next request when the last is answered. A second of warming up is not counted. One thread,
//! so that most of the machine is left to the server.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WARMING_UP: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [name, route, connections, seconds, server @ ..] = given.as_slice() else {
        return Err("usage: load NAME ROUTE CONNECTIONS SECONDS SERVER [ARGUMENT ...]".into());
    };
    let requests: Arc<[Request]> = match route.as_str() {
        "read" => [get_request("/products/2")].into(),
        "twenty" => [get_request("/twenty")].into(),
        "order" => [order_request()].into(),
        "mixed" => (0..10)
            .map(|number| match number {
                0 => order_request(),
                _ => get_request("/products/2"),
            })
            .collect(),
        other => {
            return Err(
                format!("there is no route {other:?}: read, twenty, order or mixed").into(),
            );
        }
    };
    let folder = tempfile::tempdir()?;
    let (mut server, address) = start(server, folder.path()).await?;
    let pid = server.id().ok_or("the server has ended")?;
    let answered = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for number in 0..connections.parse()? {
        let socket = TcpStream::connect(&address).await?;
        socket.set_nodelay(true)?;
        clients.spawn(keep_asking(
            socket,
            Arc::clone(&requests),
            number,
            Arc::clone(&answered),
        ));
    }
    let measured = async {
        tokio::time::sleep(WARMING_UP).await;
        let before = (
            Instant::now(),
            processor_time(pid),
            answered.load(Ordering::Relaxed),
        );
        tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
        let count = (answered.load(Ordering::Relaxed) - before.2) as f64;
        let used = processor_time(pid) - before.1;
        Result::Ok((count / before.0.elapsed().as_secs_f64(), used / count))
    };
    tokio::select! {
        measured = measured => {
            let (rate, used) = measured?;
            println!("{name}-{route} {rate:.0} {used:.1}");
        }
        // Clients never end, so one that has ended has failed.
        failed = clients.join_next() => return failed.ok_or("no connections")??,
    }
    // The server has to end before its folder is deleted.
    server.kill().await?;
    Ok(())
}

/// Returns the CPU time of this process in microseconds, user and system.
fn processor_time(pid: u32) -> f64 {
    // The kernel counts in hundredths of a second, whatever the machine.
    const MICROSECONDS: f64 = 10_000.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets, and may have spaces in it.
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields = after_name.split(' ').skip(11).take(2);
    fields
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        * MICROSECONDS
}

async fn start(server: &[String], folder: &Path) -> Result<(Child, String)> {
    let [program, arguments @ ..] = server else {
        return Err("there is no program to load".into());
    };
    // Found from here, although it runs in the folder.
    let program = std::fs::canonicalize(program)?;
    let mut server = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = server.stdout.take().ok_or("a pipe was asked for")?;
    let address = BufReader::new(said).lines().next_line().await?;
    Ok((
        server,
        address.ok_or("the server ended before it listened")?,
    ))
}

/// A request and its expected status.
struct Request {
    text: String,
    status: &'static str,
}

fn get_request(path: &str) -> Request {
    Request {
        text: format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n"),
        status: "200",
    }
}

fn order_request() -> Request {
    let body = r#"{"customer":"a diver","lines":[{"product":1,"quantity":1}]}"#;
    let length = body.len();
    let text = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    Request {
        text,
        status: "201",
    }
}

/// Sends requests in sequence. `first` differs per connection, so that they send different ones.
async fn keep_asking(
    mut socket: TcpStream,
    requests: Arc<[Request]>,
    first: usize,
    answered: Arc<AtomicU64>,
) -> Result<()> {
    // One buffer and nearly always one read, so that the load generator uses little of the machine.
    let mut buffer = [0; 4096];
    for Request { text, status } in requests.iter().cycle().skip(first % requests.len()) {
        socket.write_all(text.as_bytes()).await?;
        let mut end = 0;
        while !is_complete(&buffer[..end])? {
            match socket.read(&mut buffer[end..]).await? {
                0 => return Err("the server hung up, or its answer is too long".into()),
                read => end += read,
            }
        }
        let answer = &buffer[..end];
        if !answer.starts_with(b"HTTP/1.1 ") || !answer[9..].starts_with(status.as_bytes()) {
            let told = String::from_utf8_lossy(answer);
            return Err(format!("expected {status}, got {told:?}").into());
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Err("there are no requests to send".into())
}

/// Returns whether a response is complete. Expects a Content-Length.
fn is_complete(answer: &[u8]) -> Result<bool> {
    const LENGTH: &[u8] = b"\r\ncontent-length: ";
    let Some(head) = position(answer, b"\r\n\r\n") else {
        return Ok(false);
    };
    let Some(at) = position(&answer[..head], LENGTH) else {
        let told = String::from_utf8_lossy(answer);
        return Err(format!("an answer that does not say how long it is: {told:?}").into());
    };
    let digits = answer[at + LENGTH.len()..]
        .iter()
        .take_while(|digit| digit.is_ascii_digit());
    let length = digits.fold(0, |length, digit| 10 * length + usize::from(digit - b'0'));
    Ok(answer.len() >= head + 4 + length)
}

fn position(within: &[u8], part: &[u8]) -> Option<usize> {
    within.windows(part.len()).position(|window| window == part)
}
