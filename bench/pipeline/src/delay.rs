//! A delay line with threads. Tokio's timers have whole milliseconds, the threads of the system wake within 0.1 ms.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;

use crate::Outcome;

/// What the line has read, and when it arrives at the other end. Empty at the end of the stream.
type Sent = (Instant, Vec<u8>);

/// Puts a delay in front of this server, each way, until the input ends. Prints the port.
pub fn serve(server: SocketAddr, delay: Duration) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    thread::spawn(move || {
        for client in listener.incoming() {
            if let Err(error) = client
                .map_err(Into::into)
                .and_then(|client| join(client, server, delay))
            {
                eprintln!("a connection is refused: {error}");
            }
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Joins a client to the server by a line for each direction.
fn join(client: TcpStream, server: SocketAddr, delay: Duration) -> Outcome<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    line(client.try_clone()?, server.try_clone()?, delay);
    line(server, client, delay);
    Ok(())
}

/// Copies one direction. Many messages are on their way at once.
fn line(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (put, arrived) = mpsc::channel::<Sent>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            // A connection that is lost ends like one that is closed.
            let read = from.read(&mut buffer).unwrap_or(0);
            let sent = (Instant::now() + delay, buffer[..read].to_vec());
            if put.send(sent).is_err() || read == 0 {
                return;
            }
        }
    });
    thread::spawn(move || {
        // By default the system may wake a thread 50 µs later.
        let _ = prctl::set_timerslack(1);
        for (due, bytes) in arrived {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    });
}
