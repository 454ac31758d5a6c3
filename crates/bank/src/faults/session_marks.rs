//! Marks that clients leave in their sessions, and that no other client may see.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use cenote::{Db, Result};

use super::dialect::Dialect;

/// Sets marks and looks for those of others. Relaxed throughout: the numbers are independent.
#[derive(Debug)]
pub(crate) struct SessionMarks {
    dialect: Dialect,
    looks: AtomicU64,
    marks: AtomicU64,
    /// The first mark that was seen and should not have been, or was lost.
    wrong: Mutex<Option<String>>,
}

impl SessionMarks {
    pub(crate) fn new(dialect: Dialect) -> Self {
        SessionMarks {
            dialect,
            looks: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            wrong: Mutex::default(),
        }
    }

    async fn seen(&self, db: &Db) -> Result<Option<String>> {
        let seen: Option<String> = db.query_as_one(self.dialect.look(), ()).await?;
        self.looks.fetch_add(1, Relaxed);
        // PostgreSQL returns an empty text for a mark that was reset.
        Ok(seen.filter(|mark| !mark.is_empty()))
    }

    /// Looks for the mark of another client in a session without one.
    pub(crate) async fn look(&self, db: &Db) -> Result<()> {
        if let Some(mark) = self.seen(db).await? {
            self.note(format!("a client saw the mark of transfer {mark}"));
        }
        Ok(())
    }

    /// Marks the session.
    pub(crate) async fn mark(&self, db: &Db, number: i64) -> Result<()> {
        db.exec(&self.dialect.mark(number), ()).await?;
        self.marks.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Verifies that the session has the mark that this coroutine set.
    pub(crate) async fn expect_own(&self, db: &Db, number: i64) -> Result<()> {
        let seen = self.seen(db).await?;
        if seen.as_deref() != Some(number.to_string().as_str()) {
            self.note(format!("transfer {number} lost its mark, and saw {seen:?}"));
        }
        Ok(())
    }

    fn note(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.get_or_insert(what);
    }

    /// Returns how many looks and how many marks there were.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.looks.load(Relaxed), self.marks.load(Relaxed))
    }

    /// Returns the first contradiction.
    pub(crate) fn wrong(&self) -> Option<String> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_mark_of_another_client_is_noted() {
        let dsn = "sqlite:file:sessions?mode=memory&cache=shared";
        let db = Db::open(dsn).await.unwrap();
        let sessions = SessionMarks::new(Dialect::Sqlite);
        cenote::scope(async {
            sessions.look(&db).await.unwrap();
            sessions.mark(&db, 17).await.unwrap();
            sessions.expect_own(&db, 17).await.unwrap();
            assert_eq!(sessions.wrong(), None);
            // As another client would see it, on the same connection.
            sessions.look(&db).await.unwrap();
        })
        .await;
        let seen = sessions.wrong().unwrap();
        assert!(seen.contains("the mark of transfer 17"), "{seen}");
        assert_eq!(sessions.counts(), (3, 1));

        let next = SessionMarks::new(Dialect::Sqlite);
        cenote::scope(next.look(&db)).await.unwrap();
        assert_eq!(next.wrong(), None, "it went with its coroutine");
        cenote::scope(next.expect_own(&db, 17)).await.unwrap();
        assert!(next.wrong().unwrap().contains("lost its mark"));
    }
}
