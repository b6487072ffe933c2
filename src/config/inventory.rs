//! The devices of the site, from their file.
//!
//! Floor 1. `config::load_with_inventory` calls [`read`] at the start;
//! `config::reload_with_inventory` calls [`read_again`] at each reload and when
//! [`fingerprint`] shows that the file has changed.
//!
//! # Invariants
//!
//! - A bad row costs that row alone, and is named with file, line and reason. It
//!   takes no device out of the watch that was in it.
//! - Ids are unique, parents are devices of the same inventory without cycles,
//!   profiles exist.
//! - Names are not looked up: an address is a literal.
//! - File, rows and the lists of what was refused are bounded.

use std::hash::Hasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::file;
use super::settings::Settings;
use crate::domain::device::Device;

mod csv_rows;
mod family;
mod row;
mod toml_rows;

use row::Roll;

/// Largest inventory file in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most devices; rows beyond are refused.
pub const DEVICES_MAX: usize = 100_000;
/// Most sentences kept about refused rows, and as many about warnings.
pub const NOTES_MAX: usize = 1_000;

/// What is watched where there is no inventory file, in words.
pub const BUILT_IN: &str = "the built-in devices 127.0.0.1 to 127.0.0.5";

/// What an inventory file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The good rows, in the order of the file, then the old rows that stay.
    pub devices: Vec<Device>,
    /// The bad rows, one sentence each with file, line and reason; at most
    /// [`NOTES_MAX`] and one that counts the rest.
    pub refused: Vec<String>,
    /// What is allowed but looks wrong, one sentence each, bounded alike.
    pub warnings: Vec<String>,
    /// The file read; `None` for the built-in devices.
    pub file: Option<PathBuf>,
    /// Whether the file has no content at all, not even a header: what a file
    /// looks like that is about to be written.
    pub is_blank: bool,
}

/// Why an inventory file gives no devices at all.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// It is not there, too large or may not be read.
    #[error("cannot read inventory.file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// Its form is broken as a whole, not in single rows.
    #[error("{0}")]
    Malformed(String),
}

/// Reads the inventory that the settings name. Where none is named and
/// `config/devices.csv` is not there, these are 127.0.0.1 to 127.0.0.5.
pub fn read(settings: &Settings) -> Result<Inventory, InventoryError> {
    read_again(settings, &[])
}

/// [`read`], while the devices of `before` are watched: one whose row is refused
/// now stays as it was, and so does one that is in no row while the id of a refused
/// row cannot be read. The sentences about them say so.
pub fn read_again(
    settings: &Settings,
    before: &[Arc<Device>],
) -> Result<Inventory, InventoryError> {
    let path = settings.inventory.file.as_path();
    let bytes = match file::bytes(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !settings.inventory.is_set => {
            return Ok(built_in());
        }
        Err(source) => {
            let path = path.into();
            return Err(InventoryError::Unreadable { path, source });
        }
    };
    let mut roll = Roll::new(path, &settings.profiles, before);
    let extension = path.extension().unwrap_or_default();
    if extension.eq_ignore_ascii_case("toml") {
        toml_rows::read(&bytes, &mut roll)?;
    } else {
        csv_rows::read(&bytes, &mut roll)?;
    }
    let is_blank = bytes.trim_ascii().is_empty();
    Ok(Inventory {
        is_blank,
        ..roll.close(settings.sockets.interface.is_some())
    })
}

/// What differs when a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    hash: u64,
    /// The file's own number on its disk, whatever its name; 0 where there is none.
    number: u64,
}

impl Fingerprint {
    /// Whether both are of one file, be it changed, and not of two of which one
    /// took the place of the other.
    #[must_use]
    pub const fn is_same_file(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// What the file is known by; `None` where it is not there. It is taken from
/// length and times, so that it can be asked often. A file that is being written
/// changes it more than once: act when it has stayed the same for a second look.
/// Blocks as long as the file's disk or server does.
#[must_use]
pub fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let about = path.metadata().ok()?;
    let mut hash = fnv::FnvHasher::default();
    hash.write_u64(about.len());
    let modified = about.modified().ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    hash.write_u128(since.unwrap_or_default().as_nanos());
    #[cfg(unix)]
    let number = {
        use std::os::unix::fs::MetadataExt;
        // An editor that keeps length and time still changes one of these.
        hash.write_u64(about.ino());
        hash.write_i64(about.ctime());
        hash.write_i64(about.ctime_nsec());
        about.ino()
    };
    #[cfg(not(unix))]
    let number = 0;
    Some(Fingerprint {
        hash: hash.finish(),
        number,
    })
}

fn built_in() -> Inventory {
    let device = |n: u8| {
        let name = format!("loopback-{n}");
        Some(Device {
            id: name.parse().ok()?,
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, n)),
            name,
            profile: None,
            tags: vec!["loopback".into()],
            parent: None,
            enabled: true,
        })
    };
    Inventory {
        devices: (1..=5).filter_map(device).collect(),
        refused: Vec::new(),
        warnings: Vec::new(),
        file: None,
        is_blank: false,
    }
}
