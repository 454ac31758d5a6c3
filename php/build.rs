//! Compiles the C half against the headers of the PHP that `php-config` describes.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=PHP_CONFIG");
    let config = env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".to_owned());
    let output = Command::new(&config)
        .arg("--includes")
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{config} cannot be run ({error}); install PHP's headers (Debian: php-dev), or set PHP_CONFIG"
            )
        });
    assert!(output.status.success(), "{config} --includes failed");
    let includes = String::from_utf8_lossy(&output.stdout);

    let mut build = cc::Build::new();
    for include in includes.split_whitespace() {
        build.flag(include);
    }
    let version = env::var("CARGO_PKG_VERSION").expect("Cargo sets the version");
    build
        .files([
            "shim/engine.c",
            "shim/classes.c",
            "shim/pool.c",
            "shim/channel.c",
            "shim/pdo.c",
            "shim/pdo_methods.c",
            "shim/pdo_open.c",
            "shim/pdo_stmt.c",
            "shim/module.c",
        ])
        .define("ZEND_ENABLE_STATIC_TSRMLS_CACHE", "1")
        .define("CENOTE_VERSION", format!("\"{version}\"").as_str())
        .flag("-fvisibility=hidden")
        .warnings(true)
        // PHP's own headers have unused parameters by design.
        .flag("-Wno-unused-parameter")
        .opt_level(2)
        .compile("cenote_shim");
    // PHP's symbols come from the program that loads the module.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,lazy");
}
