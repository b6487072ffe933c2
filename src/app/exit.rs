//! Why the program ends, and with which code.
//!
//! Floor 4.

use std::process::ExitCode;

use crate::{ping, store};

/// An end that is not a clean stop.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something broke while running: code 1.
    #[error("{0}")]
    Running(String),
    /// Usage or configuration: code 2.
    #[error("{0}")]
    Usage(String),
    /// The store is in use or not usable: code 3.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// The probe engine could not be opened: code 4 where a privilege is
    /// missing, else 1.
    #[error(transparent)]
    Probe(#[from] ping::OpenError),
}

impl Failure {
    /// The exit code that scripts and service managers see.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// The same as a number.
    #[must_use]
    pub const fn number(&self) -> u8 {
        match self {
            Self::Running(_)
            | Self::Probe(ping::OpenError::Socket { .. } | ping::OpenError::Unsupported(_)) => 1,
            Self::Usage(_) => 2,
            Self::Store(_) => 3,
            Self::Probe(ping::OpenError::NoPrivilege { .. }) => 4,
        }
    }
}
