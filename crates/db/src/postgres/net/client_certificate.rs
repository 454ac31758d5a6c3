//! The client certificate: libpq's `sslcert`, `sslkey`, `sslpassword` and `sslcertmode`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys, SignatureScheme};
use zeroize::Zeroizing;

use super::super::protocol::base64;
use super::encrypted_key;
use crate::driver::Secret;
use crate::{Error, Kind, Result};

/// Which certificate the client presents, if the server asks for one.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificate {
    pub(crate) mode: CertificateMode,
    pub(crate) certificate: FileOption,
    pub(crate) key: FileOption,
    /// Decrypts the key.
    pub(crate) password: Option<Secret>,
}

/// `sslcertmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateMode {
    /// Presents no certificate.
    Disable,
    /// Presents the certificate, if there is one and the server asks for it.
    Allow,
    /// Refuses a server that does not ask for it.
    Require,
}

/// A file that an option names, or that libpq looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileOption {
    /// An option names it. It must exist.
    Named(PathBuf),
    /// In `~/.postgresql`, if it exists there. `None` without a home directory.
    Default(Option<PathBuf>),
}

impl FileOption {
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            FileOption::Named(path) => Some(path),
            FileOption::Default(path) => path.as_deref(),
        }
    }
}

impl ClientCertificate {
    /// Reads the certificate and its key, which blocks. `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`], with the file and the remedy.
    pub(super) fn read(&self, provider: &CryptoProvider) -> Result<Option<Arc<CertifiedKey>>> {
        if self.mode == CertificateMode::Disable {
            return Ok(None);
        }
        let is_there =
            |path: &&Path| matches!(self.certificate, FileOption::Named(_)) || path.exists();
        let Some(path) = self.certificate.path().filter(is_there) else {
            return match self.mode {
                CertificateMode::Require => Err(wrong(
                    "sslcertmode=require needs a client certificate: set sslcert=FILE and sslkey=FILE",
                )),
                _ => Ok(None),
            };
        };
        let chain = read_certificates(path, "client certificate")?;
        let Some(key_path) = self.key.path() else {
            let path = path.display();
            return Err(wrong(format!(
                "the client certificate {path} has no private key: set sslkey=FILE"
            )));
        };
        let key = read_key(key_path, self.password.as_ref())?;
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| {
                key_error(
                    key_path,
                    "has a type that TLS cannot use: use RSA, ECDSA or Ed25519",
                )
                .because(error)
            })?;
        let certified = CertifiedKey::new(chain, key);
        // Any other error means that it cannot be compared, for example X.509 version 1.
        let mismatch = TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch);
        if certified.keys_match() == Err(mismatch) {
            let what = format!("does not belong to the certificate {}", path.display());
            return Err(key_error(key_path, &what));
        }
        Ok(Some(Arc::new(certified)))
    }

    /// Returns the files that [`read`](Self::read) reads.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let is_used = self.mode != CertificateMode::Disable;
        let paths = [self.certificate.path(), self.key.path()];
        paths.into_iter().flatten().filter(move |_| is_used)
    }
}

/// Presents the client certificate of one connection, and remembers that the server asked for it.
#[derive(Debug)]
pub(super) struct Presented {
    pub(super) certificate: Arc<dyn ResolvesClientCert>,
    asked: AtomicBool,
}

impl Presented {
    pub(super) fn new(certificate: Arc<dyn ResolvesClientCert>) -> Self {
        Presented {
            certificate,
            asked: AtomicBool::new(false),
        }
    }

