//! Reads from `EXPLAIN` what SQLite does to run a statement, and decides whether it may run inline.
//!
//! A statement runs inline, on the executor's thread, only if no single step of its program can take
//! long: SQLite checks for interrupts between steps, never inside one. A read may loop inline, because
//! the progress handler ends it.
//!
//! SQLite may change its programs from version to version. So this reader lists the steps that are
//! bounded, and a statement with any other step runs on the connection's thread. The tests
//! below compare the reader with the bundled SQLite.

use rusqlite::Connection;

/// The longest value, in bytes, that a statement may make or read inline.
pub(super) const INLINE_LENGTH: i32 = 64 * 1024;

/// Whether a statement may run inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inline {
    /// One of its steps can take any time.
    #[default]
    Never,
    /// It only reads, and every step is bounded.
    Read,
    /// It only reads, and one step sorts what it has read: inline it may read only a few rows.
    Sort,
    /// It writes one or two small rows, whatever its parameters are.
    Write,
}

/// What SQLite does to run a statement, as far as the driver needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// It takes the write lock of the database.
    pub(super) locks: bool,
    pub(super) inline: Inline,
    /// It fills a temporary b-tree: for `RETURNING`, `DISTINCT` or `ORDER BY … LIMIT`, for example.
    pub(super) has_ephemeral: bool,
}

impl Plan {
    /// Reads a statement's plan, for the schema that the connection has loaded.
    pub(super) fn of(db: &Connection, sql: &str) -> rusqlite::Result<Plan> {
        let mut explain = db.prepare(&format!("EXPLAIN {sql}"))?;
        // The statement itself does not run, so it needs no parameters.
        let steps = explain.raw_query().mapped(|step| {
            Ok(Step {
                at: step.get("addr")?,
                code: step.get("opcode")?,
                p1: step.get("p1")?,
                p2: step.get("p2")?,
                p3: step.get("p3")?,
                p4: step.get::<_, Option<String>>("p4")?.unwrap_or_default(),
                p5: step.get("p5")?,
            })
        });
        let steps = steps.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(Program::new(&steps).plan())
    }
}

/// Steps that take constant or logarithmic time, or time in proportion to values of at most
/// [`INLINE_LENGTH`] bytes.
const BOUNDED: &str = "Abortable Add AddImm Affinity And BeginSubrtn BitAnd BitNot BitOr Cast Close \
    ClrSubtype CollSeq Column ColumnsUsed Compare Concat CursorHint DecrJumpZero DeferredSeek Divide \
    ElseEq EndCoroutine Eq Explain Filter FilterAdd FinishSeek FkCheck FkCounter FkIfZero Found Ge \
    GetSubtype Gosub Goto Gt Halt HaltIfNull IdxGE IdxGT IdxLE IdxLT IdxRowid If IfEmpty IfNoHope IfNot \
    IfNotZero IfNullRow IfPos IfSizeBetween Init InitCoroutine Int64 IntCopy Integer IsNull IsTrue \
    IsType Jump Last Le Lt MakeRecord MemMax Move Multiply MustBeInt Ne NewRowid Next NoConflict Noop \
    Not NotExists NotFound NotNull Null NullRow Offset OffsetLimit Once OpenAutoindex OpenDup \
    OpenEphemeral OpenPseudo OpenRead OpenWrite Or Permutation Prev Real RealAffinity ReleaseReg \
    Remainder ReopenIdx ResetSorter ResultRow Return Rewind RowData RowSetAdd RowSetRead RowSetTest \
    Rowid SCopy SeekEnd SeekGE SeekGT SeekHit SeekLE SeekLT SeekRowid SeekScan Sequence SequenceTest \
    SetSubtype ShiftLeft ShiftRight SoftNull Sort SorterCompare SorterData SorterInsert SorterNext \
    SorterSort String String8 Subtract TableLock Transaction TypeCheck Variable Yield ZeroOrNull";

/// SQLite's functions that take no longer than reading or copying their arguments.
const BOUNDED_FUNCTIONS: &str = "abs avg changes coalesce count date datetime dense_rank ifnull iif \
    julianday last_insert_rowid length likelihood likely lower max(1) min(1) nullif octet_length random \
    rank round row_number sign sqlite_version substr substring sum time timediff total total_changes \
    typeof unicode unixepoch unlikely upper";

/// Steps that fail if they would make a value longer than the limit.
const LIMITED: &str =
    "Blob Column Concat Copy Function MakeRecord PureFunc RowData String String8 Variable";

/// Steps that visit any number of rows. (Most loops end with `Next` or `Prev`.)
const LOOPS: &str = "RowSetRead RowSetTest SorterNext SorterSort Yield";

/// One step may copy fewer values than this.
const COPIES: i64 = 16;

