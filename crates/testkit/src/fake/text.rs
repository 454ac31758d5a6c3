//! The few texts that the fake understands. See the [table](crate::Fake#texts).

use std::borrow::Cow;

use cenote::driver::Value;

/// The request that a text contains.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    Begin,
    Commit,
    RollBack,
    SetSavepoint(String),
    ReleaseSavepoint(String),
    RollBackTo(String),
    Create {
        table: String,
        columns: Vec<ColumnRule>,
    },
    Drop(String),
    Insert {
        table: String,
        rows: Vec<Vec<Item>>,
    },
    Select {
        items: Vec<Selected>,
        from: Option<String>,
    },
    Delete(String),
    /// An error with this SQLSTATE.
    Fail(String),
    /// Anything else.
    Other,
}

/// A column of a table that was created.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ColumnRule {
    pub(super) name: String,
    pub(super) is_unique: bool,
    pub(super) is_not_null: bool,
}

/// A value in a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// The parameter at this position, from 0.
    Param(usize),
    Value(Value<'static>),
}

/// What is selected.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selected {
    pub(super) name: String,
    pub(super) what: Selection,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Selection {
    All,
    Count,
    Item(Item),
    /// The value at the position where its name stands in the text.
    Column,
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) statements: Vec<Statement>,
    /// How many placeholders there are in it.
    pub(super) params: usize,
}

