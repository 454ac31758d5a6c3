//! Connections of a host that was retired while they are in use.

use cenote::Db;

use super::host::{Host, Is};
use super::of;
use crate::servers::{soon, until};

#[tokio::test]
async fn transaction_on_a_retired_host_goes_on() {
    let (one, two) = (
        Host::start(Is::STANDBY).await,
        Host::start(Is::STANDBY).await,
    );
    let dsn = of(&[one.port(), two.port()], "target_session_attrs=standby");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    let run = db.transaction(async || {
        db.exec("SELECT 1", ()).await?;
        one.becomes(Is::Primary);
        until("it is retired", async || db.hosts()[0].retired == 1).await;
        db.exec("SELECT 2", ()).await?;
        Ok(())
    });
    soon("it ends", run).await.unwrap();
    // Its connection is not kept.
    until("it is closed", async || db.hosts()[0].connections == 0).await;
    db.exec("SELECT 1", ()).await.unwrap();
    assert_eq!(db.hosts()[1].connections, 1);
}
