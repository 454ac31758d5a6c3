//! The position at the end of a call, and reads on a replica that has reached one: by MariaDB's GTIDs.
//!
//! | server | what is sent | round trips |
//! |---|---|---|
//! | primary | COMMIT of a transaction and the question for the position, in one text | 1 |
//! | primary | any other call; then the question | 1 more |
//! | replica | the question how far it is and a read without parameters, in one text | 1 |
//! | replica | the question; then any other read | 1 more |
//!
//! The client library cannot send a statement before the last one is answered, and prepared statements cannot share a text.
//!
//! The position is how far the binary log of the whole server is, not `@@last_gtid`: that one stays the GTID of an earlier transaction of
//! the session, perhaps of another borrower, when a statement writes nothing, and then says nothing about earlier writes on
//! other connections. A history is a domain of GTIDs and the server that writes to it: sequence numbers grow in it. A replica belongs to it
//! when the last transaction that it has applied in the domain is of that server. So a promoted server begins a history with its first
//! write.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError, QueryResult, Row, TextProtocol};

use super::connection::MysqlConnection;
use super::error;
use super::execute::{Gathered, Reading, Results, gather};
use super::wire::caught;
use crate::driver::{Batch, History, LogPosition, Outcome, ReplicaAnswer, Request, Status};
use crate::{Error, Kind, Result};

/// The position at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndPosition {
    NotWanted,
    /// The next commit asks for it.
    Wanted,
    /// The commit is answered, and the question behind it is not.
    Due,
}

/// What a connection knows about positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    pub(super) end: EndPosition,
    /// The server is no node of Galera, as it has said on this connection.
    is_no_node: bool,
    /// The binary log has one domain, by the last report.
    has_one_domain: bool,
}

impl Positions {
    pub(super) const NONE: Positions = Positions {
        end: EndPosition::NotWanted,
        is_no_node: false,
        has_one_domain: true,
    };

    pub(super) fn covers_earlier(self) -> bool {
        self.has_one_domain
    }

    pub(super) fn is_due(self) -> bool {
        self.end == EndPosition::Due
    }
}

/// One column, so that the answer of a strange server can be read without a panic of the client library.
macro_rules! position {
    ($galera:literal) => {
        concat!(
            "SELECT CONCAT_WS(' ', ",
            $galera,
            "@@log_bin, @@session.sql_log_bin, @@global.gtid_domain_id, @@session.gtid_domain_id, @@global.server_id, \
             @@last_gtid, @@global.gtid_binlog_pos)"
        )
    };
}

const POSITION: &str = position!("'OFF', ");

/// Once for each connection, because it takes longer. Not every build of the server has the variable.
const POSITION_UNLESS_GALERA: &str = position!(
    "(SELECT COALESCE(MAX(VARIABLE_VALUE), 'OFF') FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_ON'), "
);

/// Whether the server is a replica, and what it has applied.
const APPLIED: &str = "SELECT CONCAT_WS(' ', @@global.read_only, @@global.gtid_slave_pos)";

/// A transaction, as MariaDB numbers it: `0-1-270`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gtid {
    domain: u32,
    server: u32,
    sequence: u64,
}

impl Gtid {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let gtid = Gtid {
            domain: parts.next()?.parse().ok()?,
            server: parts.next()?.parse().ok()?,
            sequence: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(gtid)
    }

    /// Finds that of a domain in a list, which has one for each domain.
    fn of_domain(list: &str, domain: u32) -> Option<Self> {
        let mut all = list.split(',').filter_map(|gtid| Gtid::read(gtid.trim()));
        all.find(|gtid| gtid.domain == domain)
    }
}

/// Returns the history that a server writes in a domain.
fn history(domain: u32, server: u32) -> History {
    History {
        cluster: u64::from(domain) << 32 | u64::from(server),
        timeline: 0,
    }
}

fn domain_of(history: History) -> u32 {
    // The upper half: it fits.
    (history.cluster >> 32) as u32
}

/// What a primary says about its binary log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    position: LogPosition,
    has_one_domain: bool,
}

