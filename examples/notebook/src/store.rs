//! The notes, and what a session does with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Notes = BTreeMap<i64, String>;

/// What all sessions share.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// How often they were changed, and the notes.
    notes: Mutex<(u64, Notes)>,
}

/// What one client does with the notes.
#[derive(Debug)]
pub(crate) struct Session {
    store: Arc<Store>,
    transaction: Option<Transaction>,
    /// Kept for this session only.
    remembered: Option<String>,
}

/// A transaction works on a copy, and is refused at its end if others were faster.
#[derive(Debug)]
struct Transaction {
    version: u64,
    notes: Notes,
    changed: bool,
    read_only: bool,
    savepoints: Vec<(String, Notes)>,
}

/// What came of a statement.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The names of its columns; none if it has no rows.
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) affected: u64,
}

/// An SQLSTATE and a message.
pub(crate) type Refusal = (&'static str, String);

/// How many parameters a text takes, and what its rows look like.
pub(crate) fn describe(text: &str) -> Result<(usize, &'static [&'static str]), Refusal> {
    let verb = text.split_whitespace().next().unwrap_or_default();
    Ok(match verb {
        "ADD" => (2, &[]),
        "LIST" => (0, &["id", "name"]),
        "SEVEN" => (0, &["seven"]),
        "RECALL" => (0, &["remembered"]),
        "REMEMBER" | "CLEAR" | "WAIT" | "RESET" | "BEGIN" | "COMMIT" | "ROLLBACK" | "SAVEPOINT"
        | "RELEASE" | "BACK" => (0, &[]),
        _ => return Err(("42601", format!("not understood: {text}"))),
    })
}

impl Session {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Session {
            store: Arc::clone(store),
            transaction: None,
            remembered: None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.transaction.is_some()
    }

    pub(crate) fn run(&mut self, text: &str, params: &[Option<String>]) -> Result<Answer, Refusal> {
        let (wanted, columns) = describe(text)?;
        if wanted != params.len() {
            let message = format!("{wanted} parameters are needed, not {}", params.len());
            return Err(("07001", message));
        }
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        let mut answer = Answer {
            columns,
            ..Answer::default()
        };
        match verb {
            "ADD" => {
                self.add(params)?;
                answer.affected = 1;
            }
            "LIST" => answer.rows = self.list(),
            "SEVEN" => answer.rows = vec![vec!["7".to_owned()]],
            "CLEAR" => answer.affected = self.change(|notes| Ok(std::mem::take(notes).len()))?,
            "REMEMBER" => self.remembered = Some(name.to_owned()),
            "RECALL" => {
                let remembered = self.remembered.clone();
                let remembered = remembered.ok_or(("42P01", "nothing is remembered".to_owned()))?;
                answer.rows = vec![vec![remembered]];
            }
            "RESET" => self.remembered = None,
            "BEGIN" => self.begin(name == "READONLY")?,
            "COMMIT" => self.commit()?,
            "ROLLBACK" => self.transaction = None,
            _ => self.savepoint(verb, name)?,
        }
        Ok(answer)
    }

    fn list(&self) -> Vec<Vec<String>> {
        let row = |(id, name): (&i64, &String)| vec![id.to_string(), name.clone()];
        match &self.transaction {
            Some(transaction) => transaction.notes.iter().map(row).collect(),
            None => {
                let notes = self.store.notes.lock();
                let notes = notes.unwrap_or_else(PoisonError::into_inner);
                notes.1.iter().map(row).collect()
            }
        }
    }

    fn add(&mut self, params: &[Option<String>]) -> Result<(), Refusal> {
        let id = params[0].as_deref().and_then(|id| id.parse::<i64>().ok());
        let id = id.ok_or(("22003", "the first parameter is a number".to_owned()))?;
        let name = params[1].clone();
        let name = name.ok_or(("23502", "a note must have a text".to_owned()))?;
        self.change(|notes| {
            if notes.contains_key(&id) {
                return Err(("23505", format!("there is a note {id} already")));
            }
            notes.insert(id, name);
            Ok(1)
        })?;
        Ok(())
    }

    /// Changes the notes: of the transaction, or of all.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Notes) -> Result<usize, Refusal>,
    ) -> Result<u64, Refusal> {
        let changed = match &mut self.transaction {
            Some(transaction) if transaction.read_only => {
                return Err(("25006", "the transaction is read-only".to_owned()));
            }
            Some(transaction) => {
                transaction.changed = true;
                change(&mut transaction.notes)?
            }
            None => {
                let notes = self.store.notes.lock();
                let (version, notes) = &mut *notes.unwrap_or_else(PoisonError::into_inner);
                *version += 1;
                change(notes)?
            }
        };
        Ok(u64::try_from(changed).unwrap_or(u64::MAX))
    }

    fn begin(&mut self, read_only: bool) -> Result<(), Refusal> {
        if self.is_open() {
            return Err(("25001", "there is a transaction already".to_owned()));
        }
        let notes = self.store.notes.lock();
        let (version, notes) = notes.unwrap_or_else(PoisonError::into_inner).clone();
        self.transaction = Some(Transaction {
            version,
            notes,
            changed: false,
            read_only,
            savepoints: Vec::new(),
        });
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Refusal> {
        let transaction = self.transaction.take();
        let transaction = transaction.ok_or(("25P01", "there is no transaction".to_owned()))?;
        if !transaction.changed {
            return Ok(());
        }
        let notes = self.store.notes.lock();
        let mut notes = notes.unwrap_or_else(PoisonError::into_inner);
        if notes.0 != transaction.version {
            return Err(("40001", "another transaction was faster".to_owned()));
        }
        *notes = (transaction.version + 1, transaction.notes);
        Ok(())
    }

    fn savepoint(&mut self, verb: &str, name: &str) -> Result<(), Refusal> {
        let transaction = self.transaction.as_mut();
        let transaction = transaction.ok_or(("25P01", "there is no transaction".to_owned()))?;
        if verb == "SAVEPOINT" {
            let notes = transaction.notes.clone();
            transaction.savepoints.push((name.to_owned(), notes));
            return Ok(());
        }
        let mut set = transaction.savepoints.iter();
        let at = set.rposition(|(set, _)| set == name);
        let at = at.ok_or_else(|| ("3B001", format!("there is no savepoint {name}")))?;
        let since = transaction.savepoints.split_off(at);
        if let Some((_, notes)) = since.into_iter().next().filter(|_| verb == "BACK") {
            transaction.notes = notes;
        }
        Ok(())
    }
}
