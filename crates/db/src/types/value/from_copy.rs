//! Macros that make `Copy` types a [`Value`](super::Value).

/// Makes each type a parameter: by value, by reference and as a reference to an `Option`.
///
/// An impl for every `&Option<T>` is impossible: the compiler would try `&Option<&Option<…>>` without end.
macro_rules! from_copy_scalar {
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

        $crate::types::params::bare_params! {
            $type, &$type, Option<$type>, &Option<$type>,
        }
    )*};
}

/// The same for types whose vectors are arrays: all but `u8`.
macro_rules! from_copy {
    ($($type:ty => |$value:ident| $made:expr;)*) => {
        from_copy_scalar! { $($type => |$value| $made;)* }
        $(impl $crate::types::value::ArrayElement for $type {
            fn element(&self) -> Value<'_> {
                self.into()
            }
        })*
    };
}
