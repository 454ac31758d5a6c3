//! The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as PostgreSQL speaks it.
//!
//! ```text
//! client-first  n,,n=,r=NONCE                        no user name: the startup message has it
//! server-first  r=NONCE+THEIRS,s=SALT,i=ITERATIONS
//! client-final  c=BINDING,r=NONCE+THEIRS,p=PROOF     proves that the client knows the password
//! server-final  v=SIGNATURE                          proves that the server knows it
//! ```
//!
//! This is not a library's SCRAM, because those leave copies of the password and of the derived keys in memory. This
//! one wipes them.

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::crypto::ring;
use zeroize::Zeroizing;

use super::base64;
use super::hmac::{Key, hmac, pbkdf2};

pub(crate) const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
pub(crate) const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// A hostile server could ask for more to keep a processor busy.
const MAX_ITERATIONS: u32 = 100_000;

/// Which TLS connection the login is bound to.
pub(crate) enum Binding {
    /// None: there is no TLS, or its certificate has no hash.
    Unsupported,
    /// None: the client could bind, but the server did not offer it.
    NotOffered,
    /// The connection to the server whose certificate has this hash.
    EndPoint(Vec<u8>),
}

impl Binding {
    fn header(&self) -> &'static str {
        match self {
            Binding::Unsupported => "n,,",
            Binding::NotOffered => "y,,",
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

/// A login that has sent nothing but its first message.
pub(crate) struct Scram {
    nonce: String,
    binding: Binding,
}

/// A login that waits for the server's proof.
pub(crate) struct AwaitingProof {
    signature: [u8; 32],
}

/// Why a login failed, as a clause.
pub(crate) type Failure = &'static str;

impl Scram {
    /// Begins a login with a random nonce.
    ///
    /// # Errors
    ///
    /// The system provides no random numbers.
    pub(crate) fn new(binding: Binding) -> Result<Self, Failure> {
        let mut random = [0; 18];
        let provider = ring::default_provider();
        let filled = provider.secure_random.fill(&mut random);
        filled.map_err(|_| "the operating system provides no random numbers")?;
        Ok(Scram {
            nonce: base64::encode(&random),
            binding,
        })
    }

    /// Returns the client's first message.
    pub(crate) fn first(&self) -> String {
        format!("{}n=,r={}", self.binding.header(), self.nonce)
    }

    /// Returns the answer to the server's first message. Hashes the password, which takes milliseconds.
    ///
    /// # Errors
    ///
    /// The message is not valid, or belongs to another login.
    pub(crate) fn answer(
        self,
        password: &str,
        server_first: &[u8],
    ) -> Result<(String, AwaitingProof), Failure> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| MALFORMED)?;
        let challenge = Challenge::read(server_first).ok_or(MALFORMED)?;
        let is_ours = challenge.nonce.starts_with(&self.nonce);
        if !is_ours || challenge.nonce.len() == self.nonce.len() {
            return Err("the server answered with the nonce of another login");
        }
        if challenge.iterations > MAX_ITERATIONS {
            return Err("the server asked for more than 100000 hash iterations");
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
        Ok((message, AwaitingProof { signature }))
    }
}

const MALFORMED: Failure = "the server sent a malformed SCRAM message";

/// The clause for a server whose proof is wrong.
const NO_PROOF: Failure = "the server did not prove that it knows the password";

impl AwaitingProof {
    /// Checks the server's proof that it knows the password.
    ///
    /// # Errors
    ///
    /// The proof is missing or wrong.
    pub(crate) fn check(&self, server_final: &[u8]) -> Result<(), Failure> {
        let text = std::str::from_utf8(server_final).map_err(|_| MALFORMED)?;
        let first = text.split(',').next().unwrap_or_default();
        let signature = first.strip_prefix("v=").and_then(base64::decode);
        let signature = signature.ok_or(NO_PROOF)?;
        // Compares every byte, so that the time taken reveals nothing.
        let mut differs = signature.len() ^ self.signature.len();
        for (theirs, ours) in signature.iter().zip(self.signature) {
            differs |= usize::from(theirs ^ ours);
        }
        match differs {
            0 => Ok(()),
            _ => Err(NO_PROOF),
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

/// Returns the password after SASLprep and PBKDF2.
fn salted_password(password: &str, salt: &[u8], iterations: u32) -> Key {
    // PostgreSQL uses a password that SASLprep rejects as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let salted = pbkdf2(prepared.as_bytes(), salt, iterations);
    if let std::borrow::Cow::Owned(prepared) = prepared {
        drop(Zeroizing::new(prepared));
    }
    salted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(nonce: &str, binding: Binding) -> Scram {
        Scram {
            nonce: nonce.to_owned(),
            binding,
        }
    }

    /// RFC 7677, section 3, without the user name, which PostgreSQL ignores.
    #[test]
    fn salted_password_is_that_of_the_standard() {
        let salt = base64::decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted_password("pencil", &salt, 4096);
        assert_eq!(
            base64::encode(&*salted),
            "xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
        );
    }

    const FIRST: &str = "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn only_a_server_with_the_right_proof_is_accepted() {
        let scram = login("fyko+d2lbbFgONRv9qkxdawL", Binding::Unsupported);
        assert_eq!(scram.first(), "n,,n=,r=fyko+d2lbbFgONRv9qkxdawL");
        let (message, awaiting) = scram.answer("pencil", FIRST.as_bytes()).unwrap();
        assert!(
            message.starts_with("c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7"),
            "{message}"
        );
        let signature = base64::encode(&awaiting.signature);
        assert_eq!(awaiting.check(format!("v={signature}").as_bytes()), Ok(()));
        for wrong in ["v=", "v=AAAA", "e=other-error", "", "v=????"] {
            assert!(awaiting.check(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let mut other = awaiting.signature;
        other[31] ^= 1;
        let other = format!("v={}", base64::encode(&other));
        assert_eq!(awaiting.check(other.as_bytes()), Err(NO_PROOF));
    }

    #[test]
    fn challenge_for_another_login_is_refused() {
        for first in [
            "",
            "r=other,s=W22Z,i=4096",
            // The server added no nonce of its own.
            "r=fyko,s=W22Z,i=4096",
            "r=fykoX,s=W22Z,i=0",
            "r=fykoX,s=W22Z,i=1000000",
            "r=fykoX,s=W22Z,i=-1",
            "r=fykoX,s=!,i=1",
            "r=fykoX,i=1",
            "m=x,r=fykoX,s=W22Z,i=1",
        ] {
            let scram = login("fyko", Binding::NotOffered);
            assert!(scram.answer("pencil", first.as_bytes()).is_err(), "{first}");
        }
        let scram = login("fyko", Binding::NotOffered);
        assert!(scram.answer("pencil", b"r=\xff").is_err());
    }

    #[test]
    fn login_is_bound_to_the_certificate() {
        let scram = login("fyko", Binding::EndPoint(b"hash".to_vec()));
        assert!(scram.first().starts_with("p=tls-server-end-point,,"));
        let (message, _) = scram.answer("pencil", b"r=fykoX,s=W22Z,i=1").unwrap();
        let bound = base64::encode(b"p=tls-server-end-point,,hash");
        assert!(
            message.starts_with(&format!("c={bound},r=fykoX,p=")),
            "{message}"
        );
    }

    #[test]
    fn every_login_has_its_own_nonce() {
        let nonce = || Scram::new(Binding::Unsupported).unwrap().nonce;
        let one = nonce();
        assert_eq!(one.len(), 24);
        assert_ne!(one, nonce());
        assert!(!one.contains(','));
    }
}
