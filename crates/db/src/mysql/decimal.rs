//! Decimal parameters.
//!
//! The client library can send a decimal only as text, and the server computes with text in floating point: subtracting 0.01
//! from a balance of seventeen digits would lose cents. So the SQL casts each placeholder of a decimal.

use std::borrow::Cow;
use std::fmt::Write;

use crate::driver::{Dialect, Param, Value};
use crate::sql::question_marks;

/// The server's limits for a decimal: all digits, and those after the point.
const DIGITS: usize = 65;
const FRACTION: usize = 30;

/// Whether one of the parameters is a decimal.
#[inline]
pub(super) fn is_among(params: &[Param<'_>]) -> bool {
    params
        .iter()
        .any(|param| matches!(param, Param::Value(Value::Decimal(_))))
}

/// Returns the SQL with a cast around each placeholder of a decimal.
///
/// The cast depends only on the number of digits after the point, so statements can be cached. A decimal that exceeds the
/// server's limits is sent as text.
pub(super) fn with_casts<'s>(
    dialect: &Dialect,
    sql: &'s str,
    params: &[Param<'_>],
) -> Cow<'s, str> {
    let mut cast = String::with_capacity(sql.len() + 32 * params.len());
    let mut copied = 0;
    for (at, param) in question_marks(dialect, sql).into_iter().zip(params) {
        let Param::Value(Value::Decimal(text)) = param else {
            continue;
        };
        let Some(fraction) = fraction_of(text) else {
            continue;
        };
        cast.push_str(&sql[copied..at]);
        let _ = write!(cast, "CAST(? AS DECIMAL({DIGITS}, {fraction}))");
        copied = at + 1;
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    cast.push_str(&sql[copied..]);
    Cow::Owned(cast)
}

/// Returns the number of digits after the point; `None` if the text exceeds the limits or is not a plain decimal.
fn fraction_of(text: &str) -> Option<usize> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let length = match unsigned.contains('.') {
        true => fraction.len(),
        false => 0,
    };
    let fits = length <= FRACTION && whole.len() + length <= DIGITS;
    (fits && is_digits(whole) && is_digits(fraction)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &'static str) -> Param<'static> {
        Param::Value(Value::Decimal(text.into()))
    }

    #[test]
    fn only_placeholders_of_decimals_are_cast() {
        let params = [Param::Value(Value::Int(1)), decimal("-12.50"), decimal("7")];
        assert!(is_among(&params));
        let sql = "UPDATE t SET a = ?, b = '?', c = b - ? WHERE d=?";
        let cast = "UPDATE t SET a = ?, b = '?', c = b - CAST(? AS DECIMAL(65, 2)) \
                    WHERE d=CAST(? AS DECIMAL(65, 0))";
        assert_eq!(with_casts(&Dialect::MYSQL, sql, &params), cast);
        assert!(!is_among(&params[..1]));
    }

    #[test]
    fn decimal_beyond_the_limits_is_not_cast() {
        let long = "1".repeat(66);
        let fine = format!("0.{}", "1".repeat(31));
        for text in ["", "1e5", "NaN", ".5", "5.", "1.2.3", "- 1", &long, &fine] {
            assert_eq!(fraction_of(text), None, "{text}");
        }
        assert_eq!(fraction_of("+0.10"), Some(2));
    }
}
