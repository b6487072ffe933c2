//! The one door to sled: opening, guarding, flushing and closing a database.
//!
//! sled 0.34 answers damaged files with errors or with panics, and after one
//! I/O error it refuses for good to write. So every call goes through
//! [`guarded`], and a database that failed is closed and opened again.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};
use crate::wire::record::BadRecord;

/// Page cache per database. What is read twice is small; the default is 1 GiB.
const CACHE_BYTES: u64 = 1 << 20;

/// How long a lock is waited for that this process, or one that stops, is about to
/// let go. Measured and not counted: pauses are long where timers are lazy.
const LOCK_TIME_MAX: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Room that must be writable before an error is taken for damage: sled zeroes
/// up to one segment of 512 KiB when it opens a database.
const PROBE_BYTES: usize = 1 << 20;

/// Why a database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The disk or the system failed; the files may be whole.
    #[error("the database could not read or write its files")]
    Io(#[source] sled::Error),
    /// The files hold what no sane run wrote.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// Another process holds it.
    #[error("the database is in use by another process")]
    Locked,
    /// The store was closed.
    #[error("the store has been closed")]
    Closed,
}

impl Fault {
    pub(super) const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged(_))
    }

    /// Whether the system does not let us have the files.
    pub(super) fn is_denial(&self) -> bool {
        matches!(self, Self::Io(sled::Error::Io(error)) if error.kind() == ErrorKind::PermissionDenied)
    }
}

impl From<sled::Error> for Fault {
    fn from(error: sled::Error) -> Self {
        match &error {
            // Something is not there, or not as long as sled knows it to be.
            sled::Error::Io(source) if tells_of_damage(source.kind()) => {
                Self::Damaged(source.to_string())
            }
            sled::Error::Io(source) if is_locked(source) => Self::Locked,
            sled::Error::Io(_) => Self::Io(error),
            // Then all databases of the process fail, whole ones too.
            sled::Error::ReportableBug(text) if text.contains("IO thread") => Self::Io(error),
            sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_) => Self::Damaged(error.to_string()),
            // Its own words are about a place in the program.
            sled::Error::Corruption { .. } => {
                Self::Damaged("its files hold what was never written".into())
            }
        }
    }
}

impl From<BadRecord> for Fault {
    fn from(bad: BadRecord) -> Self {
        Self::Damaged(bad.to_string())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(sled::Error::Io(error))
    }
}

/// Where a database's files are. What is written after they were removed or
/// replaced goes into files that have no name any more, and no error tells so.
#[derive(Debug)]
pub(super) struct Site {
    log: PathBuf,
    file: Option<(u64, u64)>,
}

impl Site {
    /// The site of the database that was just opened in `path`.
    pub(super) fn of(path: &Path) -> Self {
        let log = path.join("db");
        let file = file_at(&log);
        Self { log, file }
    }

    /// Whether the files that were opened are still those with the name.
    pub(super) fn is_whole(&self) -> bool {
        self.file.is_some() && file_at(&self.log) == self.file
    }
}

/// What tells the file at `path` from every other.
pub(super) fn file_at(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Runs a piece of work on a database; a panic inside becomes damage.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // Nothing that a panic could leave half done is looked at afterwards: the
    // caller drops the database.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(Fault::Damaged(format!("sled panicked: {text}")))
    })
}

/// Opens the database in `path`, which is made where it is not there.
pub(super) fn open(path: &Path) -> Result<sled::Db, Fault> {
    wait_for_lock(path)?;
    drop_unfinished_snapshots(path).map_err(sled::Error::Io)?;
    let config = sled::Config::new()
        .path(path)
        .flush_every_ms(None)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::LowSpace);
    let database = guarded(|| Ok(config.open()?))?;
    // The names of new files, for file systems that do not keep them with the files.
    File::open(path)?.sync_all()?;
    Ok(database)
}

/// Waits until nobody holds the database in `path`. A database just closed keeps
/// its lock until its last write is through, on a thread of sled's own. Asked before
/// anything is touched that whoever holds the lock may be using.
fn wait_for_lock(path: &Path) -> Result<(), Fault> {
    let log = match File::open(path.join("db")) {
        Ok(log) => log,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(sled::Error::Io(error).into()),
    };
    let clock = SystemClock::new();
    let began = clock.mono();
    loop {
        match log.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if clock.mono().since(began) < LOCK_TIME_MAX => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => return Err(Fault::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Closes a database, whatever state it is in.
pub(super) fn close<T>(database: T) {
    let closed = guarded(|| {
        drop(database);
        Ok(())
    });
    if let Err(fault) = closed {
        tracing::warn!(%fault, "a database could not be closed cleanly");
    }
}

/// Flushes what was written to `database` to the disk.
pub(super) fn flush(database: &sled::Db) -> Result<(), Fault> {
    guarded(|| {
        database.flush()?;
        Ok(())
    })
}

/// Moves the files that sled can do without into `aside`: snapshots only shorten
/// opening, `conf` repeats the defaults, and a torn one of either prevents it.
/// Tells whether there were any.
pub(super) fn move_spare_files(path: &Path, aside: &Path) -> io::Result<bool> {
    let mut moved = false;
    if !path.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "conf" || name.to_string_lossy().starts_with("snap.") {
            fs::create_dir_all(aside)?;
            fs::rename(entry.path(), aside.join(name))?;
            moved = true;
        }
    }
    Ok(moved)
}

/// What became of a database that was read from its log alone: the newest
/// snapshot names the place up to which the log had once been written.
pub(super) fn repair_report(path: &Path, aside: &Path) -> String {
    let outcome = if newest_snapshot(path) >= newest_snapshot(aside) {
        "was repaired, what it held at the last start is whole"
    } else {
        "was repaired, but its log ends before the last start: what came later is lost"
    };
    format!(
        "{outcome}; what stood in the way is kept in {}",
        aside.display()
    )
}

fn newest_snapshot(path: &Path) -> Option<u64> {
    let names = fs::read_dir(path).ok()?.flatten();
    names
        .filter_map(|entry| {
            let name = entry.file_name();
            let place = name.to_str()?.strip_prefix("snap.")?;
            u64::from_str_radix(place, 16).ok()
        })
        .max()
}

/// Whether the disk takes writes in `folder`; if not, an error there says
/// nothing about the files.
pub(super) fn is_writable(folder: &Path) -> bool {
    let path = folder.join("probe.tmp");
    let written = fs::write(&path, vec![0x5a; PROBE_BYTES])
        .and_then(|()| File::open(&path))
        .and_then(|file| file.sync_all());
    let removed = fs::remove_file(&path);
    written.is_ok() && removed.is_ok()
}

/// A snapshot that was being written when the process died. sled would write
/// the next one over it without cutting it, and so damage that one.
fn drop_unfinished_snapshots(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

const fn tells_of_damage(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
    )
}

fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}
