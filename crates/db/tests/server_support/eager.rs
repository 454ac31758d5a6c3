//! A run of all tests with shared connections: `CENOTE_TEST_SHARE=1`.

use std::sync::Once;

/// Returns whether every handle of this run shares its connections.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os("CENOTE_TEST_SHARE").is_some()
}

/// Makes every handle share its connections, if the run asks for that. Such a run fails if no read was shared.
pub(crate) fn share_if_asked() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if is_asked_for() {
            cenote::share_eagerly();
            at_exit();
        }
    });
}

#[cfg(unix)]
#[allow(
    unsafe_code,
    reason = "the harness of the tests offers no end of a run"
)]
fn at_exit() {
    unsafe extern "C" {
        safe fn atexit(run: extern "C" fn()) -> i32;
        safe fn _exit(code: i32) -> !;
    }
    extern "C" fn check() {
        let reads = cenote::eagerly_shared_reads();
        println!("{reads} reads have run on shared connections");
        // A test that starts itself as another process reads nothing there.
        let is_one_test = std::env::args().any(|arg| arg == "--exact");
        if reads == 0 && !is_one_test {
            _exit(101);
        }
    }
    assert_eq!(atexit(check), 0);
}

#[cfg(not(unix))]
fn at_exit() {}
