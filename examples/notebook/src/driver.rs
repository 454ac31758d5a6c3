//! The driver and the template: a DSN is read, nothing is opened; then connections are made.

use std::any::Any;
use std::sync::Arc;

use cenote::Result;
use cenote::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Driver, Dsn, Options, Template,
};

use crate::connection::NotebookConnection;
use crate::wire::Wire;

/// The driver for notebooks: `notebook:host=127.0.0.1;port=4000`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notebook;

impl Driver for Notebook {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        let mut reader = dsn.reader(options);
        let host = reader.take("host").unwrap_or("127.0.0.1").to_owned();
        let port = reader.take_parsed("port")?.unwrap_or(4000);
        // An unknown option is left over: an error that names it.
        reader.finish()?;
        Ok(Arc::new(Endpoint { host, port }))
    }
}

/// Where a notebook is.
#[derive(Debug)]
struct Endpoint {
    host: String,
    port: u16,
}

impl Template for Endpoint {
    fn dialect(&self) -> &'static Dialect {
        &Dialect::ODBC
    }

    fn address(&self) -> String {
        format!("the notebook at {}:{}", self.host, self.port)
    }

    fn connect<'t>(
        &'t self,
        _credentials: Credentials,
        _settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let wire = Wire::connect(&self.host, self.port).await?;
            let connection: Box<dyn Connection> = Box::new(NotebookConnection::new(wire));
            Ok(connection)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
