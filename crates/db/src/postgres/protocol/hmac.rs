//! HMAC-SHA-256 (RFC 2104), and PBKDF2 (RFC 8018) with it, which SCRAM and encrypted keys use.
//!
//! The crates for these keep copies of the password in memory. This file wipes all that it derives from one.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// As many bytes as the hash has.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// Returns the first 32 bytes that PBKDF2 derives from a password.
pub(crate) fn pbkdf2(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let keyed = Keyed::new(password);
    let mut last = keyed.hash(&[salt, &1_u32.to_be_bytes()]);
    let mut derived = last.clone();
    for _ in 1..iterations {
        last = keyed.hash(&[&*last]);
        for (derived, last) in derived.iter_mut().zip(*last) {
            *derived ^= last;
        }
    }
    derived
}

pub(crate) fn hmac(key: &[u8], message: &[&[u8]]) -> Key {
    Keyed::new(key).hash(message)
}

/// HMAC-SHA-256 whose key is hashed once for all messages, which is half of the work.
struct Keyed {
    inner: Sha256,
    outer: Sha256,
}

/// The block size of SHA-256.
const BLOCK: usize = 64;

impl Keyed {
    fn new(key: &[u8]) -> Self {
        let mut block = Zeroizing::new([0; BLOCK]);
        if key.len() > BLOCK {
            let hashed = Key::new(Sha256::digest(key).into());
            block[..hashed.len()].copy_from_slice(&*hashed);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad: u8| {
            let padded = Zeroizing::new(block.map(|byte| byte ^ pad));
            Sha256::new_with_prefix(*padded)
        };
        Keyed {
            inner: padded(0x36),
            outer: padded(0x5c),
        }
    }

    fn hash(&self, message: &[&[u8]]) -> Key {
        let mut inner = self.inner.clone();
        for part in message {
            inner.update(part);
        }
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        Key::new(outer.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, cases 1, 2 and 6: short keys, and a key longer than a block.
    #[test]
    fn hmac_gives_the_values_of_the_standard() {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        for (key, message, hash) in [
            (
                vec![0x0b; 20],
                "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&*hmac(&key, &[message.as_bytes()])), hash);
        }
    }

    /// RFC 7914, section 11: the first half of its 64 bytes.
    #[test]
    fn pbkdf2_gives_the_values_of_the_standard() {
        let derived = pbkdf2(b"passwd", b"salt", 1);
        let expected = [
            0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f, 0xec, 0x16, 0x91, 0xc2, 0x25, 0x44,
            0xb6, 0x05, 0xf9, 0x41, 0x85, 0x21, 0x6d, 0xde, 0x04, 0x65, 0xe6, 0x8b, 0x9d, 0x57,
            0xc2, 0x0d, 0xac, 0xbc,
        ];
        assert_eq!(*derived, expected);
    }
}