/// A flag of `Insert`: the step replaces a row.
const IS_UPDATE: i64 = 4;

fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == word)
}

/// One step of SQLite's program.
struct Step {
    at: i64,
    code: String,
    p1: i64,
    p2: i64,
    p3: i64,
    p4: String,
    p5: i64,
}

impl Step {
    fn is(&self, codes: &str) -> bool {
        has(codes, &self.code)
    }

    /// Returns whether the step cannot take long, whatever its values are.
    fn is_bounded(&self) -> bool {
        match self.code.as_str() {
            "Function" | "PureFunc" | "AggStep" | "AggStep1" | "AggInverse" | "AggValue"
            | "AggFinal" => {
                let name = self.p4.split('(').next().unwrap_or_default();
                has(BOUNDED_FUNCTIONS, name) || has(BOUNDED_FUNCTIONS, &self.p4)
            }
            "Copy" => self.p3 < COPIES,
            // A Bloom filter may have ten megabytes.
            "Blob" => self.p1 <= i64::from(INLINE_LENGTH),
            // Collations other than BINARY compare byte by byte, and a sort compares often.
            "SorterOpen" => {
                let collations = self.p4.trim_end_matches(')').split(',').skip(1);
                let bare = |name: &str| name.replace("N.", "").replace('-', "");
                collations
                    .map(bare)
                    .all(|name| name.is_empty() || name == "B")
            }
            code => has(BOUNDED, code),
        }
    }
}

/// The steps of one statement.
struct Program<'s> {
    steps: &'s [Step],
    /// The cursors of the statement's temporary b-trees.
    ephemeral: Vec<i64>,
}

impl<'s> Program<'s> {
    fn new(steps: &'s [Step]) -> Self {
        let opens = |step: &&Step| step.is("OpenEphemeral OpenAutoindex OpenDup");
        Program {
            ephemeral: steps.iter().filter(opens).map(|step| step.p1).collect(),
            steps,
        }
    }

    fn plan(&self) -> Plan {
        let locks = |step: &Step| step.code == "Transaction" && step.p1 == 0 && step.p2 != 0;
        let mut plan = Plan {
            locks: self.steps.iter().any(locks),
            inline: Inline::Never,
            has_ephemeral: !self.ephemeral.is_empty(),
        };
        let is_bounded = |step: &Step| step.is_bounded() || self.writes(step);
        if !self.steps.iter().all(is_bounded) {
            return plan;
        }
        let writes: Vec<_> = self
            .steps
            .iter()
            .filter(|step| self.changes(step))
            .collect();
        plan.inline = match (writes.first(), writes.last()) {
            (Some(first), Some(last)) => match !self.loops() && self.is_small(first, last) {
                true => Inline::Write,
                false => Inline::Never,
            },
            _ if plan.locks => Inline::Never,
            _ if self.steps.iter().any(|step| step.code == "SorterOpen") => Inline::Sort,
            _ => Inline::Read,
        };
        plan
    }

    /// Returns whether the step writes a row of any b-tree.
    fn writes(&self, step: &Step) -> bool {
        step.is("Delete IdxDelete IdxInsert Insert")
    }

    /// Returns whether the step writes a row of the database.
    fn changes(&self, step: &Step) -> bool {
        self.writes(step) && !self.ephemeral.contains(&step.p1)
    }

    /// Returns whether the program may visit any number of rows.
    fn loops(&self) -> bool {
        // A row that other rows refer to searches for rows that lacked it: only if this statement has left
        // some of them.
        let breaks_keys = |step: &Step| step.code == "FkCounter" && step.p1 == 0 && step.p2 > 0;
        let breaks_keys = self.steps.iter().any(breaks_keys);
        let mut skipped_up_to = 0;
        self.steps.iter().any(|step| match step.code.as_str() {
            _ if step.at < skipped_up_to => false,
            // A temporary b-tree holds the rows that the statement itself has changed.
            "Next" | "Prev" => !self.ephemeral.contains(&step.p1),
            "FkIfZero" if step.p1 == 0 && !breaks_keys => {
                skipped_up_to = step.p2;
                false
            }
            // Every program ends with a jump to its first step.
            "Goto" => step.p2 <= step.at && step.p2 != 1,
            code => has(LOOPS, code),
        })
    }

    /// Returns whether the inserted row is new: SQLite assigns a new rowid, or has searched for the rowid and stops
    /// if it finds a row.
    fn is_new(&self, insert: &Step) -> bool {
        let stops = |pair: &[Step]| match pair {
            [look, next] => {
                look.code == "NotExists" && look.p1 == insert.p1 && next.is("Goto Halt")
            }
            _ => false,
        };
        let given = |step: &Step| step.code == "MustBeInt" && step.p1 == insert.p3;
        self.steps.windows(2).any(stops) || !self.steps.iter().any(given)
    }

