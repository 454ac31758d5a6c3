//! A shop that listens on loopback, and clients that speak HTTP to it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "every test file uses another part of it")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use cenote::{Builder, Db};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Far more than any test needs.
pub(crate) const AGES: Duration = Duration::from_secs(60);

/// A database of one test.
pub(crate) struct Place {
    pub(crate) dsn: String,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    /// A file.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Place {
            dsn: format!("sqlite:{}", folder.path().join("shop.db").display()),
            _folder: Some(folder),
        }
    }

    /// A schema on the server of `ci/postgres.sh`.
    pub(crate) async fn postgres() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let server = std::env::var("CENOTE_TEST_POSTGRES").expect(
            "CENOTE_TEST_POSTGRES is not set: run ci/test.sh, or ci/postgres.sh run -- cargo test …",
        );
        // Relaxed: the number only has to be unique.
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("shop_{}_{n}", std::process::id());
        let maker = Db::open(&server).await.unwrap();
        let create = format!("CREATE SCHEMA {schema}");
        maker.exec(&create, ()).await.unwrap();
        maker.close().await.unwrap();
        Place {
            dsn: format!("{server};search_path={schema}"),
            _folder: None,
        }
    }
}

/// A shop on a database of its own. The server ends with it.
pub(crate) struct Shop {
    pub(crate) db: Db,
    address: SocketAddr,
    _server: JoinSet<()>,
    _place: Place,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Shop::at(Place::sqlite()).await
    }

    pub(crate) async fn at(place: Place) -> Self {
        Shop::with(place, Router::new(), |db| db, AGES).await
    }

    /// With routes that only this test has.
    pub(crate) async fn with_routes(routes: Router<Db>) -> Self {
        Shop::with(Place::sqlite(), routes, |db| db, AGES).await
    }

    pub(crate) async fn with(
        place: Place,
        routes: Router<Db>,
        describe: impl FnOnce(Builder) -> Builder,
        time_limit: Duration,
    ) -> Self {
        let builder = Db::builder(&place.dsn).max(3);
        let db = describe(builder).open().await.unwrap();
        cenote_shop::set_up(&db).await.unwrap();
        let routes = cenote_shop::routes(&db).merge(routes);
        let app = cenote_shop::with_layers(routes, time_limit).with_state(db.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async { axum::serve(listener, app).await.unwrap() });
        Shop {
            db,
            address,
            _server: server,
            _place: place,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.client().await.json(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.client()
            .await
            .json(Method::POST, path, Some(body))
            .await
    }

    pub(crate) async fn stock(&self, product: i64) -> i64 {
        let sql = "SELECT stock FROM product WHERE id = ?";
        self.db.query_as_one(sql, (product,)).await.unwrap()
    }

    /// Waits until every connection to the database is back and nobody waits for one.
    pub(crate) async fn is_whole(&self) {
        let whole = || {
            let status = self.db.status();
            status.idle == status.total && status.waiting == 0
        };
        let back = until(whole).await;
        assert!(back, "not all came back: {}", self.db.status());
    }

    /// What was delivered is on the shelf or was sold; every order has its lines and costs what they do.
    pub(crate) async fn books_balance(&self) {
        let missing: Vec<(i64, i64)> = self
            .db
            .query_as(
                "SELECT id, CAST(off AS BIGINT) AS off FROM (
                     SELECT id, stock
                         + (SELECT coalesce(sum(quantity), 0) FROM purchase_line WHERE product = id)
                         - (SELECT coalesce(sum(quantity), 0) FROM delivery WHERE product = id) AS off
                     FROM product) AS balance
                 WHERE off <> 0",
                (),
            )
            .await
            .unwrap();
        assert_eq!(missing, [], "products and how many are missing");
        let wrong: Vec<i64> = self
            .db
            .query_as(
                "SELECT id FROM purchase WHERE total IS DISTINCT FROM
                     (SELECT sum(quantity * price) FROM purchase_line WHERE purchase = id)",
                (),
            )
            .await
            .unwrap();
        assert_eq!(wrong, [0; 0], "orders that were placed by half");
    }
}

/// Returns whether the condition becomes true within the time limit.
pub(crate) async fn until(condition: impl Fn() -> bool) -> bool {
    let coming = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AGES, coming).await.is_ok()
}

/// One connection. Dropping it hangs up.
pub(crate) struct Client {
    requests: SendRequest<Body>,
    _connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = handshake(TokioIo::new(socket)).await.unwrap();
        let mut driving = JoinSet::new();
        driving.spawn(async {
            // A server that hangs up is seen by the request.
            let _ = connection.await;
        });
        Client {
            requests,
            _connection: driving,
        }
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "shop");
        let request = match body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.to_string().into()),
            None => request.body(Body::empty()),
        };
        self.requests.send_request(request.unwrap()).await
    }

    pub(crate) async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let response = self.send(method, path, body).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        // What the layers answer is no JSON.
        let value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (status, value)
    }
}
