//! Gives a store back to its owner after root has worked on it.
//!
//! Floor 4. `export` and `rollup` are mostly called as root, for a service's data
//! is open to nobody else. What the database writes meanwhile must not be root's:
//! the service could not write it any more.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

/// Gives the folder's new files to the folder's owner when it is dropped.
#[derive(Debug)]
pub(super) struct Borrowed {
    folder: PathBuf,
}

impl Borrowed {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Err(fault) = give_back(&self.folder)
            && fault.kind() != io::ErrorKind::NotFound
        {
            let folder = self.folder.display();
            tracing::warn!(%fault, "not all of {folder} could be given to its owner: use chown -R");
        }
    }
}

/// Gives what is ours below `folder` to whoever owns `folder`; nothing, if that is us.
fn give_back(folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(folder)?;
    let ours = nix::unistd::geteuid().as_raw();
    if owner.uid() == ours {
        return Ok(());
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.uid() == ours {
                lchown(entry.path(), Some(owner.uid()), Some(owner.gid()))?;
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}
