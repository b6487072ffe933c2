//! What can go wrong, in the words of the store's callers.

use std::error::Error;
use std::path::PathBuf;

use crate::domain::heartbeat::Sample;
use crate::domain::size::Bytes;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds it.
    #[error(
        "store.path = {path} is in use: another sitebeat is already running on it; stop that one, or set another store.path"
    )]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error(
        "store {path} has schema {found}, this program reads {readable}: use the sitebeat version that wrote it, or another store.path"
    )]
    Schema {
        /// The folder.
        path: PathBuf,
        /// What its FORMAT file says.
        found: String,
        /// What this program reads.
        readable: u32,
    },
    /// The folder cannot be used.
    #[error("cannot {deed}")]
    Unusable {
        /// What was tried, with its path.
        deed: String,
        /// What came of it.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Why something could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The store has reached `store.max_bytes`.
    #[error("the store holds {}, store.max_bytes allows {}", Bytes(*.bytes), Bytes(*.limit))]
    Full {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The disk has less than `store.min_free_bytes` left.
    #[error("the disk has {} free, store.min_free_bytes asks for {}", Bytes(*.free), Bytes(*.limit))]
    DiskLow {
        /// Free bytes.
        free: u64,
        /// The limit.
        limit: u64,
    },
    /// The database failed.
    #[error("cannot {deed}")]
    Failed {
        /// What was tried.
        deed: &'static str,
        /// What came of it.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {deed}")]
pub struct ReadError {
    /// What was tried, with its subject.
    pub deed: String,
    /// What came of it.
    pub source: Box<dyn Error + Send + Sync>,
    /// Of the heartbeats asked for, those that wait in memory for their flush,
    /// ascending: they can be told all the same.
    pub in_memory: Vec<Sample>,
}

impl ReadError {
    /// What came of it, with its causes, in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        let mut text = self.source.to_string();
        let mut cause = self.source.source();
        while let Some(next) = cause {
            text.push_str(": ");
            text.push_str(&next.to_string());
            cause = next.source();
        }
        text
    }
}
