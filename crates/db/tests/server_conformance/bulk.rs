//! Bulk loading: see `bulk_support`.

use cenote::Db;

use crate::bulk::{CREATE, bulk_tests};
use crate::servers::{dsn, own_tables_at};

struct Shop {
    db: Db,
}

async fn shops() -> [Shop; 1] {
    let db = own_tables_at(&dsn(), |builder| builder.max(2)).await;
    db.exec(CREATE, ()).await.unwrap();
    [Shop { db }]
}

bulk_tests!(shops);
