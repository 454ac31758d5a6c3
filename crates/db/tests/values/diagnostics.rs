//! What the compiler says about a wrong parameter or type: it names what to write.
//!
//! The snippets are compiled against the library that this test is linked with, which takes a second for all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Compiles a function body with a `Db`. Returns what the compiler says, and whether it succeeded.
fn compile(library: &Path, body: &str, folder: &Path) -> (bool, String) {
    let source = folder.join("snippet.rs");
    let text = format!(
        "#![allow(unused)]\npub struct Own;\n\
         pub async fn snippet(db: cenote::Db, row: cenote::Row) -> cenote::Result<()> {{\n{body}\nOk(()) }}\n"
    );
    fs::write(&source, text).unwrap();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(compiler)
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--color=never",
        ])
        .arg("--out-dir")
        .arg(folder)
        .arg("-L")
        .arg(format!(
            "dependency={}",
            library.parent().unwrap().display()
        ))
        .arg("--extern")
        .arg(format!("cenote={}", library.display()))
        .arg(&source)
        .output()
        .unwrap();
    (
        done.status.success(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

/// The newest build of the library that this compiler can use.
fn library(folder: &Path) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut builds: Vec<(SystemTime, PathBuf)> = fs::read_dir(own.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libcenote-") && name.ends_with(".rlib")
        })
        .map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path))
        .collect();
    builds.sort();
    let fits =
        "db.exec(\"SELECT ?\", 1).await?; db.query_scalar_one::<i64>(\"SELECT 1\", ()).await?;";
    let usable = builds.into_iter().rev().map(|(_, path)| path);
    let mut usable = usable.filter(|path| compile(path, fits, folder).0);
    usable
        .next()
        .expect("a build of the library that the compiler can use")
}

#[test]
fn the_compiler_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    for (body, said) in [
        (
            "db.exec(\"SELECT ?\", Own).await?;",
            &[
                "`Own` cannot be the parameters of a statement",
                "write a tuple, `(a, b)`, with a comma also for a single value, `(a,)`",
                "`named! { min: 18, name }`",
            ][..],
        ),
        (
            "db.exec(\"SELECT ?\", (Own,)).await?;",
            &[
                "`Own` cannot be a parameter",
                "`impl From<YourType> for cenote::Value<'_>`",
                "`Json(value)`",
            ],
        ),
        (
            "db.exec(\"SELECT :own\", cenote::named! { own: Own }).await?;",
            &["`Own` cannot be a parameter"],
        ),
        (
            "db.exec(\"SELECT ?\", vec![Own]).await?;",
            &["`Own` cannot be a parameter"],
        ),
        (
            "row.get::<Own>(0)?;",
            &[
                "`Own` cannot be read from a row",
                "`impl cenote::FromValue<'_> for YourType`",
            ],
        ),
        (
            "row.get::<Vec<Own>>(0)?;",
            &["`Own` cannot be read from a row"],
        ),
        (
            "let value: cenote::Value<'_> = vec![Own].into();",
            &[
                "a list of `Own` cannot be a parameter",
                "`impl cenote::ArrayElement for YourType`",
            ],
        ),
    ] {
        let (compiled, stderr) = compile(&library, body, folder.path());
        assert!(!compiled, "{body}");
        for said in said {
            assert!(stderr.contains(said), "{body}: {said} is not in\n{stderr}");
        }
    }
}

#[test]
fn every_form_of_parameters_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let body = "
        let (id, name, ids) = (7_i64, String::from(\"ada\"), vec![1_i64, 2]);
        db.exec(\"\", ()).await?;
        db.exec(\"\", id).await?;
        db.exec(\"\", &id).await?;
        db.exec(\"\", 7).await?;
        db.exec(\"\", 0.5).await?;
        db.exec(\"\", true).await?;
        db.exec(\"\", \"ada\").await?;
        db.exec(\"\", &name).await?;
        db.exec(\"\", name.clone()).await?;
        db.exec(\"\", Some(7)).await?;
        db.exec(\"\", None::<&str>).await?;
        db.exec(\"\", &Some(id)).await?;
        db.exec(\"\", cenote::Value::Null).await?;
        db.exec(\"\", (id, &name)).await?;
        db.exec(\"\", &ids).await?;
        db.exec(\"\", (&ids,)).await?;
        db.exec(\"\", (&ids[..],)).await?;
        db.exec(\"\", (ids.clone(), vec![Some(\"a\"), None])).await?;
        db.exec(\"\", (vec![0_u8], b\"x\", [[1, 2], [3, 4]])).await?;
        db.exec(\"\", (cenote::list(&ids),)).await?;
        db.exec(\"\", cenote::named! { id, name: &name, ids: &ids }).await?;
        db.exec(\"\", cenote::named! { id, name, ids }).await?;
    ";
    let (compiled, stderr) = compile(&library, body, folder.path());
    assert!(compiled, "{stderr}");
}
