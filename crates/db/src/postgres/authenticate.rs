//! The login: proves to the server who the user is, by the method that the server asks for.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::message::frontend;
use zeroize::Zeroizing;

use super::config::{ChannelBinding, Config, Login};
use super::error;
use super::protocol::message::{Reader, lossy};
use super::protocol::scram::{
    AwaitingProof, Binding, Failure, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, Scram,
};
use super::require_auth::{Method, RequireAuth};
use super::startup::Started;
use crate::driver::Secret;
use crate::{Error, Kind, Result};

const OK: i32 = 0;
const CLEAR_TEXT: i32 = 3;
const MD5: i32 = 5;
const GSS: i32 = 7;
const SSPI: i32 = 9;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Logs in by the method that the server asks for.
///
/// # Cancel safety
///
/// If dropped, the login is incomplete: the caller closes the socket.
///
/// # Errors
///
/// [`Kind::Connect`] if the server refuses the login, or asks for a method that is not allowed or not supported.
pub(super) async fn authenticate(
    started: &mut Started,
    login: &Login,
    config: &Config,
) -> Result<()> {
    let (method, rest) = next_step(started).await?;
    check_allowed(method, config.require_auth)?;
    let bound = config.channel_binding == ChannelBinding::Require;
    if bound && method != SASL {
        let message = "channel_binding=require, but the server does not ask for a SCRAM login";
        return Err(Error::new(Kind::Connect, message));
    }
    match method {
        OK => return Ok(()),
        CLEAR_TEXT => started.send_password(password(login)?.expose().as_bytes())?,
        MD5 => {
            let salt = rest.try_into();
            let salt = salt.map_err(|_| started.wire.garbage("the salt is not four bytes long"))?;
            let password = password(login)?.expose().as_bytes();
            let hash = md5_hash(login.user.as_bytes(), password, salt);
            started.send_password(Zeroizing::new(hash).as_bytes())?;
        }
        SASL => scram(started, login, config, &rest).await?,
        other => return Err(unsupported(other)),
    }
    match next_step(started).await? {
        (OK, _) => Ok(()),
        _ => Err(started.wire.garbage("the login has one step too many")),
    }
}

/// Refuses a method that `require_auth` does not allow, before anything derived from the password is sent.
fn check_allowed(asked: i32, allowed: RequireAuth) -> Result<()> {
    let method = match asked {
        OK => Method::None,
        CLEAR_TEXT => Method::Password,
        MD5 => Method::Md5,
        SASL => Method::ScramSha256,
        // All other methods are refused as unsupported.
        _ => return Ok(()),
    };
    if allowed.allows(method) {
        return Ok(());
    }
    let asks = match method {
        Method::None => "asks for no login",
        Method::Password => "asks for the password in clear text",
        _ => "asks for a login by another method",
    };
    let message = format!(
        "the server {asks} ({}), which require_auth does not allow; nothing was sent",
        method.name()
    );
    Err(Error::new(Kind::Connect, message))
}

fn unsupported(method: i32) -> Error {
    let name = match method {
        GSS => "gss".to_owned(),
        SSPI => "sspi".to_owned(),
        other => format!("number {other}"),
    };
    let message = format!(
        "the server asks for a login method that this driver does not support ({name}); it supports scram-sha-256, \
         md5, password and client certificates, which pg_hba.conf selects"
    );
    Error::new(Kind::Connect, message)
}

/// Returns the next step that the server asks for, and its data.
async fn next_step(started: &mut Started) -> Result<(i32, Vec<u8>)> {
    let frame = started.next().await?;
    let mut body = Reader(started.wire.body(frame));
    let step = body.i32().filter(|_| frame.tag == b'R');
    let rest = body.0.to_vec();
    started.wire.consume(frame);
    match step {
        Some(step) => Ok((step, rest)),
        None => Err(started
            .wire
            .garbage("an unexpected message during the login")),
    }
}

