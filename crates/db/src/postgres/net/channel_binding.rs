//! `tls-server-end-point` of RFC 5929: a hash of the server's certificate, which binds a login to
//! the TLS connection.
//!
//! The hash function is the one that the certificate is signed with, or SHA-256 instead of MD5 and SHA-1.
//! This file reads only the part of the certificate that names it.

use sha2::{Digest, Sha256, Sha384, Sha512};

use super::der::{OBJECT_ID, SEQUENCE, element};

/// Returns the hash of a certificate; `None` if its signature algorithm has no hash function (Ed25519), or an
/// unknown one.
pub(crate) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    match signature_hash(certificate)? {
        Hash::Sha256 => Some(Sha256::digest(certificate).to_vec()),
        Hash::Sha384 => Some(Sha384::digest(certificate).to_vec()),
        Hash::Sha512 => Some(Sha512::digest(certificate).to_vec()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The first parameter of RSASSA-PSS.
const FIRST: u8 = 0xA0;

/// 1.2.840.113549.1.1, PKCS #1; the last number names the algorithm.
const PKCS1: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01];
/// 1.2.840.10045.4.3, ECDSA with SHA-2.
const ECDSA_SHA2: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03];
/// 1.2.840.10045.4.1, ECDSA with SHA-1.
const ECDSA_SHA1: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x01];
/// 2.16.840.1.101.3.4.2, the hashes of NIST.
const NIST_HASHES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

/// `Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature }`.
fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (_, after) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(after, SEQUENCE)?;
    let (id, parameters) = element(algorithm, OBJECT_ID)?;
    if id == ECDSA_SHA1 {
        return Some(Hash::Sha256);
    }
    let (last, family) = id.split_last()?;
    match (family, last) {
        (PKCS1, 10) => pss_hash(parameters),
        // The RFC replaces MD5 (4) and SHA-1 (5) by SHA-256.
        (PKCS1, 4 | 5 | 11) | (ECDSA_SHA2, 2) => Some(Hash::Sha256),
        (PKCS1, 12) | (ECDSA_SHA2, 3) => Some(Hash::Sha384),
        (PKCS1, 13) | (ECDSA_SHA2, 4) => Some(Hash::Sha512),
        _ => None,
    }
}

/// RSASSA-PSS names its hash in its first parameter; the default is SHA-1, replaced by SHA-256.
fn pss_hash(parameters: &[u8]) -> Option<Hash> {
    let (parameters, _) = element(parameters, SEQUENCE)?;
    let Some((first, _)) = element(parameters, FIRST) else {
        return Some(Hash::Sha256);
    };
    let (algorithm, _) = element(first, SEQUENCE)?;
    let (id, _) = element(algorithm, OBJECT_ID)?;
    match id.split_last()? {
        (1, NIST_HASHES) => Some(Hash::Sha256),
        (2, NIST_HASHES) => Some(Hash::Sha384),
        (3, NIST_HASHES) => Some(Hash::Sha512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A certificate with nothing in it but its signature algorithm.
    fn signed_by(algorithm: &[u8]) -> Vec<u8> {
        let tbs = wrap(SEQUENCE, &[0; 130]);
        wrap(SEQUENCE, &[tbs, wrap(SEQUENCE, algorithm)].concat())
    }

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let header = match length {
            0..0x80 => vec![tag, length],
            _ => vec![tag, 0x81, length],
        };
        [header, content.to_vec()].concat()
    }

    fn id(family: &[u8], last: u8) -> Vec<u8> {
        wrap(OBJECT_ID, &[family, &[last]].concat())
    }

    #[test]
    fn the_hash_is_the_one_of_the_signature() {
        for (algorithm, hash) in [
            (id(PKCS1, 11), Some(Hash::Sha256)),
            (id(PKCS1, 12), Some(Hash::Sha384)),
            (id(PKCS1, 13), Some(Hash::Sha512)),
            (id(ECDSA_SHA2, 2), Some(Hash::Sha256)),
            (id(ECDSA_SHA2, 3), Some(Hash::Sha384)),
            (id(ECDSA_SHA2, 4), Some(Hash::Sha512)),
        ] {
            assert_eq!(
                signature_hash(&signed_by(&algorithm)),
                hash,
                "{algorithm:x?}"
            );
        }
    }

    #[test]
    fn weak_hashes_are_replaced_by_sha_256() {
        for algorithm in [
            id(PKCS1, 4),
            id(PKCS1, 5),
            wrap(OBJECT_ID, ECDSA_SHA1),
            [id(PKCS1, 10), wrap(SEQUENCE, &[])].concat(),
        ] {
            let found = signature_hash(&signed_by(&algorithm));
            assert_eq!(found, Some(Hash::Sha256), "{algorithm:x?}");
        }
    }

    #[test]
    fn rsa_pss_names_its_hash_in_its_parameters() {
        for (last, hash) in [
            (1, Some(Hash::Sha256)),
            (2, Some(Hash::Sha384)),
            (3, Some(Hash::Sha512)),
            (9, None),
        ] {
            let named = wrap(FIRST, &wrap(SEQUENCE, &id(NIST_HASHES, last)));
            let algorithm = [id(PKCS1, 10), wrap(SEQUENCE, &named)].concat();
            assert_eq!(signature_hash(&signed_by(&algorithm)), hash);
        }
    }

    #[test]
    fn a_signature_without_a_hash_has_no_end_point() {
        // 1.3.101.112, Ed25519.
        let algorithm = wrap(OBJECT_ID, &[0x2B, 0x65, 0x70]);
        assert_eq!(tls_server_end_point(&signed_by(&algorithm)), None);
    }

    proptest! {
        #[test]
        fn reading_any_bytes_ends(bytes: Vec<u8>) {
            let _ = tls_server_end_point(&bytes);
            // Also past the outer layers.
            let algorithm = &bytes[..bytes.len().min(100)];
            let _ = tls_server_end_point(&signed_by(algorithm));
        }
    }
}
