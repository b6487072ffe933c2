//! A file beside a database that says that something was written into it.
//!
//! Damage near the beginning of its log looks to sled like a database just made.
//! This file tells them apart.

use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "WRITTEN";

/// The file of one database.
pub(super) struct Witness {
    path: PathBuf,
    text: &'static str,
    is_there: bool,
}

impl Witness {
    /// That of the database in `folder`; `text` is for people who look.
    pub(super) fn of(folder: &Path, text: &'static str) -> Self {
        let path = folder.join(NAME);
        let is_there = path.exists();
        Self {
            path,
            text,
            is_there,
        }
    }

    /// Whether nothing is left of what had been written; told once.
    pub(super) fn has_lost_all(&mut self, is_empty: bool) -> bool {
        let has_lost_all = self.is_there && is_empty;
        if has_lost_all {
            self.is_there = fs::remove_file(&self.path).is_err();
        }
        has_lost_all
    }

    /// Notes that something was written. Without the file a database is as good,
    /// but damage would go unseen.
    pub(super) fn note(&mut self) {
        self.is_there = self.is_there || fs::write(&self.path, self.text).is_ok();
    }
}