/// Reads `OFF 1 1 0 0 7 0-7-269 0-7-270`.
fn read_report(text: &str) -> Result<Report> {
    let unknown = |why| Error::new(Kind::Unsupported, format!("no position is known: {why}"));
    let mut parts = text.split(' ');
    let mut next = || parts.next().unwrap_or_default();
    let (wsrep_on, log_bin, logs) = (next(), next(), next());
    let (domain, own_domain, server) = (next(), next(), next());
    let (last, list) = (next(), next());
    let is_on = |value: &str| !matches!(value, "" | "0" | "OFF");
    if is_on(wsrep_on) {
        return Err(unknown("nodes of Galera have no replicas here"));
    }
    if !is_on(log_bin) {
        return Err(unknown("the server writes no binary log (log_bin)"));
    }
    if !is_on(logs) {
        return Err(unknown("the session writes to no binary log (sql_log_bin)"));
    }
    let (Ok(domain), Ok(server)) = (domain.parse::<u32>(), server.parse()) else {
        return Err(unknown("the server's answer makes no sense"));
    };
    let last = Gtid::read(last);
    if own_domain.parse() != Ok(domain) || last.is_some_and(|last| last.domain != domain) {
        return Err(unknown(
            "the session writes to another gtid_domain_id than the server's own",
        ));
    }
    // What another server has numbered lower may be logged behind the session's own transaction.
    let newest = Gtid::of_domain(list, domain).into_iter().chain(last);
    let sequence = newest.map(|gtid| gtid.sequence).max().unwrap_or(0);
    Ok(Report {
        position: LogPosition {
            history: history(domain, server),
            lsn: sequence,
        },
        has_one_domain: !list.contains(','),
    })
}

/// Reads `ON 0-7-270`.
fn read_applied(text: &str, wanted: Option<LogPosition>) -> ReplicaAnswer {
    let (read_only, list) = text.split_once(' ').unwrap_or((text, ""));
    let is_standby = !matches!(read_only, "" | "0" | "OFF");
    let applied = wanted.and_then(|wanted| Gtid::of_domain(list, domain_of(wanted.history)));
    let follows = applied.map(|applied| history(applied.domain, applied.server));
    let has_reached = applied.zip(wanted).is_some_and(|(applied, wanted)| {
        follows == Some(wanted.history) && applied.sequence >= wanted.lsn
    });
    ReplicaAnswer {
        is_standby,
        has_reached: is_standby && has_reached,
        replayed: applied.map(|applied| applied.sequence),
        history: follows,
    }
}

fn text_of(row: Option<Row>) -> String {
    let text = row.and_then(|mut row| row.take_opt::<Option<String>, _>(0));
    text.and_then(|text| text.ok().flatten())
        .unwrap_or_default()
}

#[cold]
fn no_gtids() -> Error {
    let message = "only MariaDB has replicas here: this server has no GTIDs of MariaDB";
    Error::new(Kind::Unsupported, message)
}

