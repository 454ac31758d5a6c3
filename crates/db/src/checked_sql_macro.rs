//! The macro that registers a statement where it is written.

/// Returns a statement as text, and registers it for [`checked_sql::check`](crate::checked_sql::check).
///
/// The text is a literal or another constant. Types of parameters and columns may be declared; then their numbers are
/// compared as well, and on PostgreSQL the types:
///
/// ```
/// use cenote::sql;
///
/// let all = sql!("SELECT id, name FROM customer");
/// let renamed = sql!("UPDATE customer SET name = ? WHERE id = ?", (&str, i64));
/// let one = sql!("SELECT name, email FROM customer WHERE id = ?", (i64) -> (String, Option<String>));
/// let names = sql!("SELECT name FROM customer", () -> (String));
/// assert_eq!(names, "SELECT name FROM customer");
/// ```
///
/// The types that can be declared implement [`SqlType`](crate::checked_sql::SqlType). Without the feature `check` the macro
/// only returns the text.
#[cfg(feature = "check")]
#[macro_export]
macro_rules! sql {
    ($sql:expr $(,)?) => {
        $crate::sql!(@ $sql, ::core::option::Option::None, ::core::option::Option::None)
    };
    ($sql:expr, ($($param:ty),* $(,)?) $(,)?) => {
        $crate::sql!(
            @ $sql,
            ::core::option::Option::Some(&[$(<$param as $crate::checked_sql::SqlType>::TYPE),*]),
            ::core::option::Option::None
        )
    };
    ($sql:expr, ($($param:ty),* $(,)?) -> ($($column:ty),* $(,)?) $(,)?) => {
        $crate::sql!(
            @ $sql,
            ::core::option::Option::Some(&[$(<$param as $crate::checked_sql::SqlType>::TYPE),*]),
            ::core::option::Option::Some(&[$(<$column as $crate::checked_sql::SqlType>::TYPE),*])
        )
    };
    (@ $sql:expr, $params:expr, $columns:expr) => {{
        const SQL: &str = $sql;
        $crate::inventory::submit! {
            $crate::checked_sql::Registered::new(
                SQL,
                ::core::module_path!(),
                (::core::file!(), ::core::line!()),
                $params,
                $columns,
            )
        }
        SQL
    }};
}

/// Returns a statement as text. With the feature `check` it is also registered, to be checked on a real schema.
#[cfg(not(feature = "check"))]
#[macro_export]
macro_rules! sql {
    ($sql:expr $(, ($($param:ty),* $(,)?) $(-> ($($column:ty),* $(,)?))?)? $(,)?) => {{
        const SQL: &str = $sql;
        SQL
    }};
}
