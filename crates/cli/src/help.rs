//! What `--help` prints.

/// `cenote --help`.
pub(crate) const CENOTE: &str = "\
cenote: checks, migrates, measures and stresses databases

Usage:
  cenote check DSN         connects, and shows version, login, TLS, latency and
                           settings of a database; see cenote check --help
  cenote migrate DIR       applies the migrations of a folder to a database; see
                           cenote migrate --help
  cenote size --dsn DSN    measures how many connections a pool should have; see
                           cenote size --help
  cenote [options]         a bank on a temporary SQLite file, or on --dsn
  cenote run [options]     the same, with CENOTE_DSN as the default of --dsn
  cenote chaos [options]   the same while sessions are killed, the network is
                           cut, slow or silent, the server restarted, killed or
                           frozen, and the pool exhausted, resized, closed and
                           opened; at quiet moments it looks for every transfer

In the bank hundreds of tasks transfer money between accounts through one shared
Db. Some panic in the middle of a transaction, some are aborted or cut off at
any point, some forget to commit, some are refused, some use savepoints. At the
end the command verifies that not a cent was lost and that the pool is whole.

Options:
  --dsn DSN      the database, such as sqlite:/path/bank.db
  --tasks N      how many tasks share the Db (300)
  --max N        how many connections it may have (5)
  --seconds N    for how long; 0.5 is fine (5; chaos: 60)
  --accounts N   how many accounts there are, with 1,000.00 each (100)
  --seed N       plans every task in the same way again (random)
  --server CMD   for chaos: a shell command that becomes the server of --dsn, in
                 the foreground; it is started, killed and started again.
                 Without it the server's process is left alone
  --cluster      for chaos: instead of --dsn a PostgreSQL primary and two
                 standbys in a temporary directory; the primary is killed,
                 frozen and switched over, and all hosts restart in turn. It
                 needs the programs of PostgreSQL 13 or newer
  --share-connections
                 for chaos: short reads of several tasks share a connection of
                 PostgreSQL
  --only KINDS   for chaos: only these faults, with commas between them; a wrong
                 one gives the list
  --report FILE  writes an HTML page with throughput, waits and connections
                 over time, and the faults as bands
  --page         a live page about the pool on this machine, at the address that
                 standard error says; it lasts an hour without --seconds, or
                 until Ctrl-C
  --json         no live view: the summary as one JSON object
  --keep         leave the tables in the database
  --force        drop tables of the same names that are in the way
  -h, --help     this text
  -V, --version  the version

Environment:
  CENOTE_DSN       the database, if --dsn is not given (not for cenote without a
                   command); unlike an argument it is not seen in the list of
                   processes
  CENOTE_USER      the user, instead of the one in the DSN
  CENOTE_PASSWORD  the password, instead of the one in the DSN
  NO_COLOR         no colours

The tables are cenote_bank_account and cenote_bank_run, for chaos also
cenote_bank_ledger. One connection more than --max reads the books from outside
of the pool. If a check fails the tables stay.

Ctrl-C stops the tasks, checks and prints the summary; a second one ends at
once.

Exit codes:
  0    not a cent is missing and the pool is whole, after Ctrl-C as well
  1    money is missing, the pool is not whole, or writes came back too late
  2    wrong usage
  3    the database cannot be reached, or refuses
  4    something else: no temporary file, the output cannot be written
  130  ended by a second Ctrl-C, nothing checked

Fields of --json (times in milliseconds, money in cents):
  ok  database  driver  seed  tasks  max  accounts  seconds  interrupted
  committed  per_second  transfers  savepoints_undone
  rolled_back   total  error  panic  cancel  forgotten  database
  not_begun     cancelled  no_connection
  unknown       transactions cancelled in the middle of their commit
  complaint     the last error that was not planned, or null
  wait_ms       mean  p99  max
  pool          acquired  waited  timed_out  cancelled  created  create_failed
                destroyed  total  idle  active  creating  waiting
  money         before  after  lowest  audits
  checks        a list of  name  ok  says
  chaos         only there with chaos:
                faults (a list of  kind  count  recovery_mean_ms
                recovery_max_ms)  sessions_killed  left_out  quiet_moments
                transfers (acknowledged  rolled_back  unknown
                unknown_committed)  looks  marks  shared_reads  visit_ms (mean
                p99  max)
                cluster, only there with --cluster:
                failovers (a list of  kind  count  writes_back_median_ms
                writes_back_max_ms)  errors and errors_in_rolls
                (outcome_unknown  transactions_cut  calls_cut  conflicts
                others: count  first)
  kept          where the tables were left, or null
";

/// `cenote migrate --help`.
pub(crate) const MIGRATE: &str = "\
cenote migrate: applies the migrations of a folder to a database

Usage:
  cenote migrate --dsn DSN DIR             applies what is pending
  cenote migrate --dsn DSN --dry-run DIR   shows what would be applied
  cenote migrate --dsn DSN --status DIR    shows every migration and its state

The files are named like V1__create_users.sql, as refinery has them. Each is
applied once, in order, even if several programs migrate at the same time. The
table refinery_schema_history records them.

