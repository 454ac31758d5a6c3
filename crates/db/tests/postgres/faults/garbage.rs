//! Bytes that no server of PostgreSQL sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::{Db, Kind};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::servers::client::{Client as DriverClient, value};
use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{assert_whole, port, refused, soon, until};

/// A server whose first connection answers its first request with these bytes, and then ends or
/// falls silent; all others lead to the real server.
async fn once(answer: Vec<u8>, then: Then) -> Scripted {
    let seen = Arc::new(AtomicUsize::new(0));
    Scripted::new(move |mut client: Client| {
        let is_first = seen.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = answer.clone();
        async move {
            if !is_first {
                return hand_on(client).await;
            }
            client.let_in().await;
            client.read_request().await;
            client.send(&answer).await;
            if then == Then::Silence {
                client.fall_silent().await;
            }
        }
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    End,
    Silence,
}

/// A call that the layer does not repeat on another connection: nobody knows what the function does.
const UNREPEATED: &str = "SELECT unknown(?::text)";

async fn hand_on(mut client: Client) {
    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port())).await {
        let _ = copy_bidirectional(&mut client.stream, &mut server).await;
    }
}

async fn handle(server: &Scripted) -> Db {
    Db::builder(&server.dsn())
        .max(2)
        .cleanup_timeout(Duration::from_millis(200))
        .open()
        .await
        .unwrap()
}

/// One column of text, then what `more` says.
fn rows(more: &[u8]) -> Vec<u8> {
    let parsed = message(b'1', &[]);
    let parameters = message(b't', &[0, 0]);
    let column = b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    let bound = message(b'2', &[]);
    [
        parsed,
        parameters,
        message(b'T', column),
        bound,
        more.to_vec(),
    ]
    .concat()
}

/// What breaks the rules, by what is wrong with it.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let ready = message(b'Z', b"I");
    let done = message(b'C', b"SELECT 1\0");
    vec![
        (
            "text of another protocol",
            b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n".to_vec(),
        ),
        ("zeros", vec![0; 64]),
        ("a length below its own", vec![b'Z', 0, 0, 0, 3, b'I']),
        (
            "a negative length",
            vec![b'D', 0xff, 0xff, 0xff, 0xff, 0, 0],
        ),
        (
            "a length beyond all bounds",
            vec![b'D', 0x7f, 0xff, 0xff, 0xff, 0, 0],
        ),
        (
            "a small message that is large",
            vec![b'Z', 0x3f, 0xff, 0xff, 0xff, b'I'],
        ),
        ("a tag that there is not", message(b'?', b"what")),
        (
            "an unknown status",
            rows(&[done.clone(), message(b'Z', b"?")].concat()),
        ),
        (
            "a status that is empty",
            rows(&[done.clone(), message(b'Z', b"")].concat()),
        ),
        (
            "a row without a description",
            [message(b'D', b"\0\x01\0\0\0\x01a"), ready.clone()].concat(),
        ),
        (
            "a row with too many values",
            rows(&message(b'D', b"\0\x02\0\0\0\x01a\0\0\0\x01b")),
        ),
        (
            "a value beyond its row",
            rows(&message(b'D', b"\0\x01\0\0\x01\0a")),
        ),
        (
            "a value of negative length",
            rows(&message(b'D', b"\0\x01\xff\xff\xff\xf0a")),
        ),
        (
            "a description that ends early",
            message(b'T', b"\0\x05a\0\0\0"),
        ),
        (
            "a count of columns that is negative",
            message(b'T', b"\xff\xff"),
        ),
        ("a login in the middle", message(b'R', &[0, 0, 0, 0])),
        ("an error that is empty", message(b'E', b"")),
        ("an error without an end", message(b'E', b"SERROR")),
    ]
}

