//! Hides secrets in displayed DSNs.

use std::borrow::Cow;

/// Replaces a secret.
pub(super) const HIDDEN: &str = "***";

/// Whether an option of this name contains a secret. Errs on the safe side: a false positive only hides a value in messages.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["password", "passwd", "pwd", "passphrase", "secret", "token"];
    parts.iter().any(|part| name.contains(part))
        || ["pass", "key", "hexkey"].contains(&name.as_str())
}

/// Returns the value of an option for display.
pub(super) fn shown<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if is_secret(name) {
        Cow::Borrowed(HIDDEN)
    } else if value.contains("://") {
        without_userinfo(value)
    } else {
        Cow::Borrowed(value)
    }
}

/// Hides user and password of a URL: everything before the last `@`, because a password that is not encoded may
/// contain others.
fn without_userinfo(url: &str) -> Cow<'_, str> {
    match url.rsplit_once('@') {
        Some((_, host)) => Cow::Owned(format!("{HIDDEN}@{host}")),
        None => Cow::Borrowed(url),
    }
}

/// Returns a text of unknown syntax for display. It may be another DSN, or one with a misspelt driver, so it is hidden
/// completely if it could contain a password.
pub(super) fn shown_text(text: &str) -> &str {
    match text.contains(['@', '=', '?']) {
        true => HIDDEN,
        false => text,
    }
}
