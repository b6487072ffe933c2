//! Looks at a store's folder without opening, making or changing anything.
//!
//! Floor 2. `app::check` calls it.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::folder::{self, Found};
use super::{OpenError, disk};

/// How the folder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none yet, and one can be made.
    New,
    /// It is a store of this version, and nobody holds it.
    Free,
    /// It is a store of this version, and a process holds it.
    InUse,
}

/// Says how the folder at `path` stands.
///
/// # Errors
///
/// As opening it would fail, but for the lock.
pub fn look(path: &Path) -> Result<Standing, OpenError> {
    let found = folder::check(path)?;
    let existing = nearest_existing(path);
    access(existing, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|fault| {
        OpenError::Unusable {
            deed: format!("write to {}: check owner and mount", existing.display()),
            source: fault.into(),
        }
    })?;
    if found == Found::Nothing {
        return Ok(Standing::New);
    }
    let lock = folder::lock_file(path);
    match File::open(&lock).map(|file| file.try_lock()) {
        Ok(Err(TryLockError::WouldBlock)) => Ok(Standing::InUse),
        Ok(Ok(())) => Ok(Standing::Free),
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(Standing::Free),
        Ok(Err(TryLockError::Error(source))) | Err(source) => Err(OpenError::Unusable {
            deed: format!("lock {}", lock.display()),
            source: source.into(),
        }),
    }
}

/// Free bytes on the disk that holds `path`, or will; `None` where unknown.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    disk::free_bytes(nearest_existing(path)).ok()
}

fn nearest_existing(path: &Path) -> &Path {
    let found = path.ancestors().find(|path| path.exists());
    found.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_makes_nothing_and_tells_new_free_and_in_use_apart() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("site/data");
        assert_eq!(look(&path).unwrap(), Standing::New);
        assert!(!path.exists() && free_bytes(&path).is_some());
        let claimed = folder::claim(&path).unwrap();
        assert_eq!(look(&path).unwrap(), Standing::InUse);
        drop(claimed);
        assert_eq!(look(&path).unwrap(), Standing::Free);
    }

    #[test]
    fn a_look_refuses_what_opening_would_refuse() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("letters.txt"), "not ours").unwrap();
        assert!(look(home.path()).is_err());
        let other = home.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("FORMAT"), "sitebeat store, schema 99\n").unwrap();
        assert!(matches!(look(&other), Err(OpenError::Schema { .. })));
    }
}
