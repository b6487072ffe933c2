//! A scene of a test on a small disk of its own.
//!
//! It plays in a child process with a tmpfs mounted in a mount namespace of its
//! own; so nothing needs cleaning up. A scene does nothing unless it is the child:
//! it asks [`disk`] first.

use std::path::PathBuf;
use std::process::Command;

const DISK: &str = "SITEBEAT_TEST_DISK";

/// The disk, 16 MB of it; `None`: this is not the child.
pub(crate) fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}

/// Plays the test of this name in the child.
pub(crate) fn play(scene: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=16m tmpfs \"$SITEBEAT_TEST_DISK\" && \
                  exec \"$0\" --exact --nocapture \"$1\"";
    let root = nix::unistd::geteuid().is_root();
    let kind = if root { "-m" } else { "-Urm" };
    if !may_mount(kind) {
        return;
    }
    let played = Command::new("unshare")
        .args([kind, "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(scene)
        .env(DISK, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[expect(clippy::print_stderr, reason = "a scene that is left out says so")]
fn may_mount(kind: &str) -> bool {
    let tried = Command::new("unshare").args([kind, "true"]).output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if !may {
        eprintln!("left out: this machine gives us no mount namespace");
    }
    may
}