/// Reads a text.
pub(super) fn read(sql: &str) -> Text {
    let tokens = tokens(sql);
    let is_end = |token: &Token| *token == Token::Symbol(';');
    let statements = tokens
        .split(is_end)
        .filter(|tokens| !tokens.is_empty())
        .map(|tokens| Reader { tokens, at: 0 }.statement())
        .collect();
    let params = tokens
        .iter()
        .filter(|token| matches!(token, Token::Param(_)));
    Text {
        statements,
        params: params.count(),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, a keyword or a number.
    Word(String),
    Quoted(String),
    Param(usize),
    Symbol(char),
}

fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut params = 0..;
    let mut rest = sql.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            space if space.is_whitespace() => {}
            '\'' => {
                let mut text = String::new();
                while let Some(letter) = rest.next() {
                    if letter != '\'' {
                        text.push(letter);
                    } else if rest.next_if_eq(&'\'').is_some() {
                        text.push('\'');
                    } else {
                        break;
                    }
                }
                tokens.push(Token::Quoted(text));
            }
            '?' => tokens.extend(params.next().map(Token::Param)),
            letter if is_word(letter) || letter == '-' => {
                let mut word = String::from(letter);
                while let Some(letter) = rest.next_if(|letter| is_word(*letter)) {
                    word.push(letter);
                }
                tokens.push(Token::Word(word));
            }
            symbol => tokens.push(Token::Symbol(symbol)),
        }
    }
    tokens
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.')
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl Reader<'_> {
    fn statement(mut self) -> Statement {
        self.known().unwrap_or(Statement::Other)
    }

    /// `None` for anything that is not exactly one of the texts in the table.
    fn known(&mut self) -> Option<Statement> {
        let first = self.word()?.to_ascii_uppercase();
        let statement = match first.as_str() {
            // The rest of these does not matter.
            "FAIL" => {
                let state = self.word().unwrap_or_else(|| "HY000".to_owned());
                return Some(Statement::Fail(state));
            }
            "BEGIN" | "START" => return Some(Statement::Begin),
            "COMMIT" | "END" => return Some(Statement::Commit),
            "ABORT" => return Some(Statement::RollBack),
            "CREATE" => return self.create(),
            "ROLLBACK" => match self.keyword("TO") {
                Some(()) => {
                    let _ = self.keyword("SAVEPOINT");
                    Statement::RollBackTo(self.word()?)
                }
                None => return Some(Statement::RollBack),
            },
            "SAVEPOINT" => Statement::SetSavepoint(self.word()?),
            "RELEASE" => {
                let _ = self.keyword("SAVEPOINT");
                Statement::ReleaseSavepoint(self.word()?)
            }
            "DROP" => {
                self.keyword("TABLE")?;
                Statement::Drop(self.word()?)
            }
            "INSERT" => self.insert()?,
            "SELECT" => self.select()?,
            "DELETE" => {
                self.keyword("FROM")?;
                Statement::Delete(self.word()?)
            }
            _ => return None,
        };
        (self.at == self.tokens.len()).then_some(statement)
    }

    fn create(&mut self) -> Option<Statement> {
        self.keyword("TABLE")?;
        let table = self.word()?;
        self.symbol('(')?;
        let rest = self
            .tokens
            .get(self.at..self.tokens.len().checked_sub(1)?)?;
        let mut depth = 0_i32;
        let columns = rest.split(|token| {
            match token {
                Token::Symbol('(') => depth += 1,
                Token::Symbol(')') => depth -= 1,
                _ => {}
            }
            depth == 0 && *token == Token::Symbol(',')
        });
        let columns = columns.map(|tokens| Reader { tokens, at: 0 }.column());
        Some(Statement::Create {
            table,
            columns: columns.collect::<Option<_>>()?,
        })
    }

    fn column(&mut self) -> Option<ColumnRule> {
        let name = self.word()?;
        let has = |one: &str, two: Option<&str>| {
            let is = |token: &Token, word: &str| matches!(token, Token::Word(it) if it.eq_ignore_ascii_case(word));
            let mut pairs = self.tokens.iter().zip(self.tokens.iter().skip(1));
            match two {
                Some(two) => pairs.any(|(first, second)| is(first, one) && is(second, two)),
                None => self.tokens.iter().any(|token| is(token, one)),
            }
        };
        let is_primary = has("PRIMARY", Some("KEY"));
        Some(ColumnRule {
            is_unique: is_primary || has("UNIQUE", None),
            is_not_null: is_primary || has("NOT", Some("NULL")),
            name,
        })
    }

    fn insert(&mut self) -> Option<Statement> {
        self.keyword("INTO")?;
        let table = self.word()?;
        self.keyword("VALUES")?;
        let mut rows = Vec::new();
        loop {
            self.symbol('(')?;
            rows.push(self.list(Self::item)?);
            self.symbol(')')?;
            if self.symbol(',').is_none() {
                break;
            }
        }
        Some(Statement::Insert { table, rows })
    }

    fn select(&mut self) -> Option<Statement> {
        let items = self.list(Self::selected)?;
        let from = match self.keyword("FROM") {
            Some(()) => Some(self.word()?),
            None => None,
        };
        if from.is_some() && self.keyword("ORDER").is_some() {
            self.keyword("BY")?;
            self.list(Self::word)?;
        }
        let needs_table = |selected: &Selected| !matches!(selected.what, Selection::Item(_));
        let is_alone = items.len() == 1;
        let is_whole =
            |selected: &Selected| matches!(selected.what, Selection::All | Selection::Count);
        if from.is_none() && items.iter().any(needs_table)
            || !is_alone && items.iter().any(is_whole)
        {
            return None;
        }
        Some(Statement::Select { items, from })
    }

    fn selected(&mut self) -> Option<Selected> {
        let start = self.at;
        let (mut name, what) = if self.symbol('*').is_some() {
            ("*".to_owned(), Selection::All)
        } else if self.keyword("COUNT").is_some() {
            self.symbol('(')?;
            self.symbol('*')?;
            self.symbol(')')?;
            ("count".to_owned(), Selection::Count)
        } else if let Some(item) = self.item() {
            let name = match self.tokens.get(start)? {
                Token::Word(text) | Token::Quoted(text) => text.clone(),
                _ => "?".to_owned(),
            };
            (name, Selection::Item(item))
        } else {
            (self.word()?, Selection::Column)
        };
        if self.keyword("AS").is_some() {
            name = self.word()?;
        }
        Some(Selected { name, what })
    }

    /// A value, unless it is a name.
    fn item(&mut self) -> Option<Item> {
        let value = match self.tokens.get(self.at)? {
            Token::Param(position) => {
                self.at += 1;
                return Some(Item::Param(*position));
            }
            Token::Quoted(text) => Value::Text(Cow::Owned(text.clone())),
            Token::Word(word) => literal(word)?,
            Token::Symbol(_) => return None,
        };
        self.at += 1;
        Some(Item::Value(value))
    }

    /// One or more of these, with commas between them.
    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = vec![one(self)?];
        while self.symbol(',').is_some() {
            all.push(one(self)?);
        }
        Some(all)
    }

    fn word(&mut self) -> Option<String> {
        let Token::Word(word) = self.tokens.get(self.at)? else {
            return None;
        };
        self.at += 1;
        Some(word.clone())
    }

    fn keyword(&mut self, keyword: &str) -> Option<()> {
        let Token::Word(word) = self.tokens.get(self.at)? else {
            return None;
        };
        let is_it = word.eq_ignore_ascii_case(keyword);
        self.at += usize::from(is_it);
        is_it.then_some(())
    }

    fn symbol(&mut self, symbol: char) -> Option<()> {
        let is_it = *self.tokens.get(self.at)? == Token::Symbol(symbol);
        self.at += usize::from(is_it);
        is_it.then_some(())
    }
}

