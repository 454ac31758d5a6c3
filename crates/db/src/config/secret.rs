//! Secrets: shown to nobody, wiped when they go.
//!
//! A [`Secret`] is in no `Debug` output, has no `Display`, and cannot be serialised. A template
//! keeps a [`CredentialProvider`]; every connect asks it for [`Credentials`] of its own, hands them
//! to the driver by value, and they are wiped when the driver is done with them.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::driver::BoxFuture;
use crate::{Error, Kind, Result};

/// A text that nobody gets to see: not printed, not serialised, wiped from memory on drop.
///
/// A clone is a copy to be wiped on its own. Two of them can be compared, so that
/// a connection opened with the same credentials can be found again.
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
    /// The text itself. Who copies it has to wipe the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ZeroizeOnDrop for Secret {}

impl From<String> for Secret {
    /// Takes the text over without a copy, so that nothing is left to be wiped.
    fn from(text: String) -> Self {
        Secret(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    /// Copies the text; the caller's own stays as it is.
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
    /// From a text. The error for anything else does not quote it: a password may well
    /// have been written as a number.
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

/// Who connects: handed by value to [`Template::connect`](crate::driver::Template::connect), and
/// wiped when it is dropped there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The name of the user; the driver's default if there is none.
    pub user: Option<String>,
    /// The password or token.
    pub password: Option<Secret>,
}

impl Credentials {
    /// This user with this password.
    pub fn new(user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Credentials {
            user: Some(user.into()),
            password: Some(password.into()),
        }
    }

    /// Fills missing fields from `others`.
    ///
    /// What the builder was given goes before what stands in the DSN.
    #[must_use]
    pub fn or(self, others: Credentials) -> Self {
        Credentials {
            user: self.user.or(others.user),
            password: self.password.or(others.password),
        }
    }

    /// In the messages of a login a NUL ends a text, and what follows would be read as the next
    /// field.
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

    /// A provider that gives a copy of these to every connect.
    pub fn into_provider(self) -> CredentialProvider {
        CredentialProvider {
            source: Source::Fixed(self),
        }
    }
}

/// Where the credentials of each new connection come from.
///
/// Either always the same ones, or the answer of an async closure, which is asked anew for every
/// connection: for passwords and tokens that change while the program runs.
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
    /// A provider that asks this closure for every connection.
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

    /// Credentials for one connect: a copy that is its own to wipe.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it drops what the closure was doing; nothing is kept.
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
    /// One that gives neither a user nor a password.
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
    fn a_secret_is_wiped_when_it_is_dropped() {
        fn wiped_on_drop<T: ZeroizeOnDrop>(_: &T) {}
        let secret = Secret::from("hunter2");
        // The field, not only our own word for it: that is what does the wiping.
        wiped_on_drop(&secret.0);
        wiped_on_drop(&secret);
    }

    #[test]
    fn a_secret_is_made_of_a_string_without_leaving_a_copy() {
        let text = "hunter2".to_owned();
        let place = text.as_ptr();
        assert_eq!(Secret::from(text).expose().as_ptr(), place);
    }

    #[test]
    fn a_secret_equals_another_with_the_same_text() {
        assert_eq!(Secret::from("a"), Secret::from("a".to_owned()));
        assert_ne!(Secret::from("a"), Secret::from("b"));
        assert!(Secret::default().is_empty());
        assert!(!Secret::from("a").is_empty());
    }

    #[test]
    fn an_error_about_what_is_no_secret_does_not_quote_it() {
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
    async fn a_provider_is_asked_once_for_every_connect_by_all_its_clones() {
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
    async fn the_error_of_a_provider_is_a_failed_connect_with_its_cause() {
        let provider = CredentialProvider::new(|| async {
            Err::<Credentials, _>(io::Error::other("the vault is sealed"))
        });
        let error = provider.get().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Connect);
        let cause = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(cause.to_string(), "the vault is sealed");
    }

    #[test]
    fn what_a_provider_was_doing_is_dropped_with_the_connect() {
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
    fn a_provider_shows_no_password() {
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
