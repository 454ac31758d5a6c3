//! Types that can be the parameters of a statement.

use super::{IntoParam, Named, Params};
use crate::Result;
use crate::driver::Param;
use crate::types::value::Value;

/// A type that can be the parameters of a statement.
///
/// | given | means |
/// |---|---|
/// | `()` | none |
/// | `18`, `"ada"`, `id`, `Some(18)` | one: a number, `bool`, text, date, time, UUID, or an `Option` of these |
/// | `(18, "ada")`: tuples of up to 16 | one for each `?`, in order |
/// | `[1, 2]`, `vec![1, 2]`, `&ids`: of one type | one for each `?`, in order |
/// | `named! { min: 18, name }`, [`Named`] | by the names of the placeholders, `:min` and `:name` |
///
/// Any other single value is a tuple of one: `(bytes,)`, `(ids,)`, `(Json(settings),)`.
/// Inside of a tuple or `named!`, a vector or slice is one array; [`list`](crate::list) makes it a list for `IN (?)`.
///
/// Implement this trait for a type of your own by returning [`Params`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameters of a statement",
    label = "no parameters",
    note = "write a tuple, `(a, b)`, with a comma also for a single value, `(a,)`; `()` for none; a vector or slice for values of one type; `named! {{ min: 18, name }}` for `:min` and `:name`"
)]
pub trait IntoParams<'a> {
    /// Returns the parameters.
    ///
    /// # Errors
    ///
    /// The first parameter that has no form that a database takes.
    fn into_params(self) -> Result<Params<'a>>;
}

/// Makes types one parameter without a tuple around it.
///
/// An impl for all types that convert into a [`Value`] would match tuples too, and the compiler could no longer name the
/// part of a tuple that is wrong.
macro_rules! bare_params {
    ($($type:ty),* $(,)?) => {$(
        impl<'a> $crate::types::params::IntoParams<'a> for $type {
            #[inline]
            fn into_params(self) -> $crate::Result<$crate::types::params::Params<'a>> {
                Ok($crate::types::params::Params::one(self.into()))
            }
        }
    )*};
}

pub(crate) use bare_params;

bare_params! {
    &'a str, String, &'a String, Option<&'a str>, Option<String>, &'a Option<String>,
    Value<'a>, &'a Value<'a>,
}

impl<'a> IntoParams<'a> for Params<'a> {
    fn into_params(self) -> Result<Params<'a>> {
        Ok(self)
    }
}

impl<'a> IntoParams<'a> for () {
    fn into_params(self) -> Result<Params<'a>> {
        Ok(Params::Positional(Vec::new()))
    }
}

impl<'a> IntoParams<'a> for Named<'a> {
    fn into_params(self) -> Result<Params<'a>> {
        self.into_pairs().map(Params::Named)
    }
}

impl<'a, T: IntoParam<'a>> IntoParams<'a> for Vec<T> {
    fn into_params(self) -> Result<Params<'a>> {
        positional(self)
    }
}

impl<'a, T: IntoParam<'a>, const N: usize> IntoParams<'a> for [T; N] {
    fn into_params(self) -> Result<Params<'a>> {
        positional(self)
    }
}

impl<'a, T> IntoParams<'a> for &'a [T]
where
    &'a T: IntoParam<'a>,
{
    fn into_params(self) -> Result<Params<'a>> {
        positional(self)
    }
}

impl<'a, T> IntoParams<'a> for &'a Vec<T>
where
    &'a T: IntoParam<'a>,
{
    fn into_params(self) -> Result<Params<'a>> {
        positional(self)
    }
}

impl<'a, T, const N: usize> IntoParams<'a> for &'a [T; N]
where
    &'a T: IntoParam<'a>,
{
    fn into_params(self) -> Result<Params<'a>> {
        positional(self)
    }
}

fn positional<'a, P: IntoParam<'a>>(
    given: impl IntoIterator<Item = P, IntoIter: ExactSizeIterator>,
) -> Result<Params<'a>> {
    let given = given.into_iter();
    // `collect` into a `Result` ignores the length and would grow the vector step by step.
    let mut values: Vec<Param<'a>> = Vec::with_capacity(given.len());
    for value in given {
        values.push(value.into_param()?);
    }
    Ok(Params::Positional(values))
}

macro_rules! tuples {
    ($($first:ident $($more:ident)*;)*) => {$(
        impl<'a, $first: IntoParam<'a>, $($more: IntoParam<'a>),*> IntoParams<'a>
            for ($first, $($more,)*)
        {
            fn into_params(self) -> Result<Params<'a>> {
                #[allow(non_snake_case)]
                let ($first, $($more,)*) = self;
                Ok(Params::Positional(vec![
                    $first.into_param()?,
                    $($more.into_param()?,)*
                ]))
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
    A B C D E F G H I J K L M;
    A B C D E F G H I J K L M N;
    A B C D E F G H I J K L M N O;
    A B C D E F G H I J K L M N O P;
}
