//! Secrets: never displayed, and wiped from memory on drop.
//!
//! A [`Secret`] does not appear in `Debug` output, has no `Display`, and cannot be serialised. A handle has a
//! [`CredentialProvider`]. Every connect asks it for its own [`Credentials`] and passes them to the driver by value, which
//! wipes them when it drops them.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::driver::BoxFuture;
use crate::{Error, Kind, Result};

/// A text that is never printed or serialised, and is wiped from memory on drop.
///
/// Each clone is a copy that is wiped on its own drop. Secrets can be compared, to find a connection with the same
/// credentials.
///
/// ```
/// use cenote::driver::Secret;
///
/// let secret = Secret::from("open sesame");
/// assert_eq!(secret.expose(), "open sesame");
/// assert_eq!(format!("{secret:?}"), "Secret(***)");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Returns the text. A caller that copies it must wipe the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ZeroizeOnDrop for Secret {}

impl From<String> for Secret {
    /// Takes the text without a copy, so nothing else needs wiping.
    fn from(text: String) -> Self {
        Secret(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    /// Copies the text; the caller's text is not wiped.
    fn from(text: &str) -> Self {
        Secret::from(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(***)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Reads a text. The error for anything else does not quote it: it may be a password of digits.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_string(SecretVisitor)
    }
}

struct SecretVisitor;

impl SecretVisitor {
    fn refuse<E: de::Error>() -> Result<Secret, E> {
        Err(E::custom("a secret has to be a text, in quotes"))
    }
}

impl Visitor<'_> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret::from(text))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Secret, E> {
        Ok(Secret::from(text))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_i128<E: de::Error>(self, _: i128) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Self::refuse()
    }
}

/// User and password of a connect. [`Template::connect`](crate::driver::Template::connect) gets them by value; the password
/// is wiped on drop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The user name; `None` for the driver's default.
    pub user: Option<String>,
    /// The password or token.
    pub password: Option<Secret>,
}

impl Credentials {
    /// Returns credentials with this user and password.
    pub fn new(user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Credentials {
            user: Some(user.into()),
            password: Some(password.into()),
        }
    }

    /// Fills missing fields from `others`.
    ///
    /// The builder's credentials take precedence over those in the DSN.
    #[must_use]
    pub fn or(self, others: Credentials) -> Self {
        Credentials {
            user: self.user.or(others.user),
            password: self.password.or(others.password),
        }
    }

    /// Refuses a NUL: it ends a text in the messages of a login, and the rest would be read as the next field.
    pub(crate) fn check(&self) -> Result<()> {
        let user = self.user.as_deref();
        let password = self.password.as_ref().map(Secret::expose);
        for (what, text) in [("user", user), ("password", password)] {
            if text.is_some_and(|text| text.contains('\0')) {
                let message = format!("there is a NUL in the {what}, where no database takes one");
                return Err(Error::new(Kind::Config, message));
            }
        }
        Ok(())
    }

    /// Returns a provider that gives every connect a copy of these credentials.
    pub fn into_provider(self) -> CredentialProvider {
        CredentialProvider {
            source: Source::Fixed(self),
        }
    }
}

/// Provides the credentials of each new connection.
///
/// They are always the same, or come from an async closure that is called for every connection: for passwords and tokens
/// that change while the program runs.
#[derive(Clone)]
pub struct CredentialProvider {
    source: Source,
}

type Ask = dyn Fn() -> BoxFuture<'static, Result<Credentials>> + Send + Sync;

#[derive(Clone)]
enum Source {
    Fixed(Credentials),
    Asked(Arc<Ask>),
}

impl CredentialProvider {
    /// Returns a provider that calls this closure for every connection.
    pub fn new<F, Answer, E>(ask: F) -> Self
    where
        F: Fn() -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let ask = move || -> BoxFuture<'static, Result<Credentials>> {
            let answer = ask();
            Box::pin(async move {
                answer.await.map_err(|why| {
                    Error::new(Kind::Connect, "the credential provider failed").because(why)
                })
            })
        };
        CredentialProvider {
            source: Source::Asked(Arc::new(ask)),
        }
    }

    /// Returns the credentials for one connect.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the closure's future is dropped; nothing remains.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`], with the closure's error as its source.
    pub async fn get(&self) -> Result<Credentials> {
        match &self.source {
            Source::Fixed(credentials) => Ok(credentials.clone()),
            Source::Asked(ask) => ask().await,
        }
    }
}

impl Default for CredentialProvider {
    /// Returns a provider of empty credentials.
    fn default() -> Self {
        Credentials::default().into_provider()
    }
}

