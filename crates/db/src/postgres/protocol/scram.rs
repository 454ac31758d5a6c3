//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as PostgreSQL speaks it.
//!
//! ```text
//! client-first  n,,n=,r=NONCE                        what we are called the server knows already
//! server-first  r=NONCE+THEIRS,s=SALT,i=ITERATIONS
//! client-final  c=BINDING,r=NONCE+THEIRS,p=PROOF     we know the password
//! server-final  v=SIGNATURE                          so does the server
//! ```
//!
//! It is here, and not a library's, so that no copy of the password or of what stands for it
//! stays in memory: all of that is wiped.

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::crypto::ring;
use zeroize::Zeroizing;

use super::base64;

pub(crate) const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
pub(crate) const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// A server that asks for more only wants to keep us busy.
const MOST_ITERATIONS: u32 = 100_000;

/// As many bytes as the hash has.
type Key = Zeroizing<[u8; 32]>;

/// What the login is tied to.
pub(crate) enum Binding<'c> {
    /// We could not, there being no TLS.
    Unsupported,
    /// We could, and the server did not offer it.
    Unrequested,
    /// To this hash of the server's certificate.
    EndPoint(&'c [u8]),
}

impl Binding<'_> {
    fn header(&self) -> &'static str {
        match self {
            Binding::Unsupported => "n,,",
            Binding::Unrequested => "y,,",
            Binding::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    fn encoded(&self) -> String {
        let mut data = self.header().as_bytes().to_vec();
        if let Binding::EndPoint(hash) = self {
            data.extend_from_slice(hash);
        }
        base64::encode(&data)
    }
}

/// A login that has begun.
pub(crate) struct Scram<'c> {
    nonce: String,
    binding: Binding<'c>,
}

/// A login whose server has yet to prove itself.
pub(crate) struct Proving {
    signature: [u8; 32],
}

/// Why a login cannot go on; to be read after `the server could not prove it: it `.
pub(crate) type Wrong = &'static str;

impl<'c> Scram<'c> {
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub(crate) fn new(binding: Binding<'c>) -> Result<Self, Wrong> {
        let mut random = [0; 18];
        let provider = ring::default_provider();
        let filled = provider.secure_random.fill(&mut random);
        filled.map_err(|_| "cannot be asked, because the system gives no random numbers")?;
        Ok(Scram {
            nonce: base64::encode(&random),
            binding,
        })
    }

    /// The first message.
    pub(crate) fn first(&self) -> String {
        format!("{}n=,r={}", self.binding.header(), self.nonce)
    }

    /// The answer to the server's first message.
    ///
    /// # Errors
    ///
    /// It is none that a server sends.
    pub(crate) fn answer(
        self,
        password: &str,
        server_first: &[u8],
    ) -> Result<(String, Proving), Wrong> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| "sent no text")?;
        let challenge =
            Challenge::read(server_first).ok_or("sent a challenge that cannot be read")?;
        let is_ours = challenge.nonce.starts_with(&self.nonce);
        if !is_ours || challenge.nonce.len() == self.nonce.len() {
            return Err("answered another login than this one");
        }
        if challenge.iterations > MOST_ITERATIONS {
            return Err("wants the password to be hashed more often than is sensible");
        }
        let salted = salted_password(password, &challenge.salt, challenge.iterations);
        let client_key = hmac(&*salted, &[b"Client Key"]);
        let stored_key = Key::new(Sha256::digest(*client_key).into());
        let bare = format!("c={},r={}", self.binding.encoded(), challenge.nonce);
        let all = format!("n=,r={},{server_first},{bare}", self.nonce);
        let mut proof = hmac(&*stored_key, &[all.as_bytes()]);
        for (proof, key) in proof.iter_mut().zip(*client_key) {
            *proof ^= key;
        }
        let server_key = hmac(&*salted, &[b"Server Key"]);
        let signature = *hmac(&*server_key, &[all.as_bytes()]);
        let message = format!("{bare},p={}", base64::encode(&*proof));
        Ok((message, Proving { signature }))
    }
}

impl Proving {
    /// The server knows the password, too.
    ///
    /// # Errors
    ///
    /// It does not.
    pub(crate) fn check(&self, server_final: &[u8]) -> Result<(), Wrong> {
        let text = std::str::from_utf8(server_final).map_err(|_| "sent no text")?;
        let first = text.split(',').next().unwrap_or_default();
        let signature = first.strip_prefix("v=").and_then(base64::decode);
        let signature = signature.ok_or("sent no signature")?;
        // All of it is looked at: how long that takes tells nothing.
        let mut differs = signature.len() ^ self.signature.len();
        for (theirs, ours) in signature.iter().zip(self.signature) {
            differs |= usize::from(theirs ^ ours);
        }
        match differs {
            0 => Ok(()),
            _ => Err("does not know the password"),
        }
    }
}

