#![doc = include_str!("../../docs/migrations.md")]

mod apply;
mod checksum;
mod files;
mod history;
mod lock;
mod plan;

pub use self::apply::{Applied, Report};
pub use self::files::{Migration, Migrations};
#[doc(hidden)]
pub use self::files::{is_file_name, is_new_version};
pub use self::plan::{Entry, State, Status};

/// Embeds a folder of migrations into the program, and checks their names when it is compiled.
///
/// The argument is the folder, relative to the `Cargo.toml` of the crate that calls the macro; the value is
/// a [`Migrations`]. Cargo notices changed files. For it to notice new files, too, the crate needs a `build.rs`:
///
/// ```
/// println!("cargo:rerun-if-changed=migrations");
/// ```
///
/// ```
/// use cenote::migrate::Migrations;
///
/// let migrations: Migrations = cenote::migrate::embed!("docs/migrations");
/// assert_eq!(migrations.iter().count(), 2);
/// ```
///
/// A wrong name does not compile:
///
/// ```compile_fail
/// let migrations = cenote::migrate::embed!("tests/migrate/wrong_name");
/// ```
pub use cenote_macros::embed;
