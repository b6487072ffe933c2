//! The store's folder: whose it is, which version wrote it, who holds it.
//!
//! `FORMAT` is read before anything else is touched: merely opening a sled
//! database rewrites files, and a store of another version must stay as it is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};

use super::OpenError;
use super::database::file_at;
use crate::domain::instant::Wall;

/// The schema this program reads and writes.
pub(super) const SCHEMA: u32 = 1;

const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const LOCK: &str = "LOCK";

/// Ends the name of a database that is being removed.
const REMOVING: &str = ".removing";

/// What the text in FORMAT starts with; the schema number follows.
const FORMAT_PREFIX: &str = "sitebeat store, schema ";

/// More bytes than any FORMAT file has.
const FORMAT_BYTES_MAX: u64 = 4_096;

/// A process that is about to stop may hold the lock this long.
const LOCK_TRIES: u32 = 150;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The folder, checked and locked.
#[derive(Debug)]
pub(super) struct Folder {
    /// Held until dropped; the kernel lets go of it when the process dies.
    pub(super) lock: File,
    /// Whether this call made the store.
    pub(super) is_new: bool,
    /// That `FORMAT` had to be written again, in one sentence.
    pub(super) mended: Option<String>,
}

/// What a folder was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A store of this schema.
    Store,
    /// A store, or the beginning of one, whose `FORMAT` is empty. It is renamed
    /// into place only after it was synced, so that is damage.
    Unmarked {
        /// Whether it holds anything of ours.
        has_data: bool,
    },
    /// Nothing yet.
    Nothing,
}

/// Checks that the folder is a store of this schema, or can become one, takes
/// its lock and makes what is not there. Of two that come at once, one makes it.
pub(super) fn claim(path: &Path) -> Result<Folder, OpenError> {
    let cannot_make = |source| unusable(format!("make a store in {}", path.display()), source);
    let mut found = check(path)?;
    if found == Found::Nothing {
        refuse_dangling_link(path)?;
        fs::create_dir_all(path).map_err(cannot_make)?;
    }
    let lock = lock(path)?;
    if found != Found::Store {
        // Who held the lock until now may have made it.
        found = check(path)?;
    }
    if found != Found::Store {
        make(path).map_err(cannot_make)?;
    }
    Ok(Folder {
        lock,
        is_new: matches!(found, Found::Nothing | Found::Unmarked { has_data: false }),
        mended: matches!(found, Found::Unmarked { .. }).then(|| {
            format!(
                "{} was empty and is written again: something damaged the files of the store",
                path.join(FORMAT).display()
            )
        }),
    })
}

/// Takes the lock of a store of this schema that is there; makes none.
pub(super) fn claim_to_read(path: &Path) -> Result<File, OpenError> {
    let no_store = |what: String| OpenError::Unusable {
        deed: format!("read the store {}", path.display()),
        source: format!("{what}: set store.path to the folder that sitebeat wrote").into(),
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(no_store("it is a file".into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(no_store("there is no such folder".into()));
        }
        Err(source) => return Err(unusable(format!("read {}", path.display()), source)),
    }
    if !path.join(FORMAT).exists() {
        return Err(no_store(format!("the folder holds no {FORMAT} of ours")));
    }
    match check(path)? {
        Found::Store => lock_to_read(path),
        Found::Unmarked { .. } | Found::Nothing => Err(no_store(format!(
            "its file {FORMAT} is empty; `sitebeat run` mends a store"
        ))),
    }
}

/// Makes the folder's own files again where they were removed or replaced while
/// the store was open: without them the next start would take the folder for
/// somebody else's, and a second process could come in.
pub(super) fn restore(path: &Path, held: &mut File) -> Result<(), OpenError> {
    let own = held.metadata().ok().map(|file| (file.dev(), file.ino()));
    let has_lock = own.is_some() && file_at(&lock_file(path)) == own;
    if has_lock && path.join(FORMAT).exists() {
        return Ok(());
    }
    let cannot_make = |source| unusable(format!("make {} again", path.display()), source);
    fs::create_dir_all(path).map_err(cannot_make)?;
    if !has_lock {
        *held = lock(path)?;
    }
    make(path).map_err(cannot_make)?;
    tracing::warn!(store = %path.display(), "{FORMAT} or {LOCK} was removed and is there again");
    Ok(())
}

/// Where the database of standings and events lives.
pub(super) fn state(path: &Path) -> PathBuf {
    path.join("state")
}

/// Where the databases of raw heartbeats live, one a day.
pub(super) fn raw(path: &Path) -> PathBuf {
    path.join("raw")
}

/// Where the databases of summary rows live, one a month.
pub(super) fn daily(path: &Path) -> PathBuf {
    path.join("daily")
}

/// Makes a folder for databases; what stands in its place and is none is moved
/// aside, with `loss`. Removes what a crash in a removal left.
pub(super) fn make_part(folder: &Path, loss: &str, now: Wall) -> io::Result<Vec<String>> {
    let mut mended = Vec::new();
    if fs::symlink_metadata(folder).is_ok_and(|found| found.is_file()) {
        let aside = damaged_name(folder, now);
        fs::rename(folder, &aside)?;
        mended.push(format!(
            "{} was a file and was moved to {}: {loss}",
            folder.display(),
            aside.display()
        ));
    }
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(REMOVING) {
            remove_all(&entry.path())?;
        }
    }
    Ok(mended)
}