fn literal(word: &str) -> Option<Value<'static>> {
    if word.eq_ignore_ascii_case("NULL") {
        return Some(Value::Null);
    }
    if word.eq_ignore_ascii_case("TRUE") || word.eq_ignore_ascii_case("FALSE") {
        return Some(Value::Bool(word.len() == 4));
    }
    if !word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    let int = word.parse().map(Value::Int);
    int.or_else(|_| word.parse().map(Value::Float)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(sql: &str) -> Statement {
        let mut text = read(sql);
        assert_eq!(text.statements.len(), 1, "{sql}");
        text.statements.remove(0)
    }

    #[test]
    fn values_may_be_literals_or_placeholders() {
        let Statement::Insert { table, rows } =
            one("INSERT INTO t VALUES (?, -7, 'it''s', NULL), (TRUE, ?, 1.5, 0)")
        else {
            panic!("not an insert");
        };
        assert_eq!(table, "t");
        let text = Value::Text("it's".into());
        assert_eq!(
            rows[0],
            [
                Item::Param(0),
                Item::Value(Value::Int(-7)),
                Item::Value(text),
                Item::Value(Value::Null)
            ]
        );
        assert_eq!(rows[1][0], Item::Value(Value::Bool(true)));
        assert_eq!(rows[1][1], Item::Param(1));
        assert_eq!(rows[1][2], Item::Value(Value::Float(1.5)));
    }

    #[test]
    fn a_table_is_created_with_its_rules() {
        let sql =
            "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL, n DECIMAL(9, 2))";
        let Statement::Create { table, columns } = one(sql) else {
            panic!("not a table");
        };
        assert_eq!(table, "t");
        let rules: Vec<_> = columns
            .iter()
            .map(|rule| (rule.name.as_str(), rule.is_unique, rule.is_not_null))
            .collect();
        assert_eq!(
            rules,
            [
                ("id", true, true),
                ("name", false, true),
                ("n", false, false)
            ]
        );
    }

    #[test]
    fn transaction_control_is_understood_in_all_its_forms() {
        assert_eq!(one("begin immediate"), Statement::Begin);
        assert_eq!(one("START TRANSACTION READ ONLY"), Statement::Begin);
        assert_eq!(one("END"), Statement::Commit);
        assert_eq!(one("ROLLBACK"), Statement::RollBack);
        assert_eq!(one("SAVEPOINT a"), Statement::SetSavepoint("a".into()));
        for sql in ["ROLLBACK TO a", "ROLLBACK TO SAVEPOINT a"] {
            assert_eq!(one(sql), Statement::RollBackTo("a".into()));
        }
        for sql in ["RELEASE a", "release savepoint a"] {
            assert_eq!(one(sql), Statement::ReleaseSavepoint("a".into()));
        }
    }

    #[test]
    fn script_splits_at_semicolons_outside_of_literals() {
        let text = read("INSERT INTO t VALUES ('a;b'); DELETE FROM t;; COMMIT;");
        assert_eq!(text.statements.len(), 3);
        assert_eq!(text.statements[2], Statement::Commit);
    }

    #[test]
    fn a_text_that_is_nearly_understood_is_none_of_those_that_are() {
        for sql in [
            "DELETE FROM t WHERE id = 1",
            "SELECT a FROM t WHERE id = ?",
            "SELECT a, * FROM t",
            "SELECT now()",
            "SELECT a",
            "INSERT INTO t SELECT 1",
            "UPDATE t SET a = 1",
        ] {
            assert_eq!(one(sql), Statement::Other, "{sql}");
        }
    }

    #[test]
    fn what_is_selected_has_a_name() {
        let Statement::Select { items, from } = one("SELECT 7 AS n, ?, 'x' ") else {
            panic!("not a select");
        };
        let names: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!((names, from), (vec!["n", "?", "x"], None));
        let Statement::Select { items, from } = one("select id, name from t order by id") else {
            panic!("not a select");
        };
        assert_eq!((items.len(), from.as_deref()), (2, Some("t")));
        assert_eq!(items[1].what, Selection::Column);
    }

    #[test]
    fn every_placeholder_is_counted_whatever_the_text() {
        assert_eq!(read("UPDATE t SET a = ? WHERE b = ? AND c = '?'").params, 2);
    }

    #[test]
    fn a_failure_has_the_state_that_it_is_given() {
        assert_eq!(one("FAIL 40001"), Statement::Fail("40001".into()));
        assert_eq!(one("fail"), Statement::Fail("HY000".into()));
    }
}
