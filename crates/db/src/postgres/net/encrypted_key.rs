//! Encrypted private keys: PKCS #8 with PBES2 (RFC 5958, RFC 8018), as OpenSSL writes them since version 1.1.
//!
//! Reads PBKDF2 with HMAC-SHA-256 and AES in CBC mode, the default of `openssl pkcs8 -topk8`. The crate `pkcs8` reads
//! more (scrypt, Triple DES, AES-GCM) and brings nineteen crates; this brings six.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockCipherDecrypt, BlockModeDecrypt, BlockSizeUser, KeyInit, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use zeroize::Zeroizing;

use super::super::protocol::hmac::pbkdf2;
use super::der::{INTEGER, OBJECT_ID, OCTETS, SEQUENCE, element, number};

/// Why a key cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Malformed,
    /// A scheme other than PBKDF2 with HMAC-SHA-256 and AES-CBC.
    Unsupported,
    WrongPassword,
}

/// 1.2.840.113549.1.5.13
const PBES2: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x05, 0x0D];
/// 1.2.840.113549.1.5.12
const PBKDF2: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x05, 0x0C];
/// 1.2.840.113549.2.9
const HMAC_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x02, 0x09];
/// 2.16.840.1.101.3.4.1; the last number names key length and mode.
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

/// Decrypts the content of `ENCRYPTED PRIVATE KEY`. Returns the content of `PRIVATE KEY`.
pub(super) fn decrypt(der: &[u8], password: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let encrypted = Encrypted::read(der)?;
    let key = pbkdf2(password, encrypted.salt, encrypted.iterations);
    let mut data = Zeroizing::new(encrypted.data.to_vec());
    let length = match encrypted.cipher {
        2 => decrypt_cbc::<Aes128>(&key[..16], encrypted.iv, &mut data),
        22 => decrypt_cbc::<Aes192>(&key[..24], encrypted.iv, &mut data),
        42 => decrypt_cbc::<Aes256>(&key[..], encrypted.iv, &mut data),
        _ => return Err(Failure::Unsupported),
    }?;
    data.truncate(length);
    // One wrong password in 256 yields valid padding; then the content is no key.
    match element(&data, SEQUENCE) {
        Some((_, [])) => Ok(data),
        _ => Err(Failure::WrongPassword),
    }
}

fn decrypt_cbc<C>(key: &[u8], iv: &[u8], data: &mut [u8]) -> Result<usize, Failure>
where
    C: BlockCipherDecrypt + BlockSizeUser + KeyInit,
{
    let cipher = cbc::Decryptor::<C>::new_from_slices(key, iv).map_err(|_| Failure::Malformed)?;
    let decrypted = cipher.decrypt_padded::<Pkcs7>(data);
    decrypted
        .map(<[u8]>::len)
        .map_err(|_| Failure::WrongPassword)
}

struct Encrypted<'d> {
    salt: &'d [u8],
    iterations: u32,
    /// The last number of the cipher's object identifier.
    cipher: u8,
    iv: &'d [u8],
    data: &'d [u8],
}

impl<'d> Encrypted<'d> {
    /// `SEQUENCE { SEQUENCE { PBES2, SEQUENCE { derivation, cipher } }, OCTET STRING }`
    fn read(der: &'d [u8]) -> Result<Self, Failure> {
        let malformed = Failure::Malformed;
        let (outer, _) = element(der, SEQUENCE).ok_or(malformed)?;
        let (scheme, rest) = element(outer, SEQUENCE).ok_or(malformed)?;
        let (data, _) = element(rest, OCTETS).ok_or(malformed)?;
        let (derivation, cipher) = named(scheme, PBES2)
            .and_then(|parameters| element(parameters, SEQUENCE))
            .and_then(|(parameters, _)| element(parameters, SEQUENCE))
            .ok_or(Failure::Unsupported)?;
        let (salt, iterations) = read_derivation(derivation).ok_or(Failure::Unsupported)?;
        let (cipher, _) = element(cipher, SEQUENCE).ok_or(malformed)?;
        let (id, parameters) = element(cipher, OBJECT_ID).ok_or(malformed)?;
        let (cipher, family) = id.split_last().ok_or(malformed)?;
        if family != AES {
            return Err(Failure::Unsupported);
        }
        let (iv, _) = element(parameters, OCTETS).ok_or(malformed)?;
        Ok(Encrypted {
            salt,
            iterations,
            cipher: *cipher,
            iv,
            data,
        })
    }
}

/// `PBKDF2, SEQUENCE { salt, iterations, key length OPTIONAL, SEQUENCE { HMAC-SHA-256, NULL } }`
fn read_derivation(derivation: &[u8]) -> Option<(&[u8], u32)> {
    let (parameters, _) = element(named(derivation, PBKDF2)?, SEQUENCE)?;
    let (salt, rest) = element(parameters, OCTETS)?;
    let (iterations, rest) = element(rest, INTEGER)?;
    let rest = element(rest, INTEGER).map_or(rest, |(_, rest)| rest);
    // Without a function it would be HMAC-SHA-1.
    let (function, _) = element(rest, SEQUENCE)?;
    named(function, HMAC_SHA256)?;
    Some((salt, number(iterations).filter(|count| *count > 0)?))
}

