//! The workload file: statements with weights, and what their parameters are drawn from.
//!
//! ```text
//! # Nine reads for each order.
//! param id     = 1 .. 100000
//! param status = 'open', 'paid', 'sent'
//!
//! statement weight 9
//!     SELECT name, price FROM product WHERE id = :id
//!
//! transaction weight 1
//!     UPDATE product SET stock = stock - 1 WHERE id = :id;
//!     INSERT INTO orders (product, status) VALUES (:id, :status)
//! ```
//!
//! A line that begins in the first column says what follows: `param`, `statement` or `transaction`. Indented lines are
//! SQL. In a transaction a semicolon at the end of a line ends a statement. Each execution draws every parameter once, so
//! that `:id` is the same in all statements of a transaction.

use std::fmt;

use cenote::{Named, Value};
use fastrand::Rng;

use crate::words;

/// A file has at most so many bytes, statements and values: more are a mistake, such as the wrong file.
const MOST_BYTES: usize = 1 << 20;
const MOST_OPERATIONS: usize = 1_000;
/// The highest weight: so that the sum fits.
const MOST_WEIGHT: u32 = 1_000_000;

/// What is measured: operations with weights, and the parameters of their statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Where it comes from, for messages: the name of the file.
    pub name: String,
    /// The operations, at least one.
    pub operations: Vec<Operation>,
    parameters: Vec<Parameter>,
    weights: u32,
}

/// One or several statements that are executed together.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The line of the file that it begins at.
    pub line: usize,
    /// How often it is executed, compared with the others.
    pub weight: u32,
    /// Its statements run in a transaction.
    pub is_transaction: bool,
    /// The statements, at least one.
    pub statements: Vec<Statement>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The line of the file that it begins at.
    pub line: usize,
    /// Its text.
    pub sql: String,
    /// Which parameters it uses.
    parameters: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Parameter {
    line: usize,
    name: String,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Range(i64, i64),
    List(Vec<Value<'static>>),
}

/// What is wrong with a workload: the file, the line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError {
    name: String,
    line: usize,
    text: String,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.name, self.text),
            line => write!(out, "{}:{line}: {}", self.name, self.text),
        }
    }
}

impl std::error::Error for WorkloadError {}

/// The values of one execution, by parameter.
pub(crate) type Drawn<'w> = Vec<Value<'w>>;

impl Workload {
    /// Reads a workload. `name` is for messages.
    ///
    /// # Errors
    ///
    /// The first mistake, with its line and what to do.
    pub fn parse(name: &str, text: &str) -> Result<Self, WorkloadError> {
        let mut reader = Reader::default();
        let read = match text.len() > MOST_BYTES {
            true => Err((
                0,
                "it has more than 1 MiB; is it the right file?".to_owned(),
            )),
            false => reader.read(text).and_then(|()| reader.finish()),
        };
        read.map(|workload| Workload {
            name: name.to_owned(),
            ..workload
        })
        .map_err(|(line, text)| WorkloadError {
            name: name.to_owned(),
            line,
            text,
        })
    }

    /// Returns a message about a statement of the file.
    pub(crate) fn error_at(&self, line: usize, text: impl fmt::Display) -> WorkloadError {
        WorkloadError {
            name: self.name.clone(),
            line,
            text: text.to_string(),
        }
    }

    /// Draws an operation by weight.
    pub(crate) fn draw<'w>(&'w self, random: &mut Rng) -> (&'w Operation, Drawn<'w>) {
        let mut at = random.u32(0..self.weights);
        let chosen = self.operations.iter().find(|operation| {
            let is_it = at < operation.weight;
            at = at.saturating_sub(operation.weight);
            is_it
        });
        let operation = chosen.unwrap_or(&self.operations[0]);
        (operation, self.draw_values(random))
    }

    /// Draws a value for every parameter.
    pub(crate) fn draw_values<'w>(&'w self, random: &mut Rng) -> Drawn<'w> {
        let values = self
            .parameters
            .iter()
            .map(|parameter| match &parameter.values {
                Values::Range(from, to) => Value::Int(random.i64(*from..=*to)),
                Values::List(values) => values[random.usize(..values.len())].as_borrowed(),
            });
        values.collect()
    }

    /// Returns the parameters of a statement.
    pub(crate) fn bind<'w>(&'w self, statement: &'w Statement, drawn: &Drawn<'w>) -> Named<'w> {
        let used = statement.parameters.iter();
        used.fold(Named::new(), |named, &at| {
            named.with(self.parameters[at].name.as_str(), drawn[at].clone())
        })
    }
}

