//! A script, taken apart into its statements.

use super::dialect::Dialect;
use super::lexer::Lexer;
use super::statement::Statement;

/// The statements of a text one by one, as they stand there, without what is between them: semicolons
/// and comments.
pub(crate) fn split<'a>(dialect: &Dialect, sql: &'a str) -> Vec<&'a str> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut current = Statement::new(dialect, sql);
    let mut statements = Vec::new();
    // From its first token to its last.
    let mut span: Option<(usize, usize)> = None;
    while let Some(token) = lexer.next() {
        if token.is_symbol(b';') && current.ends_with_semicolon() {
            statements.extend(span.take().map(|(start, end)| &sql[start..end]));
            current.restart();
        } else {
            let (start, _) = span.unwrap_or((token.start, token.end));
            span = Some((start, token.end));
            current.take(&token);
        }
    }
    statements.extend(span.map(|(start, end)| &sql[start..end]));
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_splits_at_semicolons_between_statements() {
        let script =
            "INSERT INTO t VALUES (';'); -- a; b\n ;\n SELECT /* c; */ \"a;b\" FROM t; -- d";
        assert_eq!(
            split(&Dialect::ODBC, script),
            [
                "INSERT INTO t VALUES (';')",
                "SELECT /* c; */ \"a;b\" FROM t"
            ]
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