impl MysqlConnection {
    fn position_sql(&self) -> &'static str {
        match self.positions.is_no_node {
            true => POSITION,
            false => POSITION_UNLESS_GALERA,
        }
    }

    /// Returns whether the next commit is to ask for the position.
    pub(super) fn takes_position(&mut self) -> bool {
        let is_wanted = self.positions.end == EndPosition::Wanted;
        self.positions.end = EndPosition::NotWanted;
        is_wanted && self.facts.has_gtids
    }

    /// Commits, and asks for the position in the same text. Returns when the commit is answered.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    pub(super) async fn commit_with_position(&mut self) -> Result<()> {
        self.begin_call().await?;
        let sql = format!("COMMIT; {}", self.position_sql());
        let wire = self.wire()?;
        // The first result is that of COMMIT; the server runs nothing behind a failed one.
        let answer = caught(async { wire.query_iter(sql).await.map(drop) }).await;
        self.end_call(answer).await?;
        self.positions.end = EndPosition::Due;
        Ok(())
    }

    /// Returns the position behind the commit that was answered, if it asked for one and the server sent it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the position stays due; settling closes the connection.
    pub(super) async fn reported_position(&mut self) -> Option<LogPosition> {
        if !self.positions.is_due() {
            self.positions.end = EndPosition::NotWanted;
            return None;
        }
        let report = caught(rest_of(self.wire().ok()?)).await;
        self.positions.end = EndPosition::NotWanted;
        match report {
            Ok(row) => self.note_report(row).ok(),
            Err(ClientError::Server(said)) => {
                tracing::debug!(%said, "the server refuses to tell its position");
                None
            }
            // The commit was answered before.
            Err(wrong) => {
                let lost = self.lose(error::lost(wrong));
                tracing::debug!(%lost, "the connection was lost behind a commit");
                None
            }
        }
    }

    /// Asks for the position alone.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`] if the server or the session has no positions; or the connection is lost.
    pub(super) async fn ask_for_position(&mut self) -> Result<LogPosition> {
        if self.status != Status::Idle {
            let message = "the position is asked for between transactions only";
            return Err(Error::new(Kind::Busy, message));
        }
        if !self.facts.has_gtids {
            return Err(no_gtids());
        }
        let warnings = self.warnings;
        self.begin_call().await?;
        let sql = self.position_sql();
        let asked = caught(self.wire()?.query_first(sql)).await;
        let row = self.end_call(asked).await?;
        self.warnings = warnings;
        self.note_report(row)
    }

    fn note_report(&mut self, row: Option<Row>) -> Result<LogPosition> {
        let report = read_report(&text_of(row))?;
        self.positions.is_no_node = true;
        self.positions.has_one_domain = report.has_one_domain;
        Ok(report.position)
    }

    /// Asks whether the server is a replica that has applied everything up to a position, and runs a read behind that.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`] if the server has no GTIDs; or the connection is lost before the question was answered.
    pub(super) async fn read_where_applied(
        &mut self,
        wanted: Option<LogPosition>,
        read: Option<Request<'_>>,
    ) -> Result<(ReplicaAnswer, Option<Result<Outcome>>)> {
        if !self.facts.has_gtids {
            return Err(no_gtids());
        }
        if let Some(read) = read
            && self.shares_text(&read)
        {
            let (report, done) = self.ask_and_read(read).await?;
            return Ok((read_applied(&report, wanted), Some(done)));
        }
        // The question is as good as a ping.
        self.begin_without_ping()?;
        let asked = caught(self.wire()?.query_first(APPLIED)).await;
        let row = self.end_call(asked).await?;
        self.needs_ping = false;
        let answer = read_applied(&text_of(row), wanted);
        let done = match read {
            Some(read) if answer.has_reached => Some(self.execute(read).await),
            _ => None,
        };
        Ok((answer, done))
    }
}

impl MysqlConnection {
    /// Returns whether a read is sent as text, whose rows are wanted, so that the question fits in front of it.
    fn shares_text(&mut self, read: &Request<'_>) -> bool {
        let is_text = read.params.is_empty() && !read.prepared && !read.script;
        // What is wrong with the session or the text is an error of the read, not of the question.
        let is_right = !self.is_reading_unsure
            && self.misreads.is_none()
            && self.check_size(APPLIED.len() + read.sql.len(), 0).is_ok();
        is_text && read.rows && is_right && self.kept(read).is_none()
    }

    /// Sends the question and a read in one text. Returns both answers.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// The question was not answered.
    async fn ask_and_read(&mut self, read: Request<'_>) -> Result<(String, Result<Outcome>)> {
        let sql = format!("{APPLIED}; {}", read.sql);
        // Not as a script: a comment behind the read has an empty result of its own, which takes no rows away.
        let reading = Reading::of(&read, None, self.is_utc);
        self.begin_without_ping()?;
        let mut both = Both::default();
        let asked = self.wire()?.query_iter(&*sql);
        let answer = gather(asked, reading, &mut both).await;
        let ended = self.end_script_call(answer).await;
        let Some(report) = both.report else {
            return Err(ended.err().unwrap_or_else(error::broken));
        };
        self.needs_ping = false;
        let done = match ended.and_then(|()| self.outcome(false, &mut both.last)) {
            Ok(outcome) if outcome.warnings > 0 => {
                let noted = self.note_warnings(outcome.warnings).await;
                noted.map(|()| outcome)
            }
            done => done,
        };
        let row = report.into_rows().next();
        let report = row.and_then(|row| row.get::<String>(0).ok());
        Ok((report.unwrap_or_default(), done))
    }
}