type Wrong = (usize, String);

/// The file as far as it was read.
#[derive(Default)]
struct Reader {
    parameters: Vec<Parameter>,
    blocks: Vec<Block>,
}

/// An operation with its lines.
struct Block {
    line: usize,
    weight: u32,
    is_transaction: bool,
    /// The lines with their numbers.
    lines: Vec<(usize, String)>,
}

impl Reader {
    fn read(&mut self, text: &str) -> Result<(), Wrong> {
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            let line = match number {
                // Some editors write a mark.
                1 => line.trim_start_matches('\u{feff}'),
                _ => line,
            };
            let wrong = |text| Err((number, text));
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                match self.blocks.last_mut() {
                    Some(block) => block.lines.push((number, line.trim_end().to_owned())),
                    None => {
                        return wrong(
                            "indented SQL needs a line 'statement' or 'transaction' above it"
                                .to_owned(),
                        );
                    }
                }
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            match word {
                "param" => {
                    let parameter = parameter(number, rest).map_err(|text| (number, text))?;
                    if let Some(other) = self.parameters.iter().find(|it| it.name == parameter.name)
                    {
                        let (name, line) = (&parameter.name, other.line);
                        return wrong(format!(
                            "param {name} is given twice, first in line {line}; remove one"
                        ));
                    }
                    self.parameters.push(parameter);
                }
                "statement" | "transaction" => {
                    if self.blocks.len() == MOST_OPERATIONS {
                        return wrong(format!(
                            "more than {MOST_OPERATIONS} statements; keep the most frequent"
                        ));
                    }
                    self.blocks.push(Block {
                        line: number,
                        weight: weight(rest).map_err(|text| (number, text))?,
                        is_transaction: word == "transaction",
                        lines: Vec::new(),
                    });
                }
                _ => return wrong(unknown_word(word)),
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Workload, Wrong> {
        let mut used = vec![false; self.parameters.len()];
        let mut operations = Vec::new();
        for block in &self.blocks {
            let statements = self.statements(block, &mut used)?;
            operations.push(Operation {
                line: block.line,
                weight: block.weight,
                is_transaction: block.is_transaction,
                statements,
            });
        }
        if operations.is_empty() {
            let text =
                "it has no statement; write a line 'statement' and the SQL indented below it";
            return Err((0, text.to_owned()));
        }
        if let Some(at) = used.iter().position(|used| !used) {
            let Parameter { line, name, .. } = &self.parameters[at];
            return Err((
                *line,
                format!("no statement uses :{name}; remove the param, or correct its name"),
            ));
        }
        Ok(Workload {
            name: String::new(),
            weights: operations.iter().map(|operation| operation.weight).sum(),
            operations,
            parameters: std::mem::take(&mut self.parameters),
        })
    }

    fn statements(&self, block: &Block, used: &mut [bool]) -> Result<Vec<Statement>, Wrong> {
        let mut statements = Vec::new();
        let mut open: Option<(usize, String)> = None;
        for (number, line) in &block.lines {
            let (_, sql) = open.get_or_insert_with(|| (*number, String::new()));
            if !sql.is_empty() {
                sql.push('\n');
            }
            sql.push_str(line.trim());
            if line.ends_with(';') {
                statements.extend(open.take());
            }
        }
        statements.extend(open);
        let kind = match block.is_transaction {
            true => "transaction",
            false => "statement",
        };
        match (statements.len(), block.is_transaction) {
            (0, _) => {
                return Err((
                    block.line,
                    format!("the {kind} has no SQL; write it indented below this line"),
                ));
            }
            (2.., false) => {
                let text = "a second statement begins here; give it a line 'statement' of its own, or write \
                            'transaction' for both";
                return Err((statements[1].0, text.to_owned()));
            }
            _ => {}
        }
        let statements = statements.into_iter().map(|(line, sql)| {
            let sql = sql.trim_end_matches(';').trim_end().to_owned();
            if sql.is_empty() {
                return Err((
                    line,
                    "a semicolon without a statement; remove it".to_owned(),
                ));
            }
            if let Some(word) = words::controls_session(&sql) {
                let text = match block.is_transaction {
                    true => format!(
                        "{word} is not needed: the block is a transaction already; remove it"
                    ),
                    false => format!(
                        "{word} does not fit here: write 'transaction' and its statements below"
                    ),
                };
                return Err((line, text));
            }
            let parameters = self.used_in(line, &sql)?;
            parameters.iter().for_each(|&at| used[at] = true);
            Ok(Statement {
                line,
                sql,
                parameters,
            })
        });
        statements.collect()
    }

    fn used_in(&self, line: usize, sql: &str) -> Result<Vec<usize>, Wrong> {
        let mut found = Vec::new();
        for (newlines, name) in words::placeholders(sql) {
            let at = self
                .parameters
                .iter()
                .position(|parameter| parameter.name == name);
            let Some(at) = at else {
                let text = match name {
                    "?" => "parameters have names: write :id in place of ?, and a line 'param id = 1 .. 1000'".to_owned(),
                    name => format!(":{name} has no values; add a line 'param {name} = 1 .. 1000'"),
                };
                return Err((line + newlines, text));
            };
            if !found.contains(&at) {
                found.push(at);
            }
        }
        Ok(found)
    }
}

fn unknown_word(word: &str) -> String {
    let shown: String = word.chars().take(30).collect();
    let upper = word.to_ascii_uppercase();
    match words::STATEMENTS.contains(&upper.as_str()) {
        true => "SQL is indented, below a line 'statement' or 'transaction'".to_owned(),
        false => format!(
            "'{shown}' is no beginning of a line; it can be param, statement, transaction or #"
        ),
    }
}

fn weight(rest: &str) -> Result<u32, String> {
    if rest.is_empty() {
        return Ok(1);
    }
    let number = rest.strip_prefix("weight").map(str::trim);
    let number = number.and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=MOST_WEIGHT).contains(number))
        .ok_or_else(|| {
            format!(
                "after the word comes nothing, or 'weight' and a number from 1 to {MOST_WEIGHT}"
            )
        })
}

