//! Writes the 500 tests.

use std::fmt::Write;

fn main() {
    let mut tests = String::new();
    for n in 0..500 {
        let test = format!(
            "#[sqlx::test]\nasync fn test_{n:03}(pool: sqlx::PgPool) {{ super::order(&pool, {n}).await }}\n"
        );
        tests.write_str(&test).expect("writing to a text");
    }
    let out = std::env::var("OUT_DIR").expect("Cargo sets it");
    std::fs::write(format!("{out}/tests.rs"), tests).expect("writing the tests");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=migrations");
}
