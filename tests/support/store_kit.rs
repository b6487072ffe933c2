//! Short words for tests of the store.

use std::fs;
use std::path::Path;

use sitebeat::domain::device::DeviceId;
use sitebeat::domain::event::{Change, Event, Failure, FailureCode, News, Stage};
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::store::{OpenError, Opened, Options, Store};

/// 2026-03-12T00:00:00Z.
pub(crate) const DAY_START: i64 = 1_773_273_600_000;

pub(crate) fn at(millis: i64) -> Wall {
    Wall::from_millis(DAY_START + millis)
}

pub(crate) fn id(n: usize) -> DeviceId {
    format!("meter-{n:04}").parse().unwrap()
}

pub(crate) fn options(path: &Path) -> Options {
    Options {
        path: path.to_owned(),
        site: "site-1".into(),
        node: "gw-a".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    }
}

pub(crate) fn try_open(path: &Path, now: Wall) -> Result<Opened, OpenError> {
    Store::open(&options(path), now)
}

pub(crate) fn open(path: &Path, now: Wall) -> Opened {
    try_open(path, now).unwrap()
}

pub(crate) fn reply(n: usize, millis: i64) -> Sample {
    Sample {
        device: id(n),
        at: at(millis),
        outcome: Outcome::Replied {
            rtt_us: 300_000 + u32::try_from(n).unwrap(),
        },
        occasion: Occasion::Scheduled,
        status: Status::Online,
    }
}

pub(crate) fn miss(n: usize, millis: i64) -> Sample {
    Sample {
        outcome: Outcome::Missed(Miss::Timeout),
        ..reply(n, millis)
    }
}

/// Device `n` turned `status` at `millis`.
pub(crate) fn turn(n: usize, status: Status, millis: i64) -> Change {
    let track = Track {
        status,
        since: Some(at(millis)),
        last_ping_at: Some(at(millis)),
        last_seen: Some(at(millis)),
        rtt_us: Some(1_000),
        updated_at: Some(at(millis)),
        ..Track::default()
    };
    let news = News::StatusChanged {
        previous: Status::Unknown,
        current: status,
        missed_count: 0,
        last_seen: Some(at(millis)),
    };
    Change::Standing {
        liveness: Liveness {
            device: id(n),
            track,
        },
        event: event(Some(n), millis, news),
    }
}

pub(crate) fn removal(n: usize, millis: i64) -> Change {
    Change::Removal {
        device: id(n),
        event: event(Some(n), millis, News::DeviceRemoved { reason: "removed" }),
    }
}

pub(crate) fn notice(n: usize, millis: i64) -> Event {
    let failure = Failure {
        stage: Stage::Heartbeat,
        code: FailureCode::PingTimeout,
        message: format!("no reply from {}", id(n)),
        retryable: true,
        failed_at: at(millis),
    };
    event(Some(n), millis, News::Failed(failure))
}

pub(crate) fn event(n: Option<usize>, millis: i64, news: News) -> Event {
    Event {
        device: n.map(id),
        produced_at: at(millis),
        process_ms: 1,
        news,
    }
}

/// The numbers of all events, oldest first.
pub(crate) fn seqs(store: &Store) -> Vec<u64> {
    let events = store.events(None, None, usize::MAX).unwrap();
    events.iter().rev().map(|event| event.seq).collect()
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Every file below a folder with its content, by relative path.
pub(crate) fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    collect(folder, folder, &mut found);
    found.sort();
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy();
            found.push((name.into_owned(), fs::read(&path).unwrap()));
        }
    }
}
