//! TLS: whether, how the server's certificate is checked, and what ties a login to it.
//!
//! The words are libpq's and so is their meaning: what `require` does depends on whether there is a
//! root certificate, and `prefer` goes on without TLS where it cannot be had.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme,
};

use super::channel_binding::tls_server_end_point;
use super::socket::{Socket, has_data};
use crate::driver::Verified;
use crate::{Error, Kind, Result};

/// What a DSN says about TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Roots,
    pub(crate) negotiation: Negotiation,
    /// The server is told by which name it is meant.
    pub(crate) sni: bool,
}

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    /// Never.
    Disable,
    /// Only if the server refuses to go on without.
    Allow,
    /// If the server can.
    Prefer,
    /// Always. The certificate is checked only if there is a root certificate.
    Require,
    /// Always, and the certificate must come from a root that is trusted.
    VerifyCa,
    /// And it must be for the host that was asked for.
    VerifyFull,
}

impl SslMode {
    /// There is no connection without TLS.
    pub(crate) fn needs_tls(self) -> bool {
        matches!(
            self,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull
        )
    }

    fn verifies(self) -> bool {
        matches!(self, SslMode::VerifyCa | SslMode::VerifyFull)
    }
}

/// Where the root certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// In a file that was named.
    File(PathBuf),
    /// In libpq's file, if it is there. `None` where there is no home directory.
    Default(Option<PathBuf>),
    /// Those of the operating system.
    System,
}

/// How TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negotiation {
    /// The server is asked first.
    Asked,
    /// At once: one round trip less, from PostgreSQL 17 on.
    Direct,
}

/// Begins TLS for all connections of a template. What it reads from files it reads once.
pub(crate) struct Tls {
    settings: TlsSettings,
    loaded: Mutex<Option<(Arc<ClientConfig>, Verified)>>,
}

/// What became of asking for TLS.
#[derive(Debug)]
pub(crate) enum Negotiated {
    Encrypted(Socket),
    /// The server has none; the connection is fine without.
    Refused(TcpStream),
}

/// A request of eight bytes: its length, and a number that is no version of the protocol.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What this protocol is called where TLS begins at once.
const ALPN: &[u8] = b"postgresql";

/// Where the certificates that the operating system trusts may be, in one file.
const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

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
    pub(crate) fn roots(&self) -> &Roots {
        &self.settings.roots
    }

    /// Asks the server for TLS, or just begins, as the settings want it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is closed.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`] for a server that breaks the rules or whose certificate is not
    /// trusted; [`Kind::Config`] if there is no root certificate where one is needed.
    pub(crate) async fn negotiate(
        &self,
        mut tcp: TcpStream,
        name: &str,
        address: IpAddr,
    ) -> Result<Negotiated> {
        // Before anything is asked: without a root certificate there is no need to.
        let (config, verified) = self.client_config().await?;
        if self.settings.negotiation == Negotiation::Asked {
            tcp.write_all(&SSL_REQUEST).await.map_err(broken)?;
            match tcp.read_u8().await.map_err(broken)? {
                b'S' => {}
                b'N' => return Ok(Negotiated::Refused(tcp)),
                _ => {
                    return Err(failed(
                        "the answer to the question for TLS is none that PostgreSQL gives",
                    ));
                }
            }
            // Nothing may come now before the client has spoken. What does is from somebody in
            // between, who wants it to be taken for an answer that came through TLS.
            if has_data(&tcp) {
                return Err(failed(
                    "there are unencrypted bytes after the answer to the question for TLS",
                ));
            }
        }
        let server_name = match ServerName::try_from(name.to_owned()) {
            Ok(server_name) => server_name,
            Err(_) if name.is_empty() || self.settings.mode != SslMode::VerifyFull => {
                ServerName::IpAddress(address.into())
            }
            Err(_) => {
                let message = format!("no certificate can be for a host that is called {name:?}");
                return Err(failed(message));
            }
        };
        let connector = TlsConnector::from(config);
        let stream = connector.connect(server_name, tcp).await;
        let stream = stream.map_err(|error| not_trusted(error, &self.settings, name))?;
        let (_, session) = stream.get_ref();
        if self.settings.negotiation == Negotiation::Direct && session.alpn_protocol() != Some(ALPN)
        {
            return Err(failed(
                "the server speaks TLS, but does not say that it is PostgreSQL; sslnegotiation=direct \
                 needs PostgreSQL 17",
            ));
        }
        let certificates = session.peer_certificates().unwrap_or_default();
        let end_point = certificates.first().and_then(|it| tls_server_end_point(it));
        let socket = Socket::encrypted(stream, end_point, verified);
        Ok(Negotiated::Encrypted(socket))
    }

    /// Rustls' own configuration, made when it is first needed. An error is not kept: the file
    /// may be there next time.
    async fn client_config(&self) -> Result<(Arc<ClientConfig>, Verified)> {
        if let Some(loaded) = &*self.loaded.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(loaded.clone());
        }
        let settings = self.settings.clone();
        // Files are read where nobody is kept waiting but this connect.
        let made = tokio::task::spawn_blocking(move || make_config(&settings)).await;
        let made = made.map_err(|_| failed("the executor ended while connecting"))??;
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Tls").field(&self.settings).finish()
    }
}