impl From<Credentials> for CredentialProvider {
    fn from(credentials: Credentials) -> Self {
        credentials.into_provider()
    }
}

impl fmt::Debug for CredentialProvider {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Fixed(credentials) => out
                .debug_tuple("CredentialProvider")
                .field(credentials)
                .finish(),
            Source::Asked(_) => out.write_str("CredentialProvider(asked for every connection)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use serde::de::IntoDeserializer;
    use serde::de::value::Error as ValueError;

    use super::*;

    #[test]
    fn secret_is_wiped_on_drop() {
        fn wiped_on_drop<T: ZeroizeOnDrop>(_: &T) {}
        let secret = Secret::from("hunter2");
        // Checks the field too, because its drop does the wiping.
        wiped_on_drop(&secret.0);
        wiped_on_drop(&secret);
    }

    #[test]
    fn secret_takes_a_string_without_a_copy() {
        let text = "hunter2".to_owned();
        let place = text.as_ptr();
        assert_eq!(Secret::from(text).expose().as_ptr(), place);
    }

    #[test]
    fn secrets_with_the_same_text_are_equal() {
        assert_eq!(Secret::from("a"), Secret::from("a".to_owned()));
        assert_ne!(Secret::from("a"), Secret::from("b"));
        assert!(Secret::default().is_empty());
        assert!(!Secret::from("a").is_empty());
    }

    #[test]
    fn error_about_an_invalid_secret_does_not_quote_it() {
        type Outcome = Result<Secret, ValueError>;
        let read: Outcome = Secret::deserialize("hunter2".into_deserializer());
        assert_eq!(read.unwrap(), Secret::from("hunter2"));
        let refused: [Outcome; 6] = [
            Secret::deserialize(31_337_u64.into_deserializer()),
            Secret::deserialize((-31_337_i64).into_deserializer()),
            Secret::deserialize(31_337_u128.into_deserializer()),
            Secret::deserialize((-31_337_i128).into_deserializer()),
            Secret::deserialize(31_337.5_f64.into_deserializer()),
            Secret::deserialize(true.into_deserializer()),
        ];
        for outcome in refused {
            let message = outcome.unwrap_err().to_string();
            assert_eq!(message, "a secret has to be a text, in quotes");
        }
    }

    #[tokio::test]
    async fn fixed_credentials_are_copied_for_every_connect() {
        let provider = CredentialProvider::from(Credentials::new("app", "hunter2"));
        let first = provider.get().await.unwrap();
        let second = provider.get().await.unwrap();
        assert_eq!(first, second);
        let place = |of: &Credentials| of.password.as_ref().map(|it| it.expose().as_ptr());
        assert_ne!(place(&first), place(&second));
        let nobody = CredentialProvider::default().get().await.unwrap();
        assert_eq!(nobody, Credentials::default());
    }

    #[tokio::test]
    async fn provider_and_its_clones_ask_once_per_connect() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let provider = CredentialProvider::new(move || {
            let n = count.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, io::Error>(Credentials::new("app", format!("token {n}"))) }
        });
        let twin = provider.clone();
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        for (n, provider) in [&provider, &twin, &provider].into_iter().enumerate() {
            let given = provider.get().await.unwrap();
            assert_eq!(given, Credentials::new("app", format!("token {n}")));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn error_of_a_provider_is_a_connect_error_with_its_cause() {
        let provider = CredentialProvider::new(|| async {
            Err::<Credentials, _>(io::Error::other("the vault is sealed"))
        });
        let error = provider.get().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect);
        let cause = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(cause.to_string(), "the vault is sealed");
    }

    #[test]
    fn future_of_a_provider_is_dropped_with_the_connect() {
        let held = Arc::new(());
        let for_closure = Arc::clone(&held);
        let provider = CredentialProvider::new(move || {
            let held = Arc::clone(&for_closure);
            async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok::<_, io::Error>(Credentials::default())
            }
        });
        let mut connect = Box::pin(provider.get());
        let polled = connect
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(Arc::strong_count(&held), 3);
        drop(connect);
        assert_eq!(Arc::strong_count(&held), 2);
    }

    #[test]
    fn provider_shows_no_password() {
        let fixed = Credentials::new("app", "hunter2").into_provider();
        let asked =
            CredentialProvider::new(|| async { Ok::<_, io::Error>(Credentials::default()) });
        let shown = format!("{fixed:?} {fixed:#?} {asked:?}");
        assert!(
            shown.contains("app") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
