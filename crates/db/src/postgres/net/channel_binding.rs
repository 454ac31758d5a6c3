//! `tls-server-end-point` of RFC 5929: a hash of the server's certificate, which ties a login to
//! the TLS connection that it runs through.
//!
//! The hash is the one that the certificate is signed with, and SHA-256 instead of MD5 and SHA-1.
//! Of the certificate only so much is read as it takes to find that out.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The hash of a certificate; `None` if its signature has no hash of its own, or one that is not
/// known here.
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

const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
/// The first parameter of RSASSA-PSS.
const FIRST: u8 = 0xA0;

/// 1.2.840.113549.1.1, PKCS #1; the last number says which.
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
        // MD5 and SHA-1, for which the RFC puts SHA-256.
        (PKCS1, 4 | 5 | 11) | (ECDSA_SHA2, 2) => Some(Hash::Sha256),
        (PKCS1, 12) | (ECDSA_SHA2, 3) => Some(Hash::Sha384),
        (PKCS1, 13) | (ECDSA_SHA2, 4) => Some(Hash::Sha512),
        _ => None,
    }
}

/// RSASSA-PSS says its hash in the first of its parameters; if it does not, it is SHA-1.
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

/// The content of an element of DER that has this tag, and what comes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    if *found != tag {
        return None;
    }
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short if *short < 0x80 => (usize::from(*short), rest),
        // How many bytes the length has. More than four are none that arrived here.
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if digits.is_empty() || digits.len() > 4 {
                return None;
            }
            let length = digits.iter().fold(0_u64, |n, d| n << 8 | u64::from(*d));
            (usize::try_from(length).ok()?, rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A certificate that is empty but for its signature's algorithm.
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
        fn whatever_the_bytes_are_reading_them_ends(bytes: Vec<u8>) {
            let _ = tls_server_end_point(&bytes);
            // Past the outer layers, too.
            let algorithm = &bytes[..bytes.len().min(100)];
            let _ = tls_server_end_point(&signed_by(algorithm));
        }
    }
}