fn password(login: &Login) -> Result<&Secret> {
    login.password.as_ref().ok_or_else(|| {
        let message = format!(
            "the server asks for the password of user {:?}, but none is configured: set it in the DSN, the builder, \
             a service file, PGPASSWORD or the password file",
            login.user
        );
        Error::new(Kind::Connect, message)
    })
}

async fn scram(
    started: &mut Started,
    login: &Login,
    config: &Config,
    mechanisms: &[u8],
) -> Result<()> {
    let (mechanism, binding) = choose(started, config, mechanisms)?;
    let scram = Scram::new(binding).map_err(failed)?;
    started.send(|out| {
        frontend::sasl_initial_response(mechanism, scram.first().as_bytes(), out)
            .map_err(|_| error::has_nul("the login"))
    })?;
    let challenge = sasl_step(started, SASL_CONTINUE).await?;
    let (message, awaiting) = answer(scram, password(login)?.clone(), challenge).await?;
    started.send(|out| {
        frontend::sasl_response(message.as_bytes(), out).map_err(|_| error::has_nul("the login"))
    })?;
    let proof = sasl_step(started, SASL_FINAL).await?;
    awaiting.check(&proof).map_err(failed)
}

/// Chooses one of the mechanisms that the server offers: with channel binding where both sides can.
fn choose(
    started: &Started,
    config: &Config,
    mechanisms: &[u8],
) -> Result<(&'static str, Binding)> {
    let offered = || mechanisms.split(|byte| *byte == 0);
    let offers = |name: &str| offered().any(|it| it == name.as_bytes());
    let end_point = started.wire.socket().tls_server_end_point();
    let end_point = end_point.filter(|_| config.channel_binding != ChannelBinding::Disable);
    let (mechanism, binding) = match end_point {
        Some(end_point) if offers(SCRAM_SHA_256_PLUS) => {
            (SCRAM_SHA_256_PLUS, Binding::EndPoint(end_point.to_vec()))
        }
        // Tells the server that the client could bind: a server whose offer a man in the
        // middle has removed then refuses the login.
        Some(_) => (SCRAM_SHA_256, Binding::NotOffered),
        None => (SCRAM_SHA_256, Binding::Unsupported),
    };
    if config.channel_binding == ChannelBinding::Require && mechanism != SCRAM_SHA_256_PLUS {
        let message = "channel_binding=require needs TLS and a server that offers SCRAM-SHA-256-PLUS; this \
                       connection lacks one of them";
        return Err(Error::new(Kind::Connect, message));
    }
    if !offers(mechanism) {
        let offered: Vec<_> = offered().filter(|it| !it.is_empty()).map(lossy).collect();
        let message = format!(
            "the server offers logins by {}, but this driver supports {SCRAM_SHA_256} only",
            offered.join(", ")
        );
        return Err(Error::new(Kind::Connect, message));
    }
    Ok((mechanism, binding))
}

/// Computes the answer to the server's challenge on a thread for blocking work: thousands of hash iterations
/// would hold up every task of the executor's thread.
///
/// # Cancel safety
///
/// If dropped, the thread ends its computation and wipes its copy of the password.
async fn answer(
    scram: Scram,
    password: Secret,
    challenge: Vec<u8>,
) -> Result<(String, AwaitingProof)> {
    let hashing = tokio::task::spawn_blocking(move || scram.answer(password.expose(), &challenge));
    let answered = hashing.await.map_err(|ended| {
        let message = "the runtime shut down during the login";
        Error::new(Kind::Connect, message).because(ended)
    })?;
    answered.map_err(failed)
}

async fn sasl_step(started: &mut Started, wanted: i32) -> Result<Vec<u8>> {
    match next_step(started).await? {
        (step, data) if step == wanted => Ok(data),
        _ => Err(started
            .wire
            .garbage("the steps of the login are out of order")),
    }
}

fn failed(why: Failure) -> Error {
    Error::new(Kind::Connect, format!("the SCRAM login failed: {why}"))
}