Options:
  --dsn DSN     the database (CENOTE_DSN)
  --table NAME  the table of the history (refinery_schema_history)
  --status      apply nothing; show which migrations are applied and pending
  --dry-run     apply nothing; show what would be applied
  --json        one JSON object
  -h, --help    this text

CENOTE_DSN, CENOTE_USER and CENOTE_PASSWORD are as in cenote --help.

Exit codes:
  0    everything is applied, or shown
  1    a migration failed, or the files contradict the history
  2    wrong usage
  3    the database cannot be reached, or refuses
  130  ended by Ctrl-C; what was under way is rolled back where it can be

Fields of --json:
  applied     a list of  file  ms
  migrations  with --status and --dry-run: a list of  file  version  state
              (applied, pending, changed, renamed, missing, out_of_order)
              applied_on
  error       null, or what went wrong
";

/// `cenote check --help`.
pub(crate) const CHECK: &str = "\
cenote check: connects to a database and shows what matters about it

Usage:
  cenote check [DSN]   the default is CENOTE_DSN

It shows the version of the server, the user, the database, whether the
connection is encrypted and the server verified, the time of a round trip, the
settings that matter, and what is odd about them. It changes nothing.

Options:
  --dsn DSN   the database, as an option
  --json      one JSON object
  -h, --help  this text

CENOTE_DSN, CENOTE_USER and CENOTE_PASSWORD are as in cenote --help.

Exit codes:
  0  it can be used
  2  wrong usage, or the DSN is wrong
  3  it cannot be reached: refused, unknown host, no answer in time
  5  the login was refused: password, user or database
  6  TLS failed: the server has none, or its certificate is not trusted
  7  something else went wrong after the login

Fields of --json (times in milliseconds):
  ok  database  driver  server  user  name
  tls         null without encryption:  protocol  verified (nothing,
              certificate, host)
  connect_ms
  latency_ms  median  min  max
  settings    an object
  notes       a list of texts
  error       null, or  cause (usage, unreachable, login, tls, other)  message
";

/// `cenote size --help`.
pub(crate) const SIZE: &str = "\
cenote size: measures how many connections a pool should have

Usage:
  cenote size --dsn DSN --workload FILE   with your statements
  cenote size --dsn DSN                   with a bank on tables of its own
  cenote size                             with a bank on a temporary SQLite file

It executes the statements through pools of growing size, finds the size from
which on throughput no longer grows, measures the sizes around it repeatedly in
random order, and says what the limit is. At the end nothing is left: no table,
file or connection.

Options:
  --dsn DSN       the database (CENOTE_DSN)
  --workload FILE the statements; see below
  --allow-writes  the statements may write; without it sessions are read-only
  --max N         the largest size (64; SQLite: 16; or what the server allows)
  --clients N     how many tasks share the pool (twice the largest size)
  --seconds N     for how long at most (60)
  --instances N   how many instances of the program share the database (1)
  --replicas N    over how many servers like this one statements are spread (1)
  --report FILE   writes an HTML page with the curves
  --json          no live view: the result as one JSON object
  --seed N        the same order and parameters again (random)
  --force         drop tables of the bank's names that are in the way
  -h, --help      this text

A workload has a line for each parameter and a block for each statement:

  # Nine reads for each order. A line that begins with # is a comment.
  param id     = 1 .. 100000
  param status = 'open', 'paid', 'sent'

  statement weight 9
      SELECT name, price FROM product WHERE id = :id

  transaction weight 1
      UPDATE product SET stock = stock - 1 WHERE id = :id;
      INSERT INTO orders (product, status) VALUES (:id, :status)

SQL is indented. Weights are how often, compared with the others (1). In a
transaction a semicolon at the end of a line ends a statement. A parameter is a
whole number of a range, or one of a list of numbers and texts in quotes. Before
the measurement every statement is tried once, and rolled back.

CENOTE_DSN, CENOTE_USER and CENOTE_PASSWORD are as in cenote --help.

Ctrl-C stops, and reports what there is; a second one ends at once.

Exit codes:
  0    there is a recommendation
  1    there was too much noise or too little time for a verdict
  2    wrong usage, or the workload is wrong
  3    the database cannot be reached, or refuses
  4    something else: the output cannot be written
  130  ended by a signal before there was anything to report

Fields of --json (times in milliseconds, null for what is unknown):
  ok  database  driver  workload  read_only  clients  seconds  interrupted
  processors     of this machine
  sizes          a list of  size  measurements  throughput  throughput_low
                 throughput_high  statement_ms (p50  p99)  wait_ms (p50  p99)
                 busy  waiting  failed
                 client_cpu   processors that this program used
                 machine_cpu  the busy share of this machine, from 0 to 1
                 activity     sessions of the server that were, on average, on
                              cpu  in locks  on disk  sleeping  other
                 waiting_to_write  server_work  server_reads
  knee           connections  low  high  confidence  noise  is_reached, or null
  limit          client_cpu, server_cpu, locks, disk, one_writer, not_reached,
                 unknown
  evidence       how the limit shows
  recommendation max  total  instances  replicas  reason  setting, or null
  notes          a list of texts
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_fits_a_terminal() {
        for text in [CENOTE, MIGRATE, CHECK, SIZE] {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