#[tokio::test]
async fn bytes_that_break_the_protocol_cost_only_the_connection() {
    for (what, bytes) in garbage() {
        let server = once(bytes, Then::End).await;
        let db = handle(&server).await;
        let query = db.query(UNREPEATED, ("x",));
        let error = soon(what, query).await.expect_err(what);
        assert!(error.is_connection_lost(), "{what}: {error:?}");
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn they_do_so_at_once_though_the_server_stays() {
    for (what, bytes) in garbage() {
        // These may be the beginning of something: they are waited for.
        if what.starts_with("an error") || what.starts_with("text") || what.starts_with("zeros") {
            continue;
        }
        let server = once(bytes, Then::Silence).await;
        let db = handle(&server).await;
        let query = db.query(UNREPEATED, ("x",));
        let error = soon(what, query).await.expect_err(what);
        assert!(error.is_connection_lost(), "{what}: {error:?}");
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn bytes_that_break_the_rules_of_a_login_are_a_refused_connect() {
    for (what, bytes) in [
        (
            "text of another protocol",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ),
        ("nothing", Vec::new()),
        ("half a message", vec![b'R', 0, 0, 0, 8, 0]),
        (
            "a length beyond all bounds",
            vec![b'R', 0x7f, 0xff, 0xff, 0xff],
        ),
        ("a length below its own", vec![b'R', 0, 0, 0, 0]),
        (
            "a kind of login that there is not",
            message(b'R', &[0, 0, 0, 99]),
        ),
        ("a question without a kind", message(b'R', &[])),
        ("a salt that is too short", message(b'R', &[0, 0, 0, 5, 1])),
        (
            "an unknown way of SASL",
            message(b'R', b"\0\0\0\x0aGUESS\0\0"),
        ),
        (
            "a challenge out of the blue",
            message(b'R', b"\0\0\0\x0br=x,s=y,i=1"),
        ),
        ("rows before the login", message(b'D', b"\0\x01\0\0\0\x01a")),
    ] {
        let server = Scripted::new(move |mut client: Client| {
            let bytes = bytes.clone();
            async move {
                client.read_startup().await;
                client.send(&bytes).await;
            }
        })
        .await;
        let error = refused(&server.dsn()).await;
        assert_eq!(
            (error.kind(), error.sql_state()),
            (Kind::Connect, None),
            "{what}: {error}"
        );
    }
}

#[tokio::test]
async fn server_that_cannot_prove_it_knows_the_password_is_refused() {
    // A right beginning, and then a proof that is none.
    let server = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        client
            .send(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"))
            .await;
        let Some((_, first)) = client.read().await else {
            return;
        };
        let text = String::from_utf8_lossy(&first).into_owned();
        let nonce = text.split("r=").nth(1).unwrap_or_default();
        let challenge = format!("r={nonce}more,s=c2FsdA==,i=4096");
        let body = [&11_i32.to_be_bytes()[..], challenge.as_bytes()].concat();
        client.send(&message(b'R', &body)).await;
        client.read().await;
        let body = [
            &12_i32.to_be_bytes()[..],
            b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ];
        client.send(&message(b'R', &body.concat())).await;
        client.send(&message(b'R', &0_i32.to_be_bytes())).await;
        client.send(&message(b'Z', b"I")).await;
        client.fall_silent().await;
    })
    .await;
    let error = refused(&server.dsn()).await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(error.message().contains("prove"), "{error}");
}

#[tokio::test]
async fn a_protocol_that_is_younger_than_ours_is_negotiated_down() {
    let server = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        // The youngest minor version that it knows, and no option that it does not.
        client.send(&message(b'v', &[0, 0, 0, 0, 0, 0, 0, 0])).await;
        client.send(&message(b'R', &0_i32.to_be_bytes())).await;
        client.send(&message(b'Z', b"I")).await;
        while client.read_request().await.is_some() {
            client.send(&message(b'Z', b"I")).await;
        }
    })
    .await;
    let db = Db::open(&server.dsn()).await.unwrap();
    soon("it connects", db.ping()).await.unwrap();
}

/// A server that answers requests with these bytes, one after the other, and then says nothing more.
async fn answering(answers: Vec<Vec<u8>>) -> Scripted {
    Scripted::new(move |mut client: Client| {
        let answers = answers.clone();
        async move {
            client.let_in().await;
            for answer in answers {
                client.read_request().await;
                client.send(&answer).await;
            }
            client.fall_silent().await;
        }
    })
    .await
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// One row with this text, as the answer to a new statement.
fn row(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap().to_be_bytes();
    let row = [&[0, 1], &len[..], text.as_bytes()].concat();
    [message(b'D', &row), message(b'C', b"SELECT 1\0")].concat()
}

/// The server answers the batch more than once: as PostgreSQL 12 and 13 do if a COPY in a batch meets
/// the next Bind, and every server if a COPY fails before its data was read.
#[tokio::test]
async fn h0a_an_answer_out_of_step_breaks_the_connection() {
    let right = [rows(&row("own")), ready()].concat();
    for (what, bytes) in [
        ("ready at once", ready()),
        ("ready before the end", [rows(&[]), ready()].concat()),
        (
            "a second end of one command",
            rows(&[row("a"), message(b'C', b"SELECT 1\0")].concat()),
        ),
        (
            "a row behind the end",
            rows(&[row("a"), message(b'D', b"\0\x01\0\0\0\x01b")].concat()),
        ),
        ("a second Bind", rows(&message(b'2', &[]))),
        ("a row before the Bind", row("a")),
        (
            "an answer behind an error",
            [message(b'E', b"SERROR\0C22012\0Mno\0\0"), rows(&[])].concat(),
        ),
        ("data for the client", rows(&message(b'H', &[0, 0, 0]))),
        ("a question for data", rows(&message(b'G', &[0, 0, 0]))),
    ] {
        let server = answering(vec![bytes, right.clone()]).await;
        let mut client = DriverClient::open(&server.dsn()).await;
        let param = [value("x")];
        let run = client.run("SELECT $1::text", &param);
        let error = soon(what, run).await.expect_err(what);
        assert!(client.connection.is_broken(), "{what}: {error}");
    }
}

/// The call has its answer; whatever follows must not become the answer of the next.
#[tokio::test]
async fn h0a_a_message_behind_the_answer_breaks_the_connection() {
    let right = [rows(&row("own")), ready()].concat();
    for surplus in [
        ready(),
        message(b'C', b"SELECT 1\0"),
        vec![b'Z'],
        message(b'2', &[]),
        message(b'E', b"SFATAL\0C57P01\0Mbye\0\0"),
    ] {
        let server = answering(vec![[right.clone(), surplus].concat()]).await;
        let mut client = DriverClient::open(&server.dsn()).await;
        let param = [value("x")];
        let run = client.run("SELECT $1::text", &param);
        soon("the answer", run).await.unwrap();
        assert!(client.connection.is_broken());
    }
    let notice = message(b'N', b"SNOTICE\0C00000\0Mhello\0\0");
    let server = answering(vec![[right.clone(), notice].concat(), right]).await;
    let mut client = DriverClient::open(&server.dsn()).await;
    let param = [value("x")];
    let run = client.run("SELECT $1::text", &param);
    soon("the answer", run).await.unwrap();
    assert!(
        !client.connection.is_broken(),
        "a notice may come at any time"
    );
}

/// PostgreSQL 12 and 13 answer a COPY in the middle of a batch with an error, and go on to answer both
/// the Sync of the batch and one that ends the COPY. So the COPY is never sent.
#[tokio::test]
async fn h18_copy_in_a_batch_is_refused_before_it_is_sent() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = Scripted::new(move |mut client: Client| {
        let counted = Arc::clone(&counted);
        async move {
            client.let_in().await;
            while client.read_request().await.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
                let bound = [
                    message(b'1', &[]),
                    message(b't', &[0, 0]),
                    message(b'n', &[]),
                ];
                client.send(&bound.concat()).await;
                client.send(&message(b'2', &[])).await;
                client.send(&message(b'G', &[0, 0, 0])).await;
                let unexpected =
                    b"SERROR\0C08P01\0Munexpected message type 0x42 during COPY from stdin\0\0";
                client.send(&message(b'E', unexpected)).await;
                client.send(&ready()).await;
            }
        }
    })
    .await;
    let db = Db::builder(&server.dsn()).max(1).open().await.unwrap();
    let copied = db.exec_many("COPY t FROM STDIN", [(), ()]);
    let error = soon("a batch", copied).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // A statement that is not seen to be one: its connection is gone at once.
    let hidden = db.exec_many("COPIES t", [(), ()]);
    let error = soon("a batch", hidden).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    until("the connection is gone", async || db.status().total == 0).await;
}
