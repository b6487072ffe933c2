//! Looks at the inventory file and tells when it has changed.
//!
//! Floor 4. The steward starts looks and hears what they found.
//!
//! # Invariants
//!
//! - A look runs on a blocking thread, one at a time: a file server that answers
//!   no more stops the looks and delays no probe.
//! - A file half written is not believed: two looks alike must follow each other,
//!   or, where one file takes the place of the other without pause, the newest
//!   must have been renamed into place, and so be whole.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

use crate::config::inventory::Fingerprint;
use crate::domain::instant::Mono;

/// Time between two looks. Polling sees every kind of replacement (rename, bind
/// mount, network file system) for one `stat` a look.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2_048);

/// Looks that all differ before a file that was renamed in is taken at once.
const RESTLESS_LOOKS_MAX: u32 = 5;

/// The file as it was seen.
#[derive(Debug)]
pub(super) struct Watch {
    /// As it is in force.
    seen: Option<Fingerprint>,
    /// As the last look found it.
    glimpsed: Option<Fingerprint>,
    /// Looks in a row that differ from the one before.
    restless_looks: u32,
    /// The look under way.
    looking: Option<JoinHandle<Option<Fingerprint>>>,
    /// When the next look starts.
    pub(super) look_at: Mono,
}

impl Watch {
    /// Of a file that is in force as `seen`.
    pub(super) fn new(seen: Option<Fingerprint>, now: Mono) -> Self {
        Self {
            seen,
            glimpsed: seen,
            restless_looks: 0,
            looking: None,
            look_at: now.plus(LOOK_EVERY),
        }
    }

    /// What was read is in force, and looked so before.
    pub(super) const fn is_read(&mut self, seen: Option<Fingerprint>) {
        self.seen = seen;
    }

    /// Lets this look be.
    pub(super) fn rest(&mut self, now: Mono) {
        self.look_at = now.plus(LOOK_EVERY);
    }

    /// Starts a look, unless one is under way.
    pub(super) fn begin(
        &mut self,
        now: Mono,
        look: impl FnOnce() -> Option<Fingerprint> + Send + 'static,
    ) {
        self.rest(now);
        if self.looking.is_none() {
            self.looking = Some(tokio::task::spawn_blocking(look));
        }
    }

    /// Waits for the end of the look under way; for ever, if there is none.
    pub(super) async fn ended(&mut self) -> Result<Option<Fingerprint>, JoinError> {
        let Some(looking) = &mut self.looking else {
            return std::future::pending().await;
        };
        let found = looking.await;
        self.looking = None;
        found
    }

    /// Takes in what a look found; tells whether the file has changed and is to
    /// be read.
    pub(super) fn judge(&mut self, found: Option<Fingerprint>) -> bool {
        let is_settled = found == self.glimpsed;
        let was_renamed_in = match (&found, &self.glimpsed) {
            (Some(found), Some(before)) => !found.is_same_file(before),
            _ => false,
        };
        self.restless_looks = if is_settled {
            0
        } else {
            self.restless_looks.saturating_add(1)
        };
        self.glimpsed = found;
        let is_whole = is_settled || (self.restless_looks >= RESTLESS_LOOKS_MAX && was_renamed_in);
        if !is_whole || found == self.seen {
            return false;
        }
        self.seen = found;
        self.restless_looks = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;
    use crate::config::inventory::fingerprint;

    /// What each of these looks makes of the file after `change`.
    fn looks(path: &Path, count: usize, change: impl Fn(usize)) -> Vec<bool> {
        let mut watch = Watch::new(fingerprint(path), Mono::default());
        (0..count)
            .map(|n| {
                change(n);
                watch.judge(fingerprint(path))
            })
            .collect()
    }

    #[test]
    fn a_change_is_followed_when_two_looks_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.csv");
        fs::write(&path, "a").unwrap();
        let change = |n: usize| {
            if n == 1 {
                fs::write(&path, "ab").unwrap();
            }
        };
        assert_eq!(looks(&path, 4, change), [false, false, true, false]);
    }

    #[test]
    fn files_renamed_in_without_pause_are_followed_by_the_fifth_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.csv");
        fs::write(&path, "a").unwrap();
        let swap = |n: usize| {
            let new = folder.path().join(format!("new-{n}"));
            fs::write(&new, "b".repeat(n + 2)).unwrap();
            // Kept by another name, so that its number is not given out again.
            fs::hard_link(&path, folder.path().join(format!("old-{n}"))).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        let followed = looks(&path, 10, swap);
        let at: Vec<usize> = (0..10).filter(|&n| followed[n]).collect();
        assert_eq!(at, [4, 9]);
    }

    #[test]
    fn a_file_written_in_place_without_pause_is_never_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("devices.csv");
        fs::write(&path, "a").unwrap();
        let grow = |n: usize| fs::write(&path, "a".repeat(n + 2)).unwrap();
        assert_eq!(looks(&path, 20, grow), [false; 20]);
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_alone_and_holds_up_nothing() {
        let (free, hangs) = mpsc::channel::<()>();
        let mut watch = Watch::new(None, Mono::default());
        watch.begin(Mono::default(), move || {
            hangs.recv().unwrap_err();
            None
        });
        assert_eq!(watch.look_at, Mono::default().plus(LOOK_EVERY));
        watch.begin(watch.look_at, || panic!("a second look beside the first"));
        assert!(watch.look_at > Mono::default().plus(LOOK_EVERY));
        // Nothing waits for it: this thread goes on.
        let held = tokio::time::timeout(Duration::ZERO, watch.ended()).await;
        assert!(held.is_err());
        drop(free);
        assert_eq!(watch.ended().await.unwrap(), None);
    }
}
