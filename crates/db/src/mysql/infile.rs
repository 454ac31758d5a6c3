//! Files of this machine that `LOAD DATA LOCAL INFILE` may send.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use mysql_async::LocalInfileError;
use mysql_async::prelude::GlobalHandler;
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

/// The folder whose files `LOAD DATA LOCAL INFILE` may send.
///
/// The server names the file, whatever the statement says. So a hostile server must not get a file outside of
/// this folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: Arc<Path>,
}

impl Folder {
    pub(super) fn new(path: &str) -> Self {
        Folder {
            path: PathBuf::from(path).into(),
        }
    }
}

impl GlobalHandler for Folder {
    fn handle(
        &self,
        name: &[u8],
    ) -> BoxFuture<'static, Result<BoxStream<'static, std::io::Result<Bytes>>, LocalInfileError>>
    {
        let name = String::from_utf8_lossy(name).into_owned();
        let folder = Arc::clone(&self.path);
        Box::pin(async move {
            let refused = || LocalInfileError::PathIsNotInTheWhiteList(name.clone());
            // Links are resolved on both sides, so a link cannot lead out of the folder.
            let folder = tokio::fs::canonicalize(&folder)
                .await
                .map_err(|_| refused())?;
            let path = tokio::fs::canonicalize(folder.join(&name))
                .await
                .map_err(|_| refused())?;
            if !path.starts_with(&folder) {
                return Err(refused());
            }
            let file = File::open(path).await.map_err(|_| refused())?;
            let pieces = Pieces {
                file,
                buffer: vec![0; PIECE],
            };
            Ok(Box::pin(pieces) as BoxStream<'static, _>)
        })
    }
}

/// The size of the pieces in which a file is sent.
const PIECE: usize = 64 * 1024;

struct Pieces {
    file: File,
    buffer: Vec<u8>,
}

impl Stream for Pieces {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Pieces { file, buffer } = &mut *self;
        let mut read = ReadBuf::new(buffer);
        match Pin::new(file).poll_read(cx, &mut read) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(wrong)) => Poll::Ready(Some(Err(wrong))),
            Poll::Ready(Ok(())) => match read.filled() {
                [] => Poll::Ready(None),
                piece => Poll::Ready(Some(Ok(Bytes::copy_from_slice(piece)))),
            },
        }
    }
}
