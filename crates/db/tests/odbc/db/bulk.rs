//! Bulk loading: see `bulk_support`.

use super::{Source, sources};
use crate::bulk::{CREATE, bulk_tests};

async fn shops() -> [Source; 2] {
    let sources = sources(|builder| builder.max(2)).await;
    for source in &sources {
        source.db.exec(CREATE, ()).await.unwrap();
    }
    sources
}

bulk_tests!(shops);
