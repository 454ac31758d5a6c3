//! A server that is asked to end: it answers what it has begun, and closes the database.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::routing::post;
use cenote::{Db, Kind};
use http_body_util::BodyExt;
use support::{AGES, Client};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A server that can be asked to end.
struct Server {
    db: Db,
    address: SocketAddr,
    end: Arc<Notify>,
    serving: JoinSet<Served>,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start(routes: Router<Db>, grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dsn = format!("sqlite:{}", folder.path().join("shop.db").display());
        let db = Db::open(&dsn).await.unwrap();
        cenote_shop::set_up(&db).await.unwrap();
        let routes = cenote_shop::routes(&db).merge(routes);
        let app = cenote_shop::with_layers(routes, AGES).with_state(db.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let end = Arc::new(Notify::new());
        let asked = Arc::clone(&end);
        let asked = async move { asked.notified().await };
        let mut serving = JoinSet::new();
        serving.spawn(cenote_shop::serve(listener, app, db.clone(), asked, grace));
        Server {
            db,
            address,
            end,
            serving,
            _folder: folder,
        }
    }

    async fn ended(&mut self) -> Served {
        self.serving.join_next().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn request_under_way_is_answered_and_committed_before_shutdown() {
    let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (reached, go_on) = (Arc::clone(&reached), Arc::clone(&go_on));
        async move |State(db): State<Db>| {
            let writing = db.transaction(async || {
                db.exec("UPDATE product SET stock = 7 WHERE id = 1", ())
                    .await?;
                reached.notify_one();
                go_on.notified().await;
                Ok(())
            });
            writing.await.unwrap();
        }
    };
    let mut server = Server::start(Router::new().route("/slow", post(slow)), AGES).await;
    let mut client = Client::connect(server.address).await;
    let request = client.json(Method::POST, "/slow", None);
    let end = async {
        reached.notified().await;
        server.end.notify_one();
        // New connections are refused.
        while tokio::net::TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go_on.notify_one();
    };
    let ((status, _), ()) = tokio::join!(request, end);
    assert_eq!(status, 200);
    server.ended().await.unwrap();
    let error = server.db.ping().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
}

#[tokio::test]
async fn client_that_never_reads_does_not_keep_the_server_running() {
    let mut server = Server::start(Router::new(), Duration::from_millis(100)).await;
    // More than fits into the buffers of a socket.
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)
               INSERT INTO purchase SELECT i, hex(zeroblob(500)), i FROM n";
    server.db.exec(sql, ()).await.unwrap();
    let mut client = Client::connect(server.address).await;
    let response = client.send(Method::GET, "/orders.ndjson", None).await;
    let mut body = response.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    server.end.notify_one();
    let error = server.ended().await.unwrap_err();
    assert!(error.to_string().contains("export.rs"), "{error}");
}
