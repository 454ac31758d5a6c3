//! The macros of `cenote`. Use them through `cenote`, which re-exports and documents them.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use proc_macro::{TokenStream, TokenTree};

/// Embeds a folder of migrations: see `cenote::migrate::embed`.
///
/// The argument is the folder, relative to the `Cargo.toml` of the crate that calls the macro. The
/// value is a `cenote::migrate::Migrations`.
#[proc_macro]
pub fn embed(input: TokenStream) -> TokenStream {
    let source = match expand(input) {
        Ok(source) => source,
        Err(why) => format!("::core::compile_error!({why:?})"),
    };
    source.parse().expect("the expansion is Rust")
}

fn expand(input: TokenStream) -> Result<String, String> {
    let folder = literal(input)?;
    let root = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("embed! needs Cargo: CARGO_MANIFEST_DIR is not set")?;
    let root = PathBuf::from(root);
    let mut files = Vec::new();
    collect(&root.join(&folder), &mut files)?;
    files.sort();
    let mut names = String::new();
    let mut checks = String::new();
    let mut texts = String::new();
    for (at, path) in files.iter().enumerate() {
        let shown = path.strip_prefix(&root).unwrap_or(path).display();
        let utf8 = |text: Option<&str>| {
            let text = text.map(str::to_owned);
            text.ok_or_else(|| format!("{shown}: the path is not valid UTF-8"))
        };
        let name = utf8(path.file_name().and_then(|name| name.to_str()))?;
        let full = utf8(path.to_str())?;
        let wrong = format!(
            "{shown}: a migration is named like V1__create_users.sql or U1__create_users.sql"
        );
        let twice = format!("{shown}: another migration has the same version");
        // Writing to a text cannot fail.
        let _ = write!(names, "{name:?},");
        let _ = write!(
            checks,
            "::core::assert!(::cenote::migrate::is_file_name(FILES[{at}]), {wrong:?});\
             ::core::assert!(::cenote::migrate::is_new_version(FILES, {at}), {twice:?});"
        );
        let _ = write!(texts, "::core::include_str!({full:?}),");
    }
    let count = files.len();
    Ok(format!(
        "{{ const FILES: &[&str] = &[{names}];\
            const _: () = {{ {checks} }};\
            const TEXTS: [&str; {count}] = [{texts}];\
            ::cenote::migrate::Migrations::embedded(FILES, &TEXTS) }}"
    ))
}

/// Reads the only argument, a plain string literal.
fn literal(input: TokenStream) -> Result<String, String> {
    let usage = "embed! takes the folder as a string: embed!(\"migrations\")";
    let mut tokens = input.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Literal(literal)), None) => {
            let text = literal.to_string();
            let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let plain = inner.filter(|inner| !inner.contains('\\'));
            plain.map(str::to_owned).ok_or_else(|| usage.to_owned())
        }
        _ => Err(usage.to_owned()),
    }
}

/// Collects the SQL files of a folder and of the folders in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        } else if is_rust_migration(&path) {
            return Err(format!(
                "{}: migrations in Rust are not supported; save the SQL that it returns as a .sql file",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Whether refinery would run a file as a migration in Rust: V1__name.rs.
fn is_rust_migration(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let version = name.and_then(|name| name.strip_prefix(['V', 'U']));
    path.extension().is_some_and(|extension| extension == "rs")
        && version.is_some_and(|version| version.starts_with(|digit: char| digit.is_ascii_digit()))
}
