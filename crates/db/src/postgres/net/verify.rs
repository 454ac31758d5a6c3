//! Verifies the server's certificate as libpq does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore,
    SignatureScheme,
};

use super::client_certificate::read_certificates;
use super::tls::{SslMode, TlsSettings, failed};
use crate::driver::Verified;
use crate::{Error, Kind, Result};

type Verdict<T> = std::result::Result<T, TlsError>;

/// Where the root certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// In this file.
    File(PathBuf),
    /// In libpq's file, if that exists. `None` without a home directory.
    Default(Option<PathBuf>),
    /// In the operating system's store.
    System,
}

impl Roots {
    /// Returns the file, for all but the operating system's store.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Roots::File(path) => Some(path),
            Roots::Default(path) => path.as_deref(),
            Roots::System => None,
        }
    }

    /// Returns the certificates to trust; `None` if this mode accepts any certificate.
    fn read(&self, mode: SslMode) -> Result<Option<Vec<CertificateDer<'static>>>> {
        let path = match self {
            Roots::System => return system_roots().map(Some),
            Roots::File(path) if mode.verifies() || path.exists() => path,
            Roots::Default(Some(path)) if path.exists() => path,
            // As in libpq, a missing file is an error only for the modes that verify.
            _ if !mode.verifies() => return Ok(None),
            _ => {
                let message = "no root certificate to verify the server by: set sslrootcert=FILE, \
                               sslrootcert=system for the operating system's certificates, or an \
                               sslmode that does not verify";
                return Err(Error::new(Kind::Config, message));
            }
        };
        read_certificates(path, "root certificate").map(Some)
    }
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    let message = "sslrootcert=system: the operating system has no trusted certificates; install its CA \
                   certificates, or set SSL_CERT_FILE to a file of them";
    let error = Error::new(Kind::Config, message);
    Err(match found.errors.into_iter().next() {
        Some(cause) => error.because(cause),
        None => error,
    })
}

/// Verifies certificates as libpq does.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Which certificates are accepted.
#[derive(Debug)]
enum Trust {
    Any,
    Chain {
        by_roots: Arc<WebPkiServerVerifier>,
        roots: Vec<CertificateDer<'static>>,
        verify_name: bool,
    },
}

impl Verifier {
    /// Reads the root certificates, which blocks.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if there are none where the mode needs them.
    pub(super) fn read(settings: &TlsSettings, provider: Arc<CryptoProvider>) -> Result<Self> {
        let trust = match settings.roots.read(settings.mode)? {
            None => Trust::Any,
            Some(roots) => {
                let verify_name = settings.mode == SslMode::VerifyFull;
                Trust::chain(roots, verify_name, &provider)?
            }
        };
        Ok(Verifier { trust, provider })
    }

    /// Returns what this verifier verifies.
    pub(super) fn verifies(&self) -> Verified {
        match &self.trust {
            Trust::Any => Verified::Nothing,
            Trust::Chain {
                verify_name: false, ..
            } => Verified::Certificate,
            Trust::Chain {
                verify_name: true, ..
            } => Verified::CertificateAndHost,
        }
    }
}

impl Trust {
    fn chain(
        roots: Vec<CertificateDer<'static>>,
        verify_name: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self> {
        let mut store = RootCertStore::empty();
        let (taken, _) = store.add_parsable_certificates(roots.iter().cloned());
        if taken == 0 {
            let message = "none of the root certificates is a valid X.509 certificate of version 3";
            return Err(Error::new(Kind::Config, message));
        }
        let by_roots =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(|error| failed("TLS cannot be set up").because(error))?;
        Ok(Trust::Chain {
            by_roots,
            roots,
            verify_name,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Verdict<ServerCertVerified> {
        let Trust::Chain {
            by_roots,
            roots,
            verify_name,
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
            // rustls checks the name last: everything else is valid.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !verify_name => Ok(ServerCertVerified::assertion()),
            // A self-signed certificate that is itself a root: usual for a server that was set up
            // by hand. rustls has checked its dates before it reports this.
            Err(TlsError::InvalidCertificate(CertificateError::Other(ref other)))
                if is_own_authority(other) && roots.contains(&certificate.clone().into_owned()) =>
            {
                if *verify_name {
                    let parsed = ParsedCertificate::try_from(certificate)?;
                    verify_server_name(&parsed, server_name)?;
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
    ) -> Verdict<HandshakeSignatureValid> {
        verify_tls12_signature(
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
    ) -> Verdict<HandshakeSignatureValid> {
        verify_tls13_signature(
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

/// rustls has no error of its own for a server that presents the certificate of an authority.
fn is_own_authority(error: &OtherError) -> bool {
    error.to_string().contains("CaUsedAsEndEntity")
}
