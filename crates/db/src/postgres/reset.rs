//! Resets the session to its state after connecting.
//!
//! | session state | removed by |
//! |---|---|
//! | settings, roles, cursors, LISTEN, advisory locks, temporary objects, `currval` | every reset |
//! | the application's own prepared statements | DEALLOCATE ALL, if there may be some |
//! | `dblink` connections, the replication origin, the seed of `random()` | a full reset; if a text contains them, the layer replaces the connection |
//! | loaded libraries, temporary replication slots, a backup, data of procedural languages | closing the connection only |

use std::borrow::Cow;

use tokio_rustls::rustls::crypto::ring;

use super::connection::{InFlight, PostgresConnection};
use super::protocol::answer::Answer;
use crate::Result;
use crate::driver::Reset;

/// All of `DISCARD ALL` except prepared statements and their plans, which are the driver's.
const KEEPING_STATEMENTS: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; \
                                  UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); \
                                  DISCARD TEMP; DISCARD SEQUENCES";

/// The rest of `DISCARD ALL`, which itself cannot share a round trip with another statement.
const STATEMENTS: &str = "; DEALLOCATE ALL; DISCARD PLANS";

/// What `DISCARD ALL` leaves, but can be undone. A user without the right to call these functions cannot have called them,
/// except through a SECURITY DEFINER function: then this fails, and the connection is replaced.
const LEFT_OVER: &str = "; DO LANGUAGE plpgsql $cenote$ DECLARE it pg_catalog.text; BEGIN \
     IF NOT pg_catalog.pg_is_in_recovery() AND pg_catalog.has_function_privilege(\
       'pg_catalog.pg_replication_origin_session_is_setup()', 'EXECUTE') THEN \
       IF pg_catalog.pg_replication_origin_session_is_setup() THEN \
         PERFORM pg_catalog.pg_replication_origin_session_reset(); \
       END IF; \
     END IF; \
     FOR it IN SELECT n.nspname FROM pg_catalog.pg_extension e \
       JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'dblink' LOOP \
       EXECUTE pg_catalog.format('SELECT %1$I.dblink_disconnect(name) \
         FROM pg_catalog.unnest(%1$I.dblink_get_connections()) name', it); \
       BEGIN \
         EXECUTE pg_catalog.format('SELECT %I.dblink_disconnect()', it); \
       EXCEPTION WHEN connection_does_not_exist THEN NULL; \
       END; \
     END LOOP; END $cenote$";

impl PostgresConnection {
    /// Resets the session in one round trip. The settings of the DSN are part of the state that the server restores.
    pub(super) async fn reset_session(&mut self) -> Result<Reset> {
        let Some(sql) = self.reset_sql() else {
            return Ok(replaced("the system provides no random numbers"));
        };
        self.begin_call(InFlight::Brief)?;
        let done = self.simple(&sql, Answer::new(false)).await;
        let mut answer = self.finish_call(done)?;
        if let Some(error) = answer.error() {
            return Ok(replaced(error.message()));
        }
        self.session.note_reset();
        self.cache.note_reset();
        // The server's default may have changed since this session began.
        Ok(match self.session.misread() {
            Some(_) => replaced("the server's defaults have changed"),
            None => Reset::Done,
        })
    }

    /// Returns the SQL of the reset; `None` if the system provides no random numbers.
    fn reset_sql(&self) -> Option<Cow<'static, str>> {
        if self.full_reset {
            let seed = random_seed()?;
            let seed = format!("; SELECT pg_catalog.setseed({seed:?})");
            return Some(
                [KEEPING_STATEMENTS, STATEMENTS, LEFT_OVER, &seed]
                    .concat()
                    .into(),
            );
        }
        Some(match self.session.has_foreign_statements() {
            true => [KEEPING_STATEMENTS, STATEMENTS].concat().into(),
            false => KEEPING_STATEMENTS.into(),
        })
    }
}

/// Returns an unpredictable seed, as a new session has one: the server cannot be made to choose another.
fn random_seed() -> Option<f64> {
    let mut random = [0; 8];
    let filled = ring::default_provider().secure_random.fill(&mut random);
    filled.ok()?;
    let [a, b, c, d, rest @ ..] = random;
    let [high, low] = [[a, b, c, d], rest].map(|half| f64::from(u32::from_le_bytes(half)));
    let all = f64::from(u32::MAX) + 1.0;
    Some((high + low / all) / all)
}

fn replaced(why: &str) -> Reset {
    tracing::debug!(why, "replacing a connection whose session cannot be reset");
    Reset::Replace
}
