//! Values, parameters and rows, and how they become the types of a program.

pub(crate) mod de;
pub(crate) mod params;
pub(crate) mod row;
pub(crate) mod value;
