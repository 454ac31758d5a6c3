//! The macro for [`Value`](super::Value)s of `Copy` types.

/// For `Copy` types: of the value itself, of a reference to it and of one to an `Option` of it.
///
/// The last cannot be written for all types at once: the compiler would look for it in
/// `&Option<&Option<…>>` without end.
macro_rules! from_copy {
    ($($type:ty => |$value:ident| $made:expr;)*) => {$(
        impl From<$type> for Value<'_> {
            #[inline]
            fn from($value: $type) -> Self {
                $made
            }
        }

        impl From<&$type> for Value<'_> {
            fn from(value: &$type) -> Self {
                Value::from(*value)
            }
        }

        impl From<&Option<$type>> for Value<'_> {
            fn from(value: &Option<$type>) -> Self {
                Value::from(*value)
            }
        }
    )*};
}
