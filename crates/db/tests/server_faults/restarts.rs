//! A server that goes and comes back while many tasks use it.

use cenote::{Db, Error, Kind};

use crate::servers::bank::Bank;
use crate::servers::own::OwnServer;
use crate::servers::{MAKE, gives_no_other_reason};

/// What may happen to a call while its server goes and comes.
fn is_expected(error: &Error) -> bool {
    let known = error.is_connection_lost()
        || matches!(
            error.kind(),
            Kind::Connect | Kind::Timeout | Kind::RolledBack
        );
    known && gives_no_other_reason(error)
}

async fn survives(end: impl AsyncFn(&mut OwnServer)) {
    let mut server = OwnServer::start(MAKE.durable).await;
    let bank = Bank::open(Db::builder(&server.dsn()).max(6), is_expected).await;
    bank.survives(&mut server, end).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restarted_under_load_is_used_again_and_loses_nothing() {
    survives(OwnServer::stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_crashed_under_load_is_used_again_and_loses_nothing() {
    survives(OwnServer::crash).await;
}