    /// Whether the server asked for a certificate during the handshake.
    pub(super) fn was_asked(&self) -> bool {
        // Relaxed: the handshake runs in the task that reads this.
        self.asked.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for Presented {
    fn resolve(
        &self,
        root_hint_subjects: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        // Relaxed: read by the same task, after the handshake.
        self.asked.store(true, Ordering::Relaxed);
        self.certificate.resolve(root_hint_subjects, schemes)
    }

    fn has_certs(&self) -> bool {
        self.certificate.has_certs()
    }
}

/// Reads all certificates of a PEM file. `what` names their purpose in errors.
pub(super) fn read_certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |problem: &str| wrong(format!("the {what} {} {problem}", path.display()));
    let text = std::fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong("does not exist").because(error),
        _ => wrong("cannot be read").because(error),
    })?;
    let certificates: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|_| wrong("is not a valid PEM file"))?;
    match certificates.is_empty() {
        true => Err(wrong("contains no certificate in PEM format")),
        false => Ok(certificates),
    }
}

fn read_key(path: &Path, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>> {
    let wrong = |problem: &str| key_error(path, problem);
    let text = read_private(path)?;
    let has = |marker: &str| contains(&text, marker.as_bytes());
    let invalid = "contains no private key in PEM or DER format";
    if has(ENCRYPTED) {
        let password = password.ok_or_else(|| wrong("is encrypted: set sslpassword"))?;
        return decrypt(&text, password).map_err(|failure| {
            wrong(match failure {
                encrypted_key::Failure::WrongPassword => {
                    "cannot be decrypted: sslpassword is wrong"
                }
                encrypted_key::Failure::Malformed => "is damaged: it cannot be parsed",
                encrypted_key::Failure::Unsupported => CONVERT,
            })
        });
    }
    if has("Proc-Type: 4,ENCRYPTED") {
        return Err(wrong(CONVERT));
    }
    if has("-----BEGIN ") {
        return PrivateKeyDer::from_pem_slice(&text).map_err(|_| wrong(invalid));
    }
    PrivateKeyDer::try_from(text.to_vec()).map_err(|_| wrong(invalid))
}

const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const CONVERT: &str = "is encrypted by an unsupported scheme; convert it: openssl pkcs8 -topk8 -v2 aes-256-cbc \
                       -v2prf hmacWithSHA256";

fn decrypt(
    text: &[u8],
    password: &Secret,
) -> std::result::Result<PrivateKeyDer<'static>, encrypted_key::Failure> {
    let malformed = encrypted_key::Failure::Malformed;
    let text = std::str::from_utf8(text).map_err(|_| malformed)?;
    let (_, body) = text.split_once(ENCRYPTED).ok_or(malformed)?;
    let (body, _) = body.split_once("-----END").ok_or(malformed)?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = base64::decode(&body).ok_or(malformed)?;
    let mut key = encrypted_key::decrypt(&der, password.expose().as_bytes())?;
    Ok(PrivatePkcs8KeyDer::from(std::mem::take(&mut *key)).into())
}

/// Reads a file that only its owner may read, as libpq does.
fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let wrong = |problem: &str| key_error(path, problem);
    let opened = std::fs::File::open(path);
    let opened = opened.and_then(|file| file.metadata().map(|found| (file, found)));
    let (mut file, metadata) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong("does not exist: set sslkey=FILE").because(error),
        _ => wrong("cannot be read").because(error),
    })?;
    if !metadata.is_file() {
        return Err(wrong("is not a regular file"));
    }
    if is_open_to_others(&metadata) {
        return Err(wrong(
            "is not used, because other users have access to it: chmod 0600 (0640 if root owns it)",
        ));
    }
    // Sized in advance: a buffer that grows leaves copies behind.
    let size = usize::try_from(metadata.len()).unwrap_or_default();
    let mut text = Zeroizing::new(Vec::with_capacity(size + 1));
    file.read_to_end(&mut text)
        .map_err(|error| wrong("cannot be read").because(error))?;
    Ok(text)
}

/// libpq's rule: 0600, or 0640 for a file of root's.
#[cfg(unix)]
fn is_open_to_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let forbidden = match metadata.uid() {
        0 => 0o037,
        _ => 0o077,
    };
    metadata.mode() & forbidden != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &std::fs::Metadata) -> bool {
    false
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

fn key_error(path: &Path, problem: &str) -> Error {
    wrong(format!("the private key {} {problem}", path.display()))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(Kind::Config, message)
}