fn parameter(line: usize, rest: &str) -> Result<Parameter, String> {
    let usage = "a param is 'param id = 1 .. 1000' or 'param status = 'open', 'paid''";
    let (name, values) = rest.split_once('=').ok_or(usage)?;
    let name = name.trim().trim_start_matches(':');
    if name.is_empty()
        || !name.chars().all(words::is_part_of_name)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(format!(
            "the name of a param has letters, digits and _; {usage}"
        ));
    }
    let values = match values.split_once("..") {
        Some((from, to)) if !values.contains('\'') => range(from, to)?,
        _ => Values::List(list(values)?),
    };
    Ok(Parameter {
        line,
        name: name.to_owned(),
        values,
    })
}

fn range(from: &str, to: &str) -> Result<Values, String> {
    let number = |text: &str| {
        let text = text.trim().replace('_', "");
        text.parse::<i64>()
            .map_err(|_| format!("'{text}' is no whole number; a range is '1 .. 1000'"))
    };
    let (from, to) = (number(from)?, number(to)?);
    match from <= to {
        true => Ok(Values::Range(from, to)),
        false => Err(format!(
            "the range is empty: {from} is more than {to}; swap them"
        )),
    }
}

/// Reads values with commas between them: numbers, and texts in single quotes.
fn list(text: &str) -> Result<Vec<Value<'static>>, String> {
    let mut values = Vec::new();
    let mut rest = text.trim();
    loop {
        let (value, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted_text(quoted)?,
            None => {
                let (word, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                (bare(word.trim())?, after)
            }
        };
        values.push(value);
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if after.is_empty() => return Ok(values),
            None => return Err("between two values stands a comma".to_owned()),
        }
    }
}

/// Reads a text up to its closing quote. Two quotes are one inside the text.
fn quoted_text(quoted: &str) -> Result<(Value<'static>, &str), String> {
    let mut text = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match (letter, letters.peek()) {
            ('\'', Some((_, '\''))) => {
                letters.next();
                text.push('\'');
            }
            ('\'', _) => return Ok((Value::from(text), &quoted[at + 1..])),
            _ => text.push(letter),
        }
    }
    Err("a text has no closing quote".to_owned())
}

fn bare(word: &str) -> Result<Value<'static>, String> {
    if let Ok(number) = word.parse() {
        return Ok(Value::Int(number));
    }
    match word.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Value::Float(number)),
        _ if word.is_empty() => {
            Err("a value is missing; remove the comma, or add the value".to_owned())
        }
        _ => Err(format!(
            "'{word}' is no number; texts stand in single quotes: '{word}' with quotes around it"
        )),
    }
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
