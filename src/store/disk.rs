//! Sizes: the store's folder, the free disk, what this process has written.

use std::fs;
use std::io;
use std::path::Path;

/// Bytes that all files below `path` take on the disk. Files that vanish
/// meanwhile are not counted.
pub(super) fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => bytes_of(&found),
            Err(_) => 0,
        })
        .sum()
}

/// Bytes that an ordinary user may still write to the disk that holds `path`.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(path)?;
    Ok(found
        .blocks_available()
        .saturating_mul(found.fragment_size()))
}

/// Bytes this process has caused to be written to disks so far; `None` where
/// the platform does not count them.
pub(super) fn written_bytes() -> Option<u64> {
    let counts = fs::read_to_string("/proc/self/io").ok()?;
    let line = counts
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?;
    line.trim().parse().ok()
}

/// Allocated blocks rather than length: sled's files have holes.
#[cfg(unix)]
fn bytes_of(found: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    found.blocks().saturating_mul(512)
}

#[cfg(not(unix))]
fn bytes_of(found: &fs::Metadata) -> u64 {
    found.len()
}
