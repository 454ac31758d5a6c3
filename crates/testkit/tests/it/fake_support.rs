//! What the tests of the fake share.

use cenote::Result;
use cenote::driver::{
    ConnectSettings, Connection, Credentials, Driver, Dsn, Options, Outcome, Request,
};
use cenote_testkit::Fake;
use cenote_testkit::poll::now;

/// Opens a connection, which needs no waiting.
pub(crate) fn try_connect(fake: &Fake) -> Result<Box<dyn Connection>> {
    let dsn = Dsn::parse("fake:")?;
    let template = fake.driver().template(&dsn, &Options::new())?;
    now(template.connect(Credentials::new("ada", "secret"), &ConnectSettings::new(8)))
}

/// Opens a connection.
pub(crate) fn connect(fake: &Fake) -> Box<dyn Connection> {
    try_connect(fake).unwrap()
}

/// Runs a text, which needs no waiting.
pub(crate) fn run(on: &mut Box<dyn Connection>, sql: &str) -> Result<Outcome> {
    now(on.run(Request::new(sql, &[])))
}