/// Returns what follows the object identifier `id`, if that comes first.
fn named<'d>(bytes: &'d [u8], id: &[u8]) -> Option<&'d [u8]> {
    let (found, rest) = element(bytes, OBJECT_ID)?;
    (found == id).then_some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::protocol::base64;
    use super::*;

    /// Written by `openssl pkcs8 -topk8 -v2 CIPHER -passout pass:sesame`.
    const KEYS: [(&str, &str); 3] = [
        (
            "aes-128-cbc",
            "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAh3aPEyhgmYYAICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEEDJ9uR9p85Q2PQlNt1wCBikEQOUejdqov/eH1N5O9d4mCE/gfJKpgOPHyj01u/6ClyDu9t3sYjPRHimig3+R2QaVpYi/s8/OdnnqHRNMyDF1Rdo=",
        ),
        (
            "aes-192-cbc",
            "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgA4NsQgUq8pwICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEARYEEIeY9VDnlYSseqwIryHe3rMEQC64AJ/v1mHgv7PovO8Cg0Oh6oJ6Q4kBZyFVkbBd8BiU/EeBpnRxYYyFCZ7YVvj0exW/BBlRxQxL6x1J/17K9r0=",
        ),
        (
            "aes-256-cbc",
            "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhY0Sc2IHjuCAICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEP8vIRnmBGXFk8R16IsllTYEQHbZQYegweJ6wEQZ1gYcCuWRk+VUgx8suwqfafX8VaDETKnNMExXuL5BbFAcw0lzIcAQd6hc2Io0IE9zkqL6NGQ=",
        ),
    ];
    /// The same key, not encrypted.
    const PLAIN: &str = "MC4CAQAwBQYDK2VwBCIEIJQqR+KNpv8JCMxrUh98Y5cfRQhQoslADcJwO8GfR7vs";
    const SHA1: &str = "MIGNMEkGCSqGSIb3DQEFDTA8MBsGCSqGSIb3DQEFDDAOBAhYh6WyQ8YKdgICCAAwHQYJYIZIAWUDBAEqBBBErg5pQ4r867Fqln0VlMhuBEAyZbDnKkUEvxrjPpOIxGJ2BKpHGzuNIyzKS1XOPi0lBWiZPF98kjfYd48bu/FscDitCdnPgp0bx2kHB64vO3DF";
    const SCRYPT: &str = "MIGTME8GCSqGSIb3DQEFDTBCMCEGCSsGAQQB2kcECzAUBAhqN9JI7Ud2MAICQAACAQgCAQEwHQYJYIZIAWUDBAEqBBBe2tVwIjK1XYzN5eEs1mwvBECjM64kfhAIn1HXiTlYp9FBJLk3v1BkHXY3PBoMdFsF/OSGbWOCyQxaX6tjxkK1GiTuNQjkvhcRos8RZBcPiypi";
    const DES3: &str = "MIGKME4GCSqGSIb3DQEFDTBBMCkGCSqGSIb3DQEFDDAcBAgxmdZLSaR4dQICCAAwDAYIKoZIhvcNAgkFADAUBggqhkiG9w0DBwQIbOTMVmNTqn0EODLHwTB6RbyWUeJNed5mupcrvQvv7EQXBzweEVSSTgD8eln7cUKo7h8kWtFXK/ZgDWNsxjhWZoA2";

    fn decoded(text: &str) -> Vec<u8> {
        base64::decode(text).unwrap()
    }

    #[test]
    fn keys_that_openssl_encrypts_are_read() {
        for (cipher, key) in KEYS {
            let decrypted = decrypt(&decoded(key), b"sesame").unwrap();
            assert_eq!(*decrypted, decoded(PLAIN), "{cipher}");
            let wrong = decrypt(&decoded(key), b"Sesame");
            assert_eq!(wrong, Err(Failure::WrongPassword), "{cipher}");
        }
    }

    #[test]
    fn other_schemes_are_unsupported() {
        for key in [SHA1, SCRYPT, DES3] {
            let refused = decrypt(&decoded(key), b"sesame");
            assert_eq!(refused, Err(Failure::Unsupported), "{key}");
        }
        assert_eq!(decrypt(b"no key", b"sesame"), Err(Failure::Malformed));
    }

    proptest! {
        #[test]
        fn reading_a_damaged_key_ends(at in 0..158_usize, byte: u8, length in 0..=158_usize) {
            let mut key = decoded(KEYS[0].1);
            key[at] = byte;
            key.truncate(length);
            let _ = Encrypted::read(&key);
        }
    }
}
