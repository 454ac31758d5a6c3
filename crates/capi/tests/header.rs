//! The header is generated, checked in, and what the sources say.

use std::fs;
use std::path::Path;

/// Written anew with `CENOTE_WRITE_HEADER=1`.
#[test]
fn checked_in_header_equals_the_generated_one() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_crate(here)
        .with_config(config)
        .generate()
        .unwrap();
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = with_brackets(&String::from_utf8(header).unwrap());
    let path = here.join("include/cenote.h");
    if std::env::var_os("CENOTE_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == header,
        "include/cenote.h is out of date: run CENOTE_WRITE_HEADER=1 cargo test -p cenote-c"
    );
}

/// A macro that stands for a negative number needs brackets: it may be used after a minus.
fn with_brackets(header: &str) -> String {
    let mut out = String::new();
    for line in header.lines() {
        match line.rsplit_once(' ') {
            Some((name, value)) if line.starts_with("#define") && value.starts_with('-') => {
                out.push_str(&format!("{name} ({value})"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
