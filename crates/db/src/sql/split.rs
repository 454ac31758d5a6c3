//! A script, taken apart into its statements.

use super::dialect::Dialect;
use super::lexer::Lexer;
use super::statement::Statement;

/// The statements of a text one by one, as they stand there, without the semicolons between them.
pub(crate) fn split<'a>(dialect: &Dialect, sql: &'a str) -> Vec<&'a str> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut current = Statement::new(dialect, sql);
    let mut statements = Vec::new();
    let mut start = 0;
    let mut end_at = |start: usize, end: usize, is_empty: bool| {
        if !is_empty {
            statements.push(sql[start..end].trim());
        }
    };
    while let Some(token) = lexer.next() {
        if token.is_symbol(b';') && current.ends_with_semicolon() {
            end_at(start, token.start, current.is_empty());
            start = token.end;
            current.restart();
        } else {
            current.take(&token);
        }
    }
    end_at(start, sql.len(), current.is_empty());
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_apart_at_the_semicolons_between_its_statements() {
        let script = "INSERT INTO t VALUES (';'); -- a; b\n ;\n SELECT \"a;b\" FROM t;";
        assert_eq!(
            split(&Dialect::ODBC, script),
            ["INSERT INTO t VALUES (';')", "SELECT \"a;b\" FROM t"]
        );
        assert_eq!(split(&Dialect::ODBC, " ; "), [""; 0]);
    }

    #[test]
    fn the_body_of_a_trigger_stays_whole_where_there_are_such() {
        let trigger = "CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; DELETE FROM v; END";
        let script = format!("{trigger}; SELECT 1");
        assert_eq!(split(&Dialect::SQLITE, &script), [trigger, "SELECT 1"]);
    }
}
