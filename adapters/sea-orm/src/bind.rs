//! Values of sea-query as parameters of cenote.

use cenote::driver::Param;
use cenote::{Error, IntoParam, IntoParams, Json, Kind, Params, Result};
use sea_orm::sea_query::OptionEnum;
use sea_orm::{Value, Values};

/// The values of a built query, as parameters of any call of [`cenote::Db`].
///
/// # Examples
///
/// ```no_run
/// use cenote::Db;
/// use cenote_sea_orm::Bind;
/// use sea_orm::sea_query::{Expr, ExprTrait, Query, PostgresQueryBuilder};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = Db::open("postgres://localhost/shop").await?;
/// let (sql, values) = Query::select()
///     .column("name")
///     .from("customer")
///     .and_where(Expr::col("id").eq(7))
///     .build(PostgresQueryBuilder);
/// let names: Vec<String> = db.query_scalar(&sql, Bind(values)).await?;
/// assert_eq!(names, ["ada"]);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A call fails with [`Kind::Parameters`] for arrays and for values of `time`, `bigdecimal`, `ipnetwork` and
/// other crates, which this crate does not convert.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind(pub Values);

impl<'a> IntoParams<'a> for Bind {
    fn into_params(self) -> Result<Params<'a>> {
        params(self.0)
    }
}

/// Converts the values of a statement.
pub(crate) fn params(values: Values) -> Result<Params<'static>> {
    let params: Result<Vec<_>> = values.0.into_iter().map(param).collect();
    Ok(Params::Positional(params?))
}

fn param(value: Value) -> Result<Param<'static>> {
    match value {
        Value::Bool(value) => value.into_param(),
        Value::TinyInt(value) => value.into_param(),
        Value::SmallInt(value) => value.into_param(),
        Value::Int(value) => value.into_param(),
        Value::BigInt(value) => value.into_param(),
        Value::TinyUnsigned(value) => value.into_param(),
        Value::SmallUnsigned(value) => value.into_param(),
        Value::Unsigned(value) => value.into_param(),
        Value::BigUnsigned(value) => value.into_param(),
        Value::Float(value) => value.into_param(),
        Value::Double(value) => value.into_param(),
        Value::String(value) => value.into_param(),
        Value::Char(value) => value.into_param(),
        Value::Bytes(value) => value.into_param(),
        Value::Json(value) => value.map(|json| Json(*json)).into_param(),
        Value::ChronoDate(value) => value.into_param(),
        Value::ChronoTime(value) => value.into_param(),
        Value::ChronoDateTime(value) => value.into_param(),
        Value::ChronoDateTimeUtc(value) => value.into_param(),
        Value::ChronoDateTimeLocal(value) => value.map(|local| local.to_utc()).into_param(),
        Value::ChronoDateTimeWithTimeZone(value) => value.into_param(),
        Value::Uuid(value) => value.into_param(),
        Value::Decimal(value) => value.into_param(),
        Value::Enum(OptionEnum::Some(value)) => value.value.to_string().into_param(),
        Value::Enum(OptionEnum::None(_)) => Ok(Param::Value(cenote::Value::Null)),
        #[allow(
            unreachable_patterns,
            reason = "other features of sea-query add variants"
        )]
        // The message does not show the value: errors are safe to log.
        _ => Err(Error::new(
            Kind::Parameters,
            "cannot send an array or a value of time, bigdecimal, ipnetwork or jiff: \
             convert it to a chrono, rust_decimal, uuid, JSON or plain value",
        )),
    }
}
