//! The store of a gateway that does not run, entered by hand.
//!
//! Floor 4. `export` and `rollup` come through here, mostly as root, for a service's
//! data is open to nobody else. The service's user can put links in the place of
//! any file of it, also while we work, and root would follow them.
//!
//! # Invariants
//!
//! - Root touches nothing in a store that belongs to somebody else: it becomes that
//!   user first, for good. What is written is then the owner's too.
//! - Root enters by the folder itself and not by its path, which may lead elsewhere
//!   a moment later, or through folders that the owner may not pass.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, User, fchdir, geteuid, setgroups, setresgid, setresuid};

use super::exit::Failure;
use crate::fault::chain;
use crate::store::{OpenError, Reader, Store};

/// The working directory by a path of the system's, which passes no other folder.
const BY_SYSTEM: &str = "/proc/self/cwd";

/// The group in place of root's.
const NO_GROUP: u32 = 65_534;

/// A store's folder that may be worked on.
#[derive(Debug)]
pub(super) struct Entered {
    /// The path to work with.
    pub(super) path: PathBuf,
    /// How people know it: `store.path`.
    pub(super) name: PathBuf,
}

impl Entered {
    /// The store, to read it.
    pub(super) fn read(&self) -> Result<Reader, Failure> {
        let opened = Store::open_to_read(&self.path).map_err(|fault| self.told(fault))?;
        Ok(opened.known_as(&self.name))
    }

    /// The fault with the name that people know.
    pub(super) fn told(&self, fault: OpenError) -> Failure {
        let path = self.name.clone();
        Failure::Store(match fault {
            OpenError::Locked { .. } => OpenError::Locked { path },
            OpenError::Schema {
                found, readable, ..
            } => OpenError::Schema {
                path,
                found,
                readable,
            },
            OpenError::Unusable { deed, source } => OpenError::Unusable {
                deed: self.in_words(&deed),
                source: self.in_words(&chain(&*source)).into(),
            },
        })
    }

    /// The text with the name that people know in place of the path of our own.
    pub(super) fn in_words(&self, text: &str) -> String {
        if self.path != Path::new(BY_SYSTEM) {
            return text.to_owned();
        }
        text.replace(BY_SYSTEM, &self.name.display().to_string())
    }
}

/// Enters the store in `path`: as root, becomes its owner and makes its folder the
/// working directory. `command` is for the cure.
///
/// # Errors
///
/// A folder that is not there, one that others than its owner may write to, an owner
/// that cannot be become.
pub(super) fn enter(path: &Path, command: &str) -> Result<Entered, Failure> {
    if !geteuid().is_root() {
        return Ok(Entered {
            path: path.to_owned(),
            name: path.to_owned(),
        });
    }
    let unusable = |deed: &str, why: String| {
        Failure::Store(OpenError::Unusable {
            deed: format!("{deed} {}", path.display()),
            source: why.into(),
        })
    };
    let read = |fault: io::Error| {
        let cure = "set store.path to the folder that sitebeat wrote";
        unusable("read the store", format!("{fault}: {cure}"))
    };
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_DIRECTORY.bits())
        .open(path)
        .map_err(read)?;
    let about = folder.metadata().map_err(read)?;
    if about.uid() == 0 {
        if is_open_to_others(&about) {
            let why = "others may write to it, and root would follow their links: chmod go-w it";
            return Err(unusable("work as root in", why.into()));
        }
    } else {
        become_owner(&about).map_err(|fault| {
            let owner = name_of(about.uid());
            let why = format!(
                "it belongs to {owner}, and to go on as that user failed: {fault}; use sudo -u \
                 '{owner}' sitebeat {command} ..."
            );
            unusable("work as root in", why)
        })?;
    }
    fchdir(&folder).map_err(|fault| read(fault.into()))?;
    Ok(Entered {
        path: way_in(&about),
        name: path.to_owned(),
    })
}

/// How to name the working directory. The database makes a path that begins
/// elsewhere out of `.`, and the owner may not be able to go all of it.
fn way_in(folder: &Metadata) -> PathBuf {
    let by_system = Path::new(BY_SYSTEM);
    let is_there = by_system
        .metadata()
        .is_ok_and(|found| (found.dev(), found.ino()) == (folder.dev(), folder.ino()));
    let way = if is_there { by_system } else { Path::new(".") };
    way.to_owned()
}

/// Whether somebody else than root may put files into root's folder.
fn is_open_to_others(about: &Metadata) -> bool {
    let by_group = about.gid() != 0 && about.mode() & 0o020 != 0;
    by_group || about.mode() & 0o002 != 0
}

/// Gives up root for good.
fn become_owner(about: &Metadata) -> Result<(), Errno> {
    let group = if about.gid() == 0 {
        NO_GROUP
    } else {
        about.gid()
    };
    let (user, group) = (Uid::from_raw(about.uid()), Gid::from_raw(group));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

/// As `sudo -u` takes it.
fn name_of(user: u32) -> String {
    match User::from_uid(Uid::from_raw(user)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("#{user}"),
    }
}
