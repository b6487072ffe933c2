//! The ladder of repairs of a database: opened as it is, without the files that sled
//! can do without, or moved aside.
//!
//! Floor 2. The state, the days of raw and the months of rows climb it.
//!
//! # Invariants
//!
//! - An error of the disk moves nothing: where the disk takes no writes, nothing
//!   says that the files are damaged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::database::{self, Fault};
use super::folder;
use crate::domain::instant::Wall;

/// The ladder of one database.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    /// Where it is; beside it is where it is moved to.
    pub(super) path: PathBuf,
    /// For the name of what is moved.
    pub(super) now: Wall,
    /// Whether anything may be moved at all.
    pub(super) may_mend: bool,
}

/// How far up it had to be climbed.
#[derive(Debug)]
pub(super) enum Rung<D> {
    /// It opened as it is.
    Whole(D),
    /// It opened without its spare files, and what came of that.
    Repaired(D, String),
    /// It is damaged for good and is to be moved aside.
    Broken(Fault),
}

impl Ladder {
    /// Opens the database as far down the ladder as it can.
    pub(super) fn climb<D>(
        &self,
        open: impl Fn(&Path) -> Result<D, Fault>,
    ) -> Result<Rung<D>, Fault> {
        let fault = match open(&self.path) {
            Ok(database) => return Ok(Rung::Whole(database)),
            Err(fault) => fault,
        };
        if !self.is_mendable(&fault) {
            return Err(fault);
        }
        let aside = folder::damaged_name(&self.path, self.now);
        if database::move_spare_files(&self.path, &aside)?
            && let Ok(database) = open(&self.path)
        {
            let outcome = database::repair_report(&self.path, &aside);
            return Ok(Rung::Repaired(database, outcome));
        }
        Ok(Rung::Broken(fault))
    }

    /// Whether a database with this fault may be moved aside.
    pub(super) fn is_mendable(&self, fault: &Fault) -> bool {
        self.may_mend && fault.is_damage() && database::is_writable(self.around())
    }

    /// Moves the database aside and tells where it is now; `None`: it is not there.
    pub(super) fn move_aside(&self) -> io::Result<Option<PathBuf>> {
        let aside = folder::damaged_name(&self.path, self.now);
        match fs::rename(&self.path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            renamed => renamed?,
        }
        folder::sync(self.around())?;
        Ok(Some(aside))
    }

    fn around(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(path: PathBuf) -> Ladder {
        Ladder {
            path,
            now: Wall::from_millis(0),
            may_mend: true,
        }
    }

    #[test]
    fn only_damage_is_mended_and_only_where_it_may_be_and_the_disk_takes_writes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("part");
        let whole = ladder(path.clone()).climb(|_| Ok(1)).unwrap();
        assert!(matches!(whole, Rung::Whole(1)));
        let damaged = || Fault::Damaged("torn".into());
        let broken = ladder(path.clone()).climb(|_| Err::<(), _>(damaged()));
        assert!(matches!(broken, Ok(Rung::Broken(_))));
        let failing = ladder(path.clone()).climb(|_| Err::<(), _>(Fault::Closed));
        assert!(failing.is_err());
        let to_read = Ladder {
            may_mend: false,
            ..ladder(path)
        };
        assert!(to_read.climb(|_| Err::<(), _>(damaged())).is_err());
        let nowhere = ladder(home.path().join("gone/part"));
        assert!(nowhere.climb(|_| Err::<(), _>(damaged())).is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_sled_can_do_without_is_taken_away_before_all_of_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("part");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("conf"), "torn").unwrap();
        let ladder = ladder(path.clone());
        let open = |path: &Path| {
            if path.join("conf").exists() {
                Err(Fault::Damaged("torn".into()))
            } else {
                Ok(())
            }
        };
        assert!(matches!(ladder.climb(open), Ok(Rung::Repaired((), _))));
        let aside = ladder.move_aside().unwrap().unwrap();
        assert!(aside.is_dir() && !path.exists());
        assert_eq!(ladder.move_aside().unwrap(), None);
    }
}
