//! TLS: the negotiation, and the rustls configuration of a handle.
//!
//! Options have libpq's names and meanings: `require` verifies the certificate only if there is a root certificate, and
//! `prefer` continues without TLS if the server does not offer it.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};

use super::channel_binding::tls_server_end_point;
use super::client_certificate::{CertificateMode, ClientCertificate, Presented};
use super::socket::{Socket, has_data};
use super::verify::{Roots, Verifier};
use crate::driver::Verified;
use crate::{Error, Kind, Result};

/// The options about TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Roots,
    pub(crate) negotiation: Negotiation,
    /// The handshake contains the host name.
    pub(crate) sni: bool,
    pub(crate) client: ClientCertificate,
}

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    /// Never encrypts.
    Disable,
    /// Encrypts only if the server refuses a login without TLS.
    Allow,
    /// Encrypts if the server can.
    Prefer,
    /// Always encrypts. Verifies the certificate only if there is a root certificate.
    Require,
    /// Always encrypts. The certificate must come from a trusted root.
    VerifyCa,
    /// Like `VerifyCa`; the certificate must also match the host.
    VerifyFull,
}

impl SslMode {
    /// Whether a connection without TLS is refused.
    pub(crate) fn needs_tls(self) -> bool {
        matches!(
            self,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull
        )
    }

    /// Whether a certificate that cannot be verified is refused.
    pub(super) fn verifies(self) -> bool {
        matches!(self, SslMode::VerifyCa | SslMode::VerifyFull)
    }
}

/// How TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negotiation {
    /// With a request in clear text, which the server accepts or refuses.
    Request,
    /// With the TLS handshake: one round trip less, from PostgreSQL 17 on.
    Direct,
}

/// Begins TLS for all connections of a template.
pub(crate) struct Tls {
    settings: TlsSettings,
    loaded: Mutex<Option<Loaded>>,
}

/// A rustls configuration, and the files that it was made of.
#[derive(Clone)]
struct Loaded {
    config: Arc<ClientConfig>,
    /// What the configuration verifies.
    verified: Verified,
    files: Vec<FileVersion>,
}

/// A file with its time of modification and its length; `None` if it did not exist.
type FileVersion = (PathBuf, Option<(SystemTime, u64)>);

/// The outcome of a negotiation.
#[derive(Debug)]
pub(crate) enum Negotiated {
    Encrypted(Socket),
    /// The server does not offer TLS; the connection can be used without.
    Refused(TcpStream),
}

/// SSLRequest: its length, and a number in the place of the protocol version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The protocol's name in the handshake of a direct negotiation.
const ALPN: &[u8] = b"postgresql";

impl Tls {
    pub(crate) fn new(settings: TlsSettings) -> Self {
        Tls {
            settings,
            loaded: Mutex::new(None),
        }
    }

    pub(crate) fn mode(&self) -> SslMode {
        self.settings.mode
    }

    #[cfg(test)]
    pub(crate) fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// Begins TLS on a connection.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the connection is closed.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`] for a server that violates the protocol or whose certificate is not trusted;
    /// [`Kind::Config`] for a certificate file that is missing or cannot be used.
    pub(crate) async fn negotiate(
        &self,
        mut tcp: TcpStream,
        name: &str,
        address: IpAddr,
    ) -> Result<Negotiated> {
        // First, because a broken file is an error whatever the server answers.
        let (mut config, verified) = self.client_config().await?;
        if self.settings.negotiation == Negotiation::Request && !request(&mut tcp).await? {
            return Ok(Negotiated::Refused(tcp));
        }
        let server_name = match ServerName::try_from(name.to_owned()) {
            Ok(server_name) => server_name,
            Err(_) if name.is_empty() || self.settings.mode != SslMode::VerifyFull => {
                ServerName::IpAddress(address.into())
            }
            Err(_) => {
                let message =
                    format!("the host {name:?} is not a name that a certificate can be for");
                return Err(failed(message));
            }
        };
        let presented = Presented::new(Arc::clone(&config.client_auth_cert_resolver));
        let presented = Arc::new(presented);
        if self.settings.client.mode == CertificateMode::Require {
            let mut own = ClientConfig::clone(&config);
            own.client_auth_cert_resolver = Arc::clone(&presented) as _;
            config = Arc::new(own);
        }
        let stream = TlsConnector::from(config).connect(server_name, tcp).await;
        let stream = stream.map_err(|error| handshake_error(error, &self.settings, name))?;
        let (_, session) = stream.get_ref();
        if self.settings.negotiation == Negotiation::Direct && session.alpn_protocol() != Some(ALPN)
        {
            return Err(failed(
                "the server speaks TLS, but does not identify itself as PostgreSQL; sslnegotiation=direct \
                 needs PostgreSQL 17",
            ));
        }
        if self.settings.client.mode == CertificateMode::Require && !presented.was_asked() {
            return Err(failed(
                "sslcertmode=require, but the server did not ask for a client certificate; its ssl_ca_file is not set",
            ));
        }
        let certificates = session.peer_certificates().unwrap_or_default();
        let end_point = certificates.first().and_then(|it| tls_server_end_point(it));
        let socket = Socket::encrypted(stream, end_point, verified);
        Ok(Negotiated::Encrypted(socket))
    }

