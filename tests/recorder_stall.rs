//! A disk that answers no more: the recorder says so while it waits, and no longer.
//!
//! The lock file is replaced by a pipe: the store opens it before it writes, and the
//! kernel holds whoever opens a pipe for writing until somebody reads.
#![cfg(test)]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sitebeat::board::{Board, Failing};
use sitebeat::clock::SimulatedClock;
use sitebeat::domain::instant::Wall;
use sitebeat::edge::recorder::{Keeping, Links, Recorder};
use sitebeat::edge::report::Report;
use sitebeat::edge::uplink::tap::tap;
use sitebeat::store::{Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const START: &str = "2026-03-12T10:00:00Z";

struct Running {
    board: Arc<Board>,
    reports: mpsc::Sender<Report>,
    _keeping: watch::Sender<Keeping>,
    task: JoinHandle<bool>,
}

impl Running {
    /// A recorder that writes every five seconds.
    fn start(path: &Path) -> Self {
        let now = Wall::parse(START).unwrap();
        let options = Options {
            path: path.to_owned(),
            site: "site-1".into(),
            node: "gateway".into(),
            max_bytes: 2 << 30,
            min_free_bytes: 0,
        };
        let board = Arc::new(Board::default());
        let (reports, reports_in) = mpsc::channel(4);
        let (keeping, keeping_in) = watch::channel(Keeping {
            flush_every: Duration::from_secs(5),
            raw_retention: Duration::from_hours(48),
        });
        let links = Links {
            reports: reports_in,
            store: Arc::new(Store::open(&options, now).unwrap().store),
            board: Arc::clone(&board),
            clock: Arc::new(SimulatedClock::starting_at(now)),
            keeping: keeping_in,
            tap: tap().0,
        };
        Self {
            board,
            reports,
            _keeping: keeping,
            task: tokio::spawn(Recorder::new(links, &[]).run()),
        }
    }

    fn failing(&self) -> Option<Failing> {
        self.board.look().gateway.store.failing.clone()
    }
}

/// Lets time pass in steps. The paused clock stands still by itself while a thread
/// blocks.
async fn pass(seconds: u64) {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_end_is_shown_as_failing_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let running = Running::start(&path);
    pass(1).await;
    let lock = path.join("LOCK");
    fs::remove_file(&lock).unwrap();
    mkfifo(&lock, Mode::S_IRWXU).unwrap();
    // The write begins after five seconds.
    pass(30).await;
    assert_eq!(running.failing(), None, "not yet");
    pass(10).await;
    let failing = running.failing().expect("it is said");
    assert!(
        failing
            .reason
            .starts_with("the disk has not answered for 3"),
        "{failing:?}"
    );
    let began = Wall::parse(START).unwrap().plus(Duration::from_secs(5));
    assert!(
        failing.since.since(began) < Duration::from_secs(2),
        "{failing:?}"
    );
    pass(20).await;
    let later = running.failing().expect("it is still said");
    assert_eq!(later.since, failing.since);
    assert_ne!(later.reason, failing.reason, "the time goes on");
    let reader = thread::spawn(move || File::open(lock).unwrap());
    for _ in 0..20_000 {
        if running.failing().is_none() {
            break;
        }
        tokio::task::yield_now().await;
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(running.failing(), None);
    drop(running.reports);
    assert!(running.task.await.unwrap(), "everything is kept at the end");
    drop(reader.join().unwrap());
}