/// What in `folder` has a name of the kind asked for, ascending.
pub(super) fn parts<T: Ord>(folder: &Path, read: impl Fn(&str) -> Option<T>) -> io::Result<Vec<T>> {
    let mut parts = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Removed while in use; the next write makes it again.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(parts),
        Err(error) => return Err(error),
    };
    for entry in entries {
        parts.extend(entry?.file_name().to_str().and_then(&read));
    }
    parts.sort_unstable();
    Ok(parts)
}

/// Removes a database as a folder, renamed first, so that a crash leaves no half
/// of it; one that is not there is removed already.
pub(super) fn remove_part(folder: &Path, name: &str) -> io::Result<()> {
    let doomed = folder.join(format!("{name}{REMOVING}"));
    remove_all(&doomed)?;
    match fs::rename(folder.join(name), &doomed) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    sync(folder)?;
    remove_all(&doomed)
}

/// Removes what is at `path`, if anything is: a folder, or what else somebody gave
/// the name of one that is being removed.
fn remove_all(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A name beside `path` that is not taken: `state.damaged-20260312T000500000Z`.
pub(super) fn damaged_name(path: &Path, now: Wall) -> PathBuf {
    let stamp: String = now
        .to_string()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let name = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{stamp}{suffix}"));
        PathBuf::from(name)
    };
    let plain = name("");
    if !plain.exists() {
        return plain;
    }
    (2..u32::MAX)
        .map(|n| name(&format!("-{n}")))
        .find(|path| !path.exists())
        .unwrap_or(plain)
}

/// Makes a rename or a new name in `folder` survive a power cut.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Where the lock is.
pub(super) fn lock_file(path: &Path) -> PathBuf {
    path.join(LOCK)
}