    /// Returns whether the written rows are small: the program fails before its first change if a value is too long.
    fn is_small(&self, first: &Step, last: &Step) -> bool {
        let before = || self.steps.iter().take_while(|step| step.at < first.at);
        let reads = |cursor, column| {
            before().any(|step| step.code == "Column" && (step.p1, step.p2) == (cursor, column))
        };
        let among = self
            .steps
            .iter()
            .filter(|step| (first.at..last.at).contains(&step.at));
        let mut limited = among.filter(|step| step.is(LIMITED));
        if limited.any(|step| step.code != "Column" || !reads(step.p1, step.p2)) {
            return false;
        }
        // A program that replaces or deletes a row has to read all of it, except for numbers: the old row may fill
        // any number of pages.
        let changes = self.steps.iter().filter(|step| self.changes(step));
        let mut replaced = changes.filter(|step| match step.code.as_str() {
            "Delete" => true,
            "Insert" => step.p5 & IS_UPDATE != 0 || !self.is_new(step),
            _ => false,
        });
        replaced.all(|step| {
            let opens = |open: &&Step| open.code == "OpenWrite" && open.p1 == step.p1;
            let columns = self.steps.iter().find(opens).map(|open| &open.p4);
            let Some(columns) = columns.and_then(|columns| columns.parse::<usize>().ok()) else {
                return false;
            };
            let types =
                before().filter(|step| step.is("Affinity MakeRecord") && step.p4.len() == columns);
            let types = types.last().map_or("", |step| step.p4.as_str()).as_bytes();
            let is_number = |column: usize| {
                types
                    .get(column)
                    .is_some_and(|of| (b'C'..=b'F').contains(of))
            };
            let read = |column| i64::try_from(column).is_ok_and(|column| reads(step.p1, column));
            (0..columns).all(|column| read(column) || is_number(column))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "
        CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, balance INTEGER NOT NULL);
        CREATE TABLE line (account INTEGER REFERENCES account, n INTEGER, PRIMARY KEY (account, n)) WITHOUT ROWID;
        CREATE TABLE folded (name TEXT COLLATE NOCASE);
        CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE TABLE watched (n INTEGER);
        CREATE TABLE plain (id INTEGER PRIMARY KEY, t TEXT);
        CREATE TABLE log (n INTEGER);
        CREATE TRIGGER watch AFTER INSERT ON watched BEGIN INSERT INTO log VALUES (new.n); END;
        CREATE VIEW hostile AS SELECT id, randomblob(id) AS junk FROM account;
        CREATE VIRTUAL TABLE word USING fts5(text);
        CREATE VIRTUAL TABLE box USING rtree(id, x0, x1);
        CREATE TABLE stored (id INTEGER PRIMARY KEY, big TEXT, hash TEXT AS (hex(big)) STORED);";

    fn inline(sql: &str) -> Inline {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        Plan::of(&db, sql).unwrap().inline
    }

    #[test]
    fn bounded_reads_run_inline() {
        for sql in [
            "SELECT 1",
            "SELECT * FROM account WHERE id = ?",
            "SELECT balance FROM account WHERE name = ?",
            "SELECT * FROM account LIMIT 10",
            "SELECT * FROM account ORDER BY id DESC LIMIT 10 OFFSET 20",
            "SELECT DISTINCT balance FROM account",
            "SELECT * FROM account ORDER BY balance LIMIT 3",
            "SELECT count(*), sum(balance), avg(balance), max(name) FROM account WHERE balance > ?",
            "SELECT count(*) FROM account WHERE id < ?",
            "SELECT * FROM account JOIN line ON line.account = account.id WHERE account.id IN (1, 2, ?)",
            "SELECT * FROM account WHERE EXISTS (SELECT 1 FROM line WHERE account = account.id)",
            "SELECT coalesce(name, ?), length(name), date('now'), abs(balance) FROM account",
            "SELECT id FROM account WHERE id = ? OR name = ?",
            "SELECT name FROM folded WHERE name = ?",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT ?",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1) SELECT count(*) FROM n",
            "VALUES (1), (2)",
        ] {
            assert_eq!(inline(sql), Inline::Read, "{sql}");
        }
    }

    #[test]
    fn small_sorts_are_recognised() {
        for sql in [
            "SELECT * FROM account ORDER BY balance",
            "SELECT balance, count(*) FROM account GROUP BY balance",
            "SELECT id FROM account UNION SELECT n FROM line",
            "SELECT id, row_number() OVER (ORDER BY balance) FROM account",
        ] {
            assert_eq!(inline(sql), Inline::Sort, "{sql}");
        }
    }

    #[test]
    fn reads_with_an_unbounded_step_never_run_inline() {
        for sql in [
            "SELECT count(*) FROM account",
            "SELECT * FROM account WHERE name LIKE ?",
            "SELECT * FROM account WHERE name GLOB ?",
            "SELECT randomblob(?)",
            "SELECT zeroblob(?)",
            "SELECT printf('%*d', ?, 1)",
            "SELECT format(?, 1)",
            "SELECT group_concat(name) FROM account",
            "SELECT json_extract(?, '$')",
            "SELECT ? -> '$.a'",
            "SELECT json_group_array(id) FROM account",
            "SELECT hex(name), quote(name) FROM account",
            "SELECT instr(name, ?) FROM account",
            "SELECT replace(name, ?, ?) FROM account",
            "SELECT trim(name, ?) FROM account",
            "SELECT strftime(?, 'now')",
            "SELECT max(id, balance, ?) FROM account",
            "SELECT name FROM folded ORDER BY name",
            "SELECT junk FROM hostile",
            "SELECT * FROM word WHERE word MATCH ?",
            "SELECT * FROM box WHERE x0 > ?",
            "SELECT * FROM json_each(?)",
            "SELECT * FROM pragma_integrity_check",
            "SELECT soundex(name) FROM account",
            "SELECT load_extension(?)",
        ] {
            assert_eq!(inline(sql), Inline::Never, "{sql}");
        }
    }

    #[test]
    fn a_copy_of_many_values_in_one_step_is_not_inline() {
        let columns = vec!["?1"; 500].join(", ");
        let copied = format!("SELECT * FROM (SELECT {columns} LIMIT 1) UNION ALL SELECT {columns}");
        let db = Connection::open_in_memory().unwrap();
        let sql = format!("EXPLAIN {copied}");
        let mut explain = db.prepare(&sql).unwrap();
        let copies = explain.raw_query().mapped(|step| {
            let code: String = step.get("opcode")?;
            Ok((code, step.get::<_, i64>("p3")?))
        });
        let is_long = |(code, p3): (String, i64)| code == "Copy" && p3 >= COPIES;
        let has_long = copies.map(Result::unwrap).any(is_long);
        assert_eq!(inline(&copied) == Inline::Never, has_long);
    }

    #[test]
    fn writes_of_a_small_row_run_inline() {
        for sql in [
            "INSERT INTO account VALUES (?, ?, ?)",
            "INSERT INTO account (name, balance) VALUES (?, ?) RETURNING id",
            "INSERT INTO line VALUES (?, ?)",
            "INSERT INTO plain VALUES (?, ?)",
            "INSERT INTO log VALUES (?)",
            "UPDATE account SET balance = balance + ? WHERE id = ?",
            "UPDATE account SET balance = ? WHERE id = ?",
            "UPDATE account SET balance = balance - ? WHERE id = ? AND balance >= ? RETURNING name",
            "INSERT INTO account VALUES (?, ?, 1) ON CONFLICT DO NOTHING",
        ] {
            assert_eq!(inline(sql), Inline::Write, "{sql}");
        }
    }

    #[test]
    fn writes_that_may_be_large_never_run_inline() {
        for sql in [
            "UPDATE account SET balance = 0",
            "UPDATE plain SET t = ? WHERE id = ?",
            "DELETE FROM account WHERE id = ?",
            "DELETE FROM log",
            "INSERT INTO log SELECT id FROM account",
            "REPLACE INTO account VALUES (?, ?, ?)",
            "REPLACE INTO plain VALUES (?, ?)",
            "INSERT OR REPLACE INTO plain VALUES (?, ?)",
            "REPLACE INTO line VALUES (?, ?)",
            "INSERT INTO account VALUES (1, 'a', 1) ON CONFLICT (id) DO UPDATE SET balance = 1",
            "INSERT INTO watched VALUES (?)",
            "INSERT INTO counted DEFAULT VALUES",
            "INSERT INTO account VALUES (1, hex(?), 1)",
            "INSERT INTO word VALUES (?)",
            "INSERT INTO stored (big) VALUES (?)",
            "DROP TABLE log",
            "CREATE INDEX by_balance ON account (balance)",
            "VACUUM",
            "BEGIN IMMEDIATE",
        ] {
            assert_eq!(inline(sql), Inline::Never, "{sql}");
        }
    }

    #[test]
    fn plans_say_what_takes_the_lock_and_what_has_a_temporary_tree() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db.execute_batch("CREATE TEMP TABLE own (n)").unwrap();
        let plan = |sql| Plan::of(&db, sql).unwrap();
        assert!(plan("INSERT INTO log VALUES (1)").locks);
        assert!(!plan("INSERT INTO own VALUES (1)").locks);
        assert!(!plan("SELECT * FROM log").locks);
        assert!(plan("INSERT INTO log VALUES (1) RETURNING n").has_ephemeral);
        assert!(!plan("INSERT INTO log VALUES (1)").has_ephemeral);
    }
}
