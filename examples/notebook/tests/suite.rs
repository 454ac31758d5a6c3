//! The driver keeps every promise that the suite asks of a driver.

use cenote_notebook::{Notebook, Server};
use cenote_testkit::suite::{Lack, Subject, Types};

/// Returns an empty notebook, its statements, and the capabilities that it lacks.
async fn make() -> Subject {
    let server = Server::start().await.expect("there is a free port");
    Subject::new(Notebook, &server.dsn())
        .expect("the DSN is right")
        .keep(server)
        .sql(|sql| {
            sql.create = "CLEAR".into();
            sql.insert = "ADD ? ?".into();
            sql.select = "LIST".into();
            sql.delete = "CLEAR".into();
            sql.seven = "SEVEN".into();
            sql.syntax_error = Some("GARBAGE".into());
            sql.undefined_table = None;
            sql.add_column = None;
            sql.numbered = None;
            sql.temporary_table = Some(["REMEMBER milk", "RECALL"].map(str::to_owned));
            sql.endless = Some("WAIT".into());
            sql.types = Types::none();
        })
        .lacks(Lack::Scripts)
        .unreachable("notebook:host=127.0.0.1;port=1")
        .expect("the DSN is right")
}

cenote_testkit::driver_suite!(make);
