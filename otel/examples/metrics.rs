//! An application on axum whose metrics Prometheus reads at `/metrics`; `/otel` shows those of OpenTelemetry.
//!
//!     cargo run --example metrics -- 127.0.0.1:8080

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use cenote::Db;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

struct App {
    db: Db,
    provider: SdkMeterProvider,
    /// In a real program: the exporter of OTLP.
    exporter: InMemoryMetricExporter,
    _metrics: cenote_otel::Metrics,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let db = Db::builder("sqlite:file:metrics-example?mode=memory&cache=shared");
    let db = db.name("notes").min(1).open().await?;
    db.exec("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)", ())
        .await?;

    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let app = Arc::new(App {
        _metrics: cenote_otel::install(&db, &provider.meter("cenote")),
        db,
        provider,
        exporter,
    });
    let routes = Router::new()
        .route("/", get(add))
        .route("/metrics", get(prometheus))
        .route("/otel", get(otel))
        .with_state(app);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}

/// Adds a note, and returns the number of notes.
async fn add(State(app): State<Arc<App>>) -> Result<String, Failed> {
    app.db
        .exec("INSERT INTO note (text) VALUES (?)", ("milk",))
        .await?;
    let notes: i64 = app.db.query_as_one("SELECT count(*) FROM note", ()).await?;
    Ok(format!("{notes} notes\n"))
}

async fn prometheus(State(app): State<Arc<App>>) -> impl IntoResponse {
    let content_type = [(CONTENT_TYPE, cenote::prometheus::CONTENT_TYPE)];
    (content_type, cenote::prometheus::text([&app.db]))
}

async fn otel(State(app): State<Arc<App>>) -> Result<String, Failed> {
    app.exporter.reset();
    app.provider
        .force_flush()
        .map_err(|error| Failed(error.to_string()))?;
    let metrics = app.exporter.get_finished_metrics();
    let metrics = metrics.map_err(|error| Failed(error.to_string()))?;
    Ok(format!("{metrics:#?}\n"))
}

struct Failed(String);

impl From<cenote::Error> for Failed {
    fn from(error: cenote::Error) -> Self {
        Failed(error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0).into_response()
    }
}
