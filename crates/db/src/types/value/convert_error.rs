//! Why a value is not what was asked for.

use std::error::Error as StdError;
use std::fmt;

use super::Value;

/// Why a value could not be turned into the type that was asked for.
///
/// It does not know the column: [`Row::get`](crate::Row::get) puts that before it.
#[derive(Debug)]
pub struct ConvertError {
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ConvertError {
    /// In one's own words.
    pub fn new(message: impl Into<String>) -> Self {
        ConvertError {
            message: message.into(),
            source: None,
        }
    }

    /// The value is of another type: `found text, wanted i64`.
    pub fn found(value: &Value<'_>, wanted: &str) -> Self {
        let hint = if value.is_null() {
            "; an Option takes NULL"
        } else {
            ""
        };
        ConvertError::new(format!(
            "found {}, wanted {wanted}{hint}",
            value.type_name()
        ))
    }

    /// The value is of a fitting type, but does not fit: `300 is out of range for u8`.
    pub fn out_of_range(value: impl fmt::Display, wanted: &str) -> Self {
        ConvertError::new(format!("{value} is out of range for {wanted}"))
    }

    /// The text does not read as that: `"maybe" is no Date`.
    ///
    /// Of a long text only the beginning is told.
    pub fn unreadable(text: &str, wanted: &str) -> Self {
        const TOLD: usize = 40;
        let message = match text.char_indices().nth(TOLD) {
            None => format!("{text:?} is no {wanted}"),
            Some((end, _)) => format!("{:?}… is no {wanted}", &text[..end]),
        };
        ConvertError::new(message)
    }

    /// With what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        self.source
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl StdError for ConvertError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(&**source)
    }
}