/// The answer to the question, and that to the read behind it.
#[derive(Default)]
struct Both {
    report: Option<Batch>,
    last: Gathered,
}

impl Results for Both {
    fn last(&mut self) -> &mut Gathered {
        &mut self.last
    }

    fn end_rows(&mut self) {
        if self.report.is_none() {
            self.report = self.last.take_rows();
        }
    }
}

/// Reads the results behind the one that was read. Returns the last row, or the server's error for one of them.
async fn rest_of(conn: &mut Conn) -> mysql_async::Result<Option<Row>> {
    let mut rest = QueryResult::<'_, '_, TextProtocol>::new(conn);
    let mut last = None;
    while rest.columns().is_some() {
        while let Some(row) = rest.next().await? {
            last = Some(row);
        }
    }
    // The client library keeps the error of a later result for the next request, which may be a call of the program.
    rest.next().await?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(domain: u32, server: u32, sequence: u64) -> LogPosition {
        LogPosition {
            history: history(domain, server),
            lsn: sequence,
        }
    }

    #[test]
    fn position_is_how_far_the_log_of_the_server_is() {
        let report = read_report("OFF 1 1 0 0 7 0-7-269 0-7-270").unwrap();
        assert_eq!(report.position, at(0, 7, 270));
        assert!(report.has_one_domain);
        // The session has written nothing, and the last transaction is the former primary's.
        let report = read_report("OFF 1 1 3 3 7  3-8-270").unwrap();
        assert_eq!(report.position, at(3, 7, 270));
        let report = read_report("OFF 1 1 0 0 7 0-7-1 2-7-5,0-7-9").unwrap();
        assert_eq!(report.position, at(0, 7, 9));
        assert!(!report.has_one_domain);
        // A server that writes as well has numbered its transaction lower.
        let report = read_report("OFF 1 1 0 0 7 0-7-280 0-8-275").unwrap();
        assert_eq!(report.position, at(0, 7, 280));
        let report = read_report("OFF 1 1 0 0 7  ").unwrap();
        assert_eq!(report.position, at(0, 7, 0));
    }

    #[test]
    fn what_no_replica_gets_has_no_position() {
        for text in [
            "",
            "ON 1 1 0 0 7 0-7-1 0-7-1",
            "OFF 0 1 0 0 7  ",
            "OFF 1 0 0 0 7 0-7-1 0-7-1",
            "OFF 1 1 0 4 7 0-7-1 0-7-1",
            "OFF 1 1 0 0 7 4-7-1 4-7-1,0-7-1",
            "OFF 1 1 x 0 7 0-7-1 0-7-1",
            "OFF 1 1 0 0 -7 0-7-1 0-7-1",
        ] {
            let error = read_report(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{text}");
        }
    }

    #[test]
    fn replica_has_reached_what_it_has_applied_of_the_primary() {
        let wanted = Some(at(0, 7, 270));
        for (text, is_standby, has_reached) in [
            ("ON 0-7-270", true, true),
            ("1 4-9-1,0-7-271", true, true),
            ("ON 0-7-269", true, false),
            // Another server's, though it is further.
            ("ON 0-8-900", true, false),
            ("ON 4-7-900", true, false),
            ("ON ", true, false),
            ("OFF 0-7-270", false, false),
            ("0 0-7-270", false, false),
            ("", false, false),
        ] {
            let answer = read_applied(text, wanted);
            let seen = (answer.is_standby, answer.has_reached);
            assert_eq!(seen, (is_standby, has_reached), "{text}");
        }
        let answer = read_applied("NO_LOCK 0-7-270", None);
        assert_eq!((answer.history, answer.replayed), (None, None));
        let answer = read_applied("ON 0-8-900", wanted);
        assert_eq!(answer.history, Some(history(0, 8)));
    }
}