fn make_config(settings: &TlsSettings) -> Result<(Arc<ClientConfig>, Verified)> {
    let provider = Arc::new(ring::default_provider());
    let trust = match read_roots(settings)? {
        None => Trust::Anybody,
        Some(certificates) => Trust::chain(certificates, settings.mode, &provider)?,
    };
    let verified = trust.verifies();
    let verifier = Verifier {
        trust,
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed("TLS cannot be set up").because(error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.enable_sni = settings.sni;
    if settings.negotiation == Negotiation::Direct {
        config.alpn_protocols = vec![ALPN.to_vec()];
    }
    Ok((Arc::new(config), verified))
}

/// The certificates to trust; `None` if any is fine.
fn read_roots(settings: &TlsSettings) -> Result<Option<Vec<CertificateDer<'static>>>> {
    let path = match &settings.roots {
        Roots::File(path) => Some(path.clone()),
        Roots::Default(path) => path.clone().filter(|path| path.exists()),
        Roots::System => Some(system_roots()?),
    };
    let Some(path) = path else {
        return match settings.mode.verifies() {
            false => Ok(None),
            true => Err(Error::new(
                Kind::Config,
                "there is no root certificate to check the server's by: name one \
                 (sslrootcert=FILE, or sslrootcert=system for those of the operating system), \
                 or choose an sslmode that checks less",
            )),
        };
    };
    // As in libpq: only who insists on a check is stopped by a file that is not there.
    if !settings.mode.verifies() && !path.exists() {
        return Ok(None);
    }
    read_certificates(&path).map(Some)
}

fn system_roots() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("SSL_CERT_FILE").filter(|it| !it.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let found = SYSTEM_ROOTS.iter().map(PathBuf::from);
    found.into_iter().find(|path| path.exists()).ok_or_else(|| {
        let message = "sslrootcert=system: the operating system's certificates are not where they \
                       usually are; SSL_CERT_FILE can say where";
        Error::new(Kind::Config, message)
    })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |what: &str| {
        let path = path.display();
        Error::new(Kind::Config, format!("the root certificate {path} {what}"))
    };
    let text = std::fs::read(path).map_err(|error| wrong("cannot be read").because(error))?;
    let certificates: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let certificates =
        certificates.map_err(|_| wrong("is not in the PEM format, as it has to be"))?;
    match certificates.is_empty() {
        true => Err(wrong("has no certificate in it")),
        false => Ok(certificates),
    }
}

/// Whose certificate is good.
#[derive(Debug)]
enum Trust {
    Anybody,
    Chain {
        by_roots: Arc<WebPkiServerVerifier>,
        roots: Vec<CertificateDer<'static>>,
        name_counts: bool,
    },
}

impl Trust {
    fn verifies(&self) -> Verified {
        match self {
            Trust::Anybody => Verified::Nothing,
            Trust::Chain { name_counts, .. } => match name_counts {
                false => Verified::Certificate,
                true => Verified::CertificateAndHost,
            },
        }
    }

    fn chain(
        roots: Vec<CertificateDer<'static>>,
        mode: SslMode,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self> {
        let mut store = RootCertStore::empty();
        let (taken, _) = store.add_parsable_certificates(roots.iter().cloned());
        if taken == 0 {
            let message = "none of the root certificates can be used to check another";
            return Err(Error::new(Kind::Config, message));
        }
        let by_roots =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(|error| failed("TLS cannot be set up").because(error))?;
        Ok(Trust::Chain {
            by_roots,
            roots,
            name_counts: mode == SslMode::VerifyFull,
        })
    }
}

/// Checks certificates as libpq does.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, TlsError> {
        let Trust::Chain {
            by_roots,
            roots,
            name_counts,
        } = &self.trust
        else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict = by_roots.verify_server_cert(
            certificate,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verdict {
            // The name is looked at last: everything else was right.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !name_counts => Ok(ServerCertVerified::assertion()),
            // A certificate that signed itself, and is trusted itself: the usual way of a server
            // that was set up by hand. Its dates are looked at before that.
            Err(TlsError::InvalidCertificate(CertificateError::Other(ref other)))
                if is_own_authority(other) && roots.contains(&certificate.clone().into_owned()) =>
            {
                if *name_counts {
                    let parsed =
                        tokio_rustls::rustls::server::ParsedCertificate::try_from(certificate)?;
                    tokio_rustls::rustls::client::verify_server_name(&parsed, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        tokio_rustls::rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        tokio_rustls::rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Rustls has no word of its own for a certificate of an authority that a server shows as its own.
fn is_own_authority(error: &tokio_rustls::rustls::OtherError) -> bool {
    error.to_string().contains("CaUsedAsEndEntity")
}

/// It was TLS that failed, and not the server or the way there.
pub(crate) fn is_failure(error: &Error) -> bool {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<TlsError>())
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(Kind::Connect, message)
}

fn broken(error: io::Error) -> Error {
    failed(format!(
        "the connection broke while TLS was asked for: {error}"
    ))
    .because(error)
}

/// The error of a handshake, with what can be done about it.
fn not_trusted(error: io::Error, settings: &TlsSettings, name: &str) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let message = match inner {
        Some(TlsError::InvalidCertificate(wrong)) => match wrong {
            CertificateError::UnknownIssuer => {
                let roots = match &settings.roots {
                    Roots::File(path) => format!("by {}", path.display()),
                    Roots::Default(_) => "by ~/.postgresql/root.crt".to_owned(),
                    Roots::System => "by the operating system".to_owned(),
                };
                format!(
                    "the server's certificate is not trusted {roots}; sslrootcert=FILE names the \
                     certificate of who signed it"
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!(
                    "the server's certificate is not for {name} (only its subjectAltName counts); \
                     sslmode=verify-ca does not look at the name"
                )
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            wrong => format!("the server's certificate is not trusted: {wrong}"),
        },
        Some(other) => format!("TLS failed: {other}"),
        None => format!("TLS failed: {error}"),
    };
    failed(message).because(error)
}
