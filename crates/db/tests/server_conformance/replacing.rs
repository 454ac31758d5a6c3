//! Replacing connections to a server that takes no new ones for a while.

use std::time::Duration;

use cenote::{Db, Result};
use cenote_testkit::proxy::{Network, OnConnect};

use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::{session_id, soon, until};

/// Calls failed or took seconds, though a good connection was there.
#[tokio::test]
async fn h28_old_connections_serve_until_a_new_one_is_there() -> Result<()> {
    for on_connect in [OnConnect::Reset, OnConnect::Ignore] {
        let proxy = proxy_with(Network::ideal()).await;
        let db = Db::builder(&dsn_through(&proxy)).max(3);
        let db = db.connect_timeout(Duration::from_secs(1)).open().await?;
        let old = session_id(&db).await;
        proxy.on_connect(on_connect);
        db.replace_all();
        let failed = || {
            let pool = db.pool().expect("it has a pool");
            pool.counters().create_failed > 1
        };
        until("attempts have failed", async || {
            // Connecting takes longer, if it takes any time at all.
            let at_once = Duration::from_millis(900);
            let served = tokio::time::timeout(at_once, session_id(&db)).await;
            assert_eq!(served, Ok(old), "{on_connect:?}");
            failed()
        })
        .await;
        proxy.on_connect(OnConnect::Forward);
        until("the connection is another", async || {
            session_id(&db).await != old
        })
        .await;
        assert_eq!(db.status().total, 1);
        soon("it closes", db.close()).await?;
    }
    Ok(())
}
