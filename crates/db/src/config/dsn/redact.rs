//! What of a DSN may be shown.

use std::borrow::Cow;

/// What stands in the place of a secret.
pub(super) const HIDDEN: &str = "***";

/// Whether an option of this name holds a secret. In doubt it does: nothing but a message gets
/// poorer.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["password", "passwd", "pwd", "passphrase", "secret", "token"];
    parts.iter().any(|part| name.contains(part))
        || ["pass", "key", "hexkey"].contains(&name.as_str())
}

/// The value of an option as it may be shown.
pub(super) fn shown<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if is_secret(name) {
        Cow::Borrowed(HIDDEN)
    } else if value.contains("://") {
        without_userinfo(value)
    } else {
        Cow::Borrowed(value)
    }
}

/// A URL without what may be a user and a password in front of an `@`.
///
/// Up to the last `@`: a password that was not encoded may have others in it.
fn without_userinfo(url: &str) -> Cow<'_, str> {
    match url.rsplit_once('@') {
        Some((_, host)) => Cow::Owned(format!("{HIDDEN}@{host}")),
        None => Cow::Borrowed(url),
    }
}

/// A text in a format that is not known here. It may be a whole DSN again, or one with
/// a slip in its first word, so all of it is hidden if it could have a password in it.
pub(super) fn shown_text(text: &str) -> &str {
    match text.contains(['@', '=', '?']) {
        true => HIDDEN,
        false => text,
    }
}
