//! Which servers a program asks for: `target_session_attrs` and `load_balance_hosts`.

use std::sync::Arc;

use super::{HostRole, Hosts};
use crate::driver::OptionReader;
use crate::{Error, Kind, Result};

/// `target_session_attrs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionAttrs {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby if there is one; else any server.
    PreferStandby,
}

impl SessionAttrs {
    /// Returns whether a server of this role is acceptable.
    pub(crate) fn fits(self, role: HostRole) -> bool {
        role.ready
            && match self {
                SessionAttrs::Any | SessionAttrs::PreferStandby => true,
                // A standby is read-only, too.
                SessionAttrs::ReadWrite => !role.read_only && !role.standby,
                SessionAttrs::ReadOnly => role.read_only || role.standby,
                SessionAttrs::Primary => !role.standby,
                SessionAttrs::Standby => role.standby,
            }
    }

    /// Returns whether only a primary fits.
    fn writes(self) -> bool {
        matches!(self, SessionAttrs::ReadWrite | SessionAttrs::Primary)
    }

    /// Returns the kinds of server to look for, one after the other.
    pub(super) fn rounds(self) -> Vec<SessionAttrs> {
        match self {
            SessionAttrs::PreferStandby => vec![SessionAttrs::Standby, SessionAttrs::Any],
            attrs => vec![attrs],
        }
    }

    /// Returns the error about a server whose role does not fit.
    pub(super) fn refuse(self, role: HostRole) -> Error {
        let what = match self {
            _ if !role.ready => "the node is not synced with its cluster",
            SessionAttrs::ReadWrite => {
                "the server is read-only, but target_session_attrs=read-write"
            }
            SessionAttrs::ReadOnly => "the server is writable, but target_session_attrs=read-only",
            SessionAttrs::Primary => "the server is a standby, but target_session_attrs=primary",
            _ => "the server is not a standby, which target_session_attrs demands",
        };
        Error::new(Kind::Connect, what).without_host()
    }
}

/// The options about the choice of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostOptions {
    pub(crate) attrs: SessionAttrs,
    /// `load_balance_hosts`: new connections go to the least used host that fits.
    pub(crate) spread: bool,
}

impl HostOptions {
    /// Takes `target_session_attrs` and `load_balance_hosts`.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for another value than libpq's.
    pub(crate) fn take(reader: &mut OptionReader<'_>) -> Result<Self> {
        let attrs = reader.take_choice(
            "target_session_attrs",
            &[
                ("any", SessionAttrs::Any),
                ("read-write", SessionAttrs::ReadWrite),
                ("read-only", SessionAttrs::ReadOnly),
                ("primary", SessionAttrs::Primary),
                ("standby", SessionAttrs::Standby),
                ("prefer-standby", SessionAttrs::PreferStandby),
            ],
        )?;
        let spread = reader.take_choice(
            "load_balance_hosts",
            &[("disable", false), ("random", true)],
        )?;
        Ok(HostOptions {
            attrs: attrs.unwrap_or(SessionAttrs::Any),
            spread: spread.unwrap_or(false),
        })
    }

    /// Returns the hosts to choose from; `None` if there is one, of any role.
    pub(crate) fn choice(self, names: Vec<String>) -> Option<Arc<Hosts>> {
        let attrs = self.attrs;
        if names.len() == 1 && attrs == SessionAttrs::Any {
            return None;
        }
        let fits = Arc::new(move |role| attrs.fits(role));
        Some(Hosts::new(names, fits, attrs.writes(), self.spread))
    }
}