/// What is there, of which a store can be made or is one. Changes nothing.
pub(super) fn check(path: &Path) -> Result<Found, OpenError> {
    let format = path.join(FORMAT);
    match fs::metadata(&format) {
        Ok(found) if found.len() > FORMAT_BYTES_MAX => Err(no_format(path)),
        Ok(found) if found.is_file() && found.len() == 0 => {
            let parts = [state(path), raw(path), daily(path)];
            let has_data = parts.iter().any(|part| part.is_dir());
            if !has_data {
                refuse_strange_folder(path)?;
            }
            Ok(Found::Unmarked { has_data })
        }
        Ok(_) => {
            let text = fs::read(&format)
                .map_err(|source| unusable(format!("read {}", format.display()), source))?;
            check_format(path, &String::from_utf8_lossy(&text))?;
            Ok(Found::Store)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match refuse_strange_folder(path) {
            // Made since, by a process that started at the same time.
            Err(_) if format.exists() => check(path),
            looked => looked.map(|()| Found::Nothing),
        },
        Err(source) => Err(unusable(format!("read {}", format.display()), source)),
    }
}

fn check_format(path: &Path, text: &str) -> Result<(), OpenError> {
    let line = text.lines().next().unwrap_or_default();
    let Some(schema) = line.strip_prefix(FORMAT_PREFIX) else {
        return Err(no_format(path));
    };
    if schema == SCHEMA.to_string() {
        return Ok(());
    }
    let found: String = schema.chars().take(40).collect();
    Err(other_schema(path, &found))
}

/// `FORMAT` is there and says nothing.
fn no_format(path: &Path) -> OpenError {
    OpenError::Unusable {
        deed: format!("tell which version wrote the store {}", path.display()),
        source: format!(
            "its file {FORMAT} does not start with \"{FORMAT_PREFIX}\" and a number: if this \
             version wrote the store, write the line \"{FORMAT_PREFIX}{SCHEMA}\" into {FORMAT}, \
             else set another store.path"
        )
        .into(),
    }
}

fn other_schema(path: &Path, found: &str) -> OpenError {
    OpenError::Schema {
        path: path.to_owned(),
        found: if found.is_empty() { "(none)" } else { found }.to_owned(),
        readable: SCHEMA,
    }
}

/// Writing into a folder that belongs to something else would be worse than
/// not starting.
fn refuse_strange_folder(path: &Path) -> Result<(), OpenError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(unusable(format!("read folder {}", path.display()), source)),
    };
    for entry in entries {
        let name = entry
            .map_err(|source| unusable(format!("read folder {}", path.display()), source))?
            .file_name();
        // What a start that died early leaves, and what a fresh disk holds.
        if name == FORMAT || name == FORMAT_NEW || name == LOCK || name == "lost+found" {
            continue;
        }
        return Err(OpenError::Unusable {
            deed: format!("make a store in {}", path.display()),
            source: format!(
                "the folder holds {} but no {FORMAT} of ours, so it belongs to something else: \
                 set store.path to an empty or new folder, or, if it is a sitebeat store, \
                 write the line \"{FORMAT_PREFIX}{SCHEMA}\" into {FORMAT}",
                name.to_string_lossy(),
            )
            .into(),
        });
    }
    Ok(())
}

/// A link to nothing, mostly to a disk that is not mounted: what was made behind it
/// would be hidden once it is, and without this the system says "File exists".
fn refuse_dangling_link(path: &Path) -> Result<(), OpenError> {
    let Ok(target) = fs::read_link(path) else {
        return Ok(());
    };
    if path.exists() {
        return Ok(());
    }
    Err(OpenError::Unusable {
        deed: format!("make a store in {}", path.display()),
        source: format!(
            "it is a symbolic link to {}, which is not there: mount or make that folder, or set \
             another store.path",
            target.display()
        )
        .into(),
    })
}

fn make(path: &Path) -> io::Result<()> {
    let new = path.join(FORMAT_NEW);
    let mut file = File::create(&new)?;
    file.write_all(format!("{FORMAT_PREFIX}{SCHEMA}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path.join(FORMAT))?;
    sync(path)
}

/// The lock for a reading, which need not be able to write `LOCK`. The databases do
/// write when they open: where they cannot, that is said before they are touched.
fn lock_to_read(path: &Path) -> Result<File, OpenError> {
    let name = lock_file(path);
    // Some network file systems lock only what is open to be written.
    let mut opened = OpenOptions::new().read(true).write(true).open(&name);
    if let Err(error) = &opened
        && is_refusal(error)
    {
        opened = File::open(&name);
    }
    let held = match opened {
        Ok(file) => Some(hold(path, file)?),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(unusable(format!("open {}", name.display()), source)),
    };
    let needs = AccessFlags::W_OK | AccessFlags::X_OK;
    access(path, needs).map_err(|fault| OpenError::Unusable {
        deed: format!(
            "open the databases of {}, which write as they open",
            path.display()
        ),
        source: format!(
            "{}; copy the folder to where you may write, chmod -R u+w the copy, and name that by \
             SITEBEAT__STORE__PATH",
            io::Error::from(fault)
        )
        .into(),
    })?;
    held.map_or_else(|| lock(path), Ok)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let name = lock_file(path);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(|source| unusable(format!("open {}", name.display()), source))?;
    hold(path, file)
}

/// Locks what is `LOCK` of `path`.
fn hold(path: &Path, file: File) -> Result<File, OpenError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => {
                let name = lock_file(path);
                return Err(unusable(format!("lock {}", name.display()), source));
            }
        }
    }
    Err(OpenError::Locked {
        path: path.to_owned(),
    })
}

fn unusable(deed: String, source: impl std::fmt::Display) -> OpenError {
    OpenError::Unusable {
        deed,
        source: format!("{source}; check store.path, its owner and its mount").into(),
    }
}
