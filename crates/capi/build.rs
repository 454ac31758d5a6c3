//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The name that programs note; its number changes when the ABI does.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcenote.so.0");
        // Its background thread, and what threads keep until they end, must not
        // lose their code by a dlclose.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