    /// Returns the rustls configuration, and what it verifies. Reads the files again if one of them has changed, so that a renewed
    /// certificate takes effect.
    async fn client_config(&self) -> Result<(Arc<ClientConfig>, Verified)> {
        let settings = self.settings.clone();
        let known = self.lock().clone();
        // A home directory may be on a slow disk.
        let loading = tokio::task::spawn_blocking(move || load(&settings, known));
        let loaded = loading
            .await
            .map_err(|ended| failed("the runtime shut down while connecting").because(ended))??;
        let config = Arc::clone(&loaded.config);
        let verified = loaded.verified;
        *self.lock() = Some(loaded);
        Ok((config, verified))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the server for TLS. Returns false if the server does not offer it.
async fn request(tcp: &mut TcpStream) -> Result<bool> {
    tcp.write_all(&SSL_REQUEST).await.map_err(broken)?;
    match tcp.read_u8().await.map_err(broken)? {
        b'S' => {}
        b'N' => return Ok(false),
        _ => {
            return Err(failed(
                "the answer to the request for TLS is not PostgreSQL's",
            ));
        }
    }
    // The server may send nothing before the client's handshake. A man in the middle could, and
    // its bytes would be taken for bytes that came through TLS.
    match has_data(tcp) {
        true => Err(failed(
            "unencrypted bytes follow the answer to the request for TLS",
        )),
        false => Ok(true),
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Tls").field(&self.settings).finish()
    }
}

/// Makes a configuration, unless the known one is of the same files.
fn load(settings: &TlsSettings, known: Option<Loaded>) -> Result<Loaded> {
    let roots = settings.roots.file().into_iter();
    // Before the files are read, so that a change meanwhile is noticed the next time.
    let files: Vec<_> = roots.chain(settings.client.files()).map(version).collect();
    if let Some(known) = known.as_ref().filter(|known| known.files == files) {
        return Ok(known.clone());
    }
    match (make_config(settings), known) {
        (Ok((config, verified)), _) => Ok(Loaded {
            config,
            verified,
            files,
        }),
        // A renewal of a certificate and its key writes one of the files first.
        (Err(error), Some(known)) => {
            tracing::warn!(%error, "using the previous certificates: the changed files are not valid");
            Ok(known)
        }
        (Err(error), None) => Err(error),
    }
}

fn version(path: &Path) -> FileVersion {
    let found = std::fs::metadata(path).ok();
    let found = found.and_then(|found| Some((found.modified().ok()?, found.len())));
    (path.to_owned(), found)
}

fn make_config(settings: &TlsSettings) -> Result<(Arc<ClientConfig>, Verified)> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::read(settings, Arc::clone(&provider))?;
    let verified = verifier.verifies();
    let certificate = settings.client.read(&provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed("TLS cannot be set up").because(error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match certificate {
        None => config.with_no_client_auth(),
        Some(certificate) => {
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)))
        }
    };
    config.enable_sni = settings.sni;
    if settings.negotiation == Negotiation::Direct {
        config.alpn_protocols = vec![ALPN.to_vec()];
    }
    Ok((Arc::new(config), verified))
}

/// Whether TLS itself failed, and not the server or the network.
pub(crate) fn is_failure(error: &Error) -> bool {
    let inner = error.downcast_ref::<io::Error>();
    inner.and_then(tls_error).is_some()
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Explains an error of the startup that is the server's verdict on the client certificate: in TLS 1.3 that verdict
/// arrives after the handshake.
pub(crate) fn explain(error: Error) -> Error {
    let alert = match error.downcast_ref::<io::Error>().and_then(tls_error) {
        Some(TlsError::AlertReceived(alert)) => *alert,
        _ => return error,
    };
    error.wrapped(Kind::Connect, alert_message(alert))
}

fn alert_message(alert: AlertDescription) -> String {
    let problem = match alert {
        AlertDescription::UnknownCA => "the server's ssl_ca_file does not contain its issuer",
        AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
        AlertDescription::CertificateRevoked => "it is revoked",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError => "it is not valid for this server",
        AlertDescription::CertificateRequired => {
            return "the server requires a client certificate: set sslcert=FILE and sslkey=FILE"
                .to_owned();
        }
        other => return format!("TLS failed: the server sent the alert {other:?}"),
    };
    format!("the server refused the client certificate (sslcert): {problem}")
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(Kind::Connect, message)
}

fn broken(error: io::Error) -> Error {
    failed(format!(
        "the connection broke during the request for TLS: {error}"
    ))
    .because(error)
}

/// The error of a handshake, with its remedy.
fn handshake_error(error: io::Error, settings: &TlsSettings, name: &str) -> Error {
    let message = match tls_error(&error) {
        Some(TlsError::InvalidCertificate(wrong)) => match wrong {
            CertificateError::UnknownIssuer => {
                let roots = match &settings.roots {
                    Roots::System => "the operating system".to_owned(),
                    roots => roots
                        .file()
                        .map_or_else(String::new, |it| it.display().to_string()),
                };
                format!(
                    "the server's certificate is not trusted by {roots}: set sslrootcert=FILE to the \
                     certificate of its issuer"
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!(
                    "the server's certificate is not for {name} (only its subjectAltName counts); \
                     sslmode=verify-ca does not verify the name"
                )
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            wrong => format!("the server's certificate is not trusted: {wrong}"),
        },
        Some(TlsError::AlertReceived(alert)) => alert_message(*alert),
        Some(other) => format!("TLS failed: {other}"),
        None => format!("TLS failed: {error}"),
    };
    failed(message).because(error)
}