/// The server's first message.
struct Challenge<'m> {
    nonce: &'m str,
    salt: Vec<u8>,
    iterations: u32,
}

impl<'m> Challenge<'m> {
    fn read(text: &'m str) -> Option<Self> {
        let mut fields = text.split(',');
        let nonce = fields.next()?.strip_prefix("r=")?;
        let salt = base64::decode(fields.next()?.strip_prefix("s=")?)?;
        let iterations = fields.next()?.strip_prefix("i=")?.parse().ok()?;
        (iterations > 0).then_some(Challenge {
            nonce,
            salt,
            iterations,
        })
    }
}

/// The password, hashed so often that guessing takes long.
fn salted_password(password: &str, salt: &[u8], iterations: u32) -> Key {
    // As PostgreSQL does it: what cannot be prepared is taken as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let keyed = Keyed::new(prepared.as_bytes());
    if let std::borrow::Cow::Owned(prepared) = prepared {
        drop(Zeroizing::new(prepared));
    }
    let mut last = keyed.hash(&[salt, &1_u32.to_be_bytes()]);
    let mut salted = last.clone();
    for _ in 1..iterations {
        last = keyed.hash(&[&*last]);
        for (salted, last) in salted.iter_mut().zip(*last) {
            *salted ^= last;
        }
    }
    salted
}

fn hmac(key: &[u8], message: &[&[u8]]) -> Key {
    Keyed::new(key).hash(message)
}

/// HMAC-SHA-256 (RFC 2104) with a key that has been hashed in already: that is half of the work.
struct Keyed {
    inner: Sha256,
    outer: Sha256,
}

/// The block of SHA-256.
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

    fn login<'c>(nonce: &str, binding: Binding<'c>) -> Scram<'c> {
        Scram {
            nonce: nonce.to_owned(),
            binding,
        }
    }

    /// RFC 4231, cases 1, 2 and 6: a short key, a text as a key, one that is longer than a block.
    #[test]
    fn the_keyed_hash_is_that_of_the_standard() {
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

    /// RFC 7677, section 3, without the name, which PostgreSQL does not look at.
    #[test]
    fn the_salted_password_is_that_of_the_standard() {
        let salt = base64::decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted_password("pencil", &salt, 4096);
        assert_eq!(
            base64::encode(&*salted),
            "xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
        );
    }

    const FIRST: &str = "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn a_server_that_knows_the_password_is_believed_and_no_other() {
        let scram = login("fyko+d2lbbFgONRv9qkxdawL", Binding::Unsupported);
        assert_eq!(scram.first(), "n,,n=,r=fyko+d2lbbFgONRv9qkxdawL");
        let (message, proving) = scram.answer("pencil", FIRST.as_bytes()).unwrap();
        assert!(
            message.starts_with("c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7"),
            "{message}"
        );
        let signature = base64::encode(&proving.signature);
        assert_eq!(proving.check(format!("v={signature}").as_bytes()), Ok(()));
        for wrong in ["v=", "v=AAAA", "e=other-error", "", "v=????"] {
            assert!(proving.check(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let mut other = proving.signature;
        other[31] ^= 1;
        let other = format!("v={}", base64::encode(&other));
        assert_eq!(
            proving.check(other.as_bytes()),
            Err("does not know the password")
        );
    }

    #[test]
    fn a_challenge_that_is_not_for_this_login_is_refused() {
        for first in [
            "",
            "r=other,s=W22Z,i=4096",
            // The server has added nothing of its own.
            "r=fyko,s=W22Z,i=4096",
            "r=fykoX,s=W22Z,i=0",
            "r=fykoX,s=W22Z,i=1000000",
            "r=fykoX,s=W22Z,i=-1",
            "r=fykoX,s=!,i=1",
            "r=fykoX,i=1",
            "m=x,r=fykoX,s=W22Z,i=1",
        ] {
            let scram = login("fyko", Binding::Unrequested);
            assert!(scram.answer("pencil", first.as_bytes()).is_err(), "{first}");
        }
        let scram = login("fyko", Binding::Unrequested);
        assert!(scram.answer("pencil", b"r=\xff").is_err());
    }

    #[test]
    fn a_login_is_tied_to_the_certificate_where_there_is_one() {
        let scram = login("fyko", Binding::EndPoint(b"hash"));
        assert!(scram.first().starts_with("p=tls-server-end-point,,"));
        let (message, _) = scram.answer("pencil", b"r=fykoX,s=W22Z,i=1").unwrap();
        let bound = base64::encode(b"p=tls-server-end-point,,hash");
        assert!(
            message.starts_with(&format!("c={bound},r=fykoX,p=")),
            "{message}"
        );
    }

    #[test]
    fn no_two_logins_begin_alike() {
        let nonce = || Scram::new(Binding::Unsupported).unwrap().nonce;
        let one = nonce();
        assert_eq!(one.len(), 24);
        assert_ne!(one, nonce());
        assert!(!one.contains(','));
    }
}
