//! The types that a statement declares, and which types of PostgreSQL they fit.

use crate::types::value::{Date, DateTime, Time, Value};

/// A type that [`sql!`](crate::sql!) can declare.
///
/// It is implemented for the types that parameters and columns usually have, and for `Option` of them. Use [`Value`] for
/// anything else: it fits every type. For a type of your own, name the one that it is stored as:
///
/// ```
/// use cenote::checked_sql::{DeclaredType, SqlType};
///
/// struct CustomerId(i64);
///
/// impl SqlType for CustomerId {
///     const TYPE: DeclaredType = <i64 as SqlType>::TYPE;
/// }
/// ```
pub trait SqlType {
    /// The type.
    const TYPE: DeclaredType;
}

/// A declared type.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredType {
    pub(super) name: &'static str,
    /// The types of columns whose every value it can hold.
    columns: &'static [&'static str],
    /// The types of parameters that accept its every value.
    params: &'static [&'static str],
    /// It also fits types that are not in the table: enums and other types of the application.
    fits_others: bool,
}

impl DeclaredType {
    pub(super) fn fits_column(&self, name: &str) -> bool {
        self.fits(self.columns, name)
    }

    pub(super) fn fits_param(&self, name: &str) -> bool {
        self.fits(self.params, name)
    }

    fn fits(&self, names: &[&str], name: &str) -> bool {
        let is_other = || !KNOWN.contains(&name);
        // The driver may not know the name of an application's type.
        let is_unknown = name.is_empty();
        is_unknown || names == ANY || names.contains(&name) || (self.fits_others && is_other())
    }
}

const ANY: &[&str] = &["*"];
const TEXTS: &[&str] = &["text", "varchar", "bpchar", "name", "char", "citext", "xml"];
/// PostgreSQL's types that are not stored as text.
const KNOWN: &[&str] = &[
    "bool",
    "bytea",
    "date",
    "float4",
    "float8",
    "int2",
    "int4",
    "int8",
    "interval",
    "json",
    "jsonb",
    "numeric",
    "oid",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "uuid",
];

macro_rules! sql_types {
    ($($(#[$when:meta])* $rust:ty: $columns:expr, $params:expr, $others:expr;)*) => {
        $($(#[$when])*
        impl SqlType for $rust {
            const TYPE: DeclaredType = DeclaredType {
                name: stringify!($rust),
                columns: $columns,
                params: $params,
                fits_others: $others,
            };
        })*
    };
}

sql_types! {
    bool: &["bool"], &["bool"], false;
    i16: &["int2"], &["int2", "int4", "int8", "numeric", "float4", "float8"], false;
    i32: &["int2", "int4"], &["int4", "int8", "numeric", "float8"], false;
    i64: &["int2", "int4", "int8", "oid"], &["int8", "numeric"], false;
    f32: &["float4"], &["float4", "float8"], false;
    f64: &["float4", "float8"], &["float8"], false;
    String: TEXTS, TEXTS, true;
    &str: TEXTS, TEXTS, true;
    Vec<u8>: &["bytea"], &["bytea"], false;
    &[u8]: &["bytea"], &["bytea"], false;
    Date: &["date"], &["date"], false;
    Time: &["time"], &["time"], false;
    DateTime: &["timestamp", "timestamptz"], &["timestamp", "timestamptz"], false;
    Value<'_>: ANY, ANY, true;
    #[cfg(feature = "uuid")]
    uuid::Uuid: &["uuid"], &["uuid"], false;
    #[cfg(feature = "decimal")]
    rust_decimal::Decimal: &["int2", "int4", "int8", "numeric"], &["numeric"], false;
    #[cfg(feature = "json")]
    serde_json::Value: &["json", "jsonb"], &["json", "jsonb"], false;
    #[cfg(feature = "chrono")]
    chrono::NaiveDate: &["date"], &["date"], false;
    #[cfg(feature = "chrono")]
    chrono::NaiveTime: &["time"], &["time"], false;
    #[cfg(feature = "chrono")]
    chrono::NaiveDateTime: &["timestamp"], &["timestamp"], false;
    #[cfg(feature = "chrono")]
    chrono::DateTime<chrono::Utc>: &["timestamptz"], &["timestamptz"], false;
    #[cfg(feature = "time")]
    time::Date: &["date"], &["date"], false;
    #[cfg(feature = "time")]
    time::OffsetDateTime: &["timestamptz"], &["timestamptz"], false;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: DeclaredType = T::TYPE;
}

#[cfg(feature = "json")]
impl<T> SqlType for crate::Json<T> {
    const TYPE: DeclaredType = <serde_json::Value as SqlType>::TYPE;
}
