//! Arrays: vectors as one parameter, and arrays of a row as vectors.

use std::borrow::Cow;

use super::{ConvertError, FromValue, Value};

/// A type whose vectors, slices and arrays are one array parameter.
///
/// Every type that is a parameter is an element too, except for `u8`: a vector of bytes is
/// one value of bytes. For a type of your own:
///
/// ```
/// use cenote::{ArrayElement, Value};
///
/// struct UserId(i64);
///
/// impl ArrayElement for UserId {
///     fn element(&self) -> Value<'_> {
///         self.0.into()
///     }
/// }
///
/// assert_eq!(
///     Value::from(vec![UserId(1), UserId(2)]),
///     Value::Array(vec![Value::Int(1), Value::Int(2)])
/// );
/// ```
#[diagnostic::on_unimplemented(
    message = "a list of `{Self}` cannot be a parameter",
    label = "`{Self}` is no element of an array",
    note = "for a type of your own write `impl cenote::ArrayElement for YourType`"
)]
pub trait ArrayElement {
    /// Returns the element.
    fn element(&self) -> Value<'_>;
}

impl ArrayElement for str {
    fn element(&self) -> Value<'_> {
        self.into()
    }
}

impl ArrayElement for [u8] {
    fn element(&self) -> Value<'_> {
        self.into()
    }
}

impl ArrayElement for Value<'_> {
    fn element(&self) -> Value<'_> {
        self.as_borrowed()
    }
}

macro_rules! element_by_reference {
    ($($type:ty)*) => {$(
        impl ArrayElement for $type {
            fn element(&self) -> Value<'_> {
                self.into()
            }
        }
    )*};
}

element_by_reference! {
    String Cow<'_, str> Vec<u8> Cow<'_, [u8]> Option<u8>
}

impl ArrayElement for Box<str> {
    fn element(&self) -> Value<'_> {
        (**self).into()
    }
}

impl<const N: usize> ArrayElement for [u8; N] {
    fn element(&self) -> Value<'_> {
        self.into()
    }
}

impl<T: ArrayElement> ArrayElement for Option<T> {
    fn element(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, T::element)
    }
}

impl<T: ArrayElement> ArrayElement for [T] {
    fn element(&self) -> Value<'_> {
        Value::Array(self.iter().map(T::element).collect())
    }
}

impl<T: ArrayElement> ArrayElement for Vec<T> {
    fn element(&self) -> Value<'_> {
        self.as_slice().element()
    }
}

impl<T: ArrayElement, const N: usize> ArrayElement for [T; N] {
    fn element(&self) -> Value<'_> {
        self.as_slice().element()
    }
}

impl<T: ArrayElement + ?Sized> ArrayElement for &T {
    fn element(&self) -> Value<'_> {
        (**self).element()
    }
}

impl<T: ArrayElement> From<Vec<T>> for Value<'_> {
    fn from(elements: Vec<T>) -> Self {
        elements.element().into_owned()
    }
}

impl<T: ArrayElement, const N: usize> From<[T; N]> for Value<'_> {
    fn from(elements: [T; N]) -> Self {
        elements.element().into_owned()
    }
}

impl<'a, T: ArrayElement> From<&'a [T]> for Value<'a> {
    fn from(elements: &'a [T]) -> Self {
        elements.element()
    }
}

impl<'a, T: ArrayElement> From<&&'a [T]> for Value<'a> {
    fn from(elements: &&'a [T]) -> Self {
        (*elements).into()
    }
}

impl<'a, T: ArrayElement> From<&'a Vec<T>> for Value<'a> {
    fn from(elements: &'a Vec<T>) -> Self {
        elements.element()
    }
}

impl<'a, T: ArrayElement, const N: usize> From<&'a [T; N]> for Value<'a> {
    fn from(elements: &'a [T; N]) -> Self {
        elements.element()
    }
}

impl<'a, T: ArrayElement> From<&'a Option<Vec<T>>> for Value<'a> {
    fn from(elements: &'a Option<Vec<T>>) -> Self {
        elements.element()
    }
}

impl<'r, T: FromValue<'r>> FromValue<'r> for Vec<T> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        T::from_array(value)
    }
}

impl<'r, T: FromValue<'r>, const N: usize> FromValue<'r> for [T; N] {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        let is_bytes = matches!(value, Value::Bytes(_));
        let elements = T::from_array(value)?;
        elements.try_into().map_err(|elements: Vec<T>| {
            let what = if is_bytes { "bytes" } else { "elements" };
            let found = elements.len();
            ConvertError::new(format!("found {found} {what}, wanted {N} of them"))
        })
    }
}

/// Returns the elements of an array, read one by one; see [`FromValue::from_array`].
pub(super) fn read<'r, T: FromValue<'r>>(
    value: Value<'r>,
    wanted: &str,
) -> Result<Vec<T>, ConvertError> {
    let elements = match value {
        Value::Array(elements) => elements,
        // Databases without arrays keep them as JSON, and some keep JSON as text.
        #[cfg(feature = "json")]
        Value::Json(_) | Value::Text(_) => super::json::elements(value, wanted)?,
        other => return Err(ConvertError::found(&other, wanted)),
    };
    let read =
        |(at, element)| T::from_value(element).map_err(|error: ConvertError| error.in_element(at));
    elements.into_iter().enumerate().map(read).collect()
}

/// Returns the message of a driver whose database has no arrays.
#[cfg(any(feature = "sqlite", feature = "mysql", feature = "odbc"))]
pub(crate) fn no_arrays(driver: &str) -> String {
    format!("{driver} has no arrays: use list(..) for IN (?), Json(..) for a JSON column")
}
