//! Random deeds on the store and on a plain model of it, in lockstep.
//!
//! The model: heartbeats, waiting or written, in a list; events in a list;
//! verdicts in a map. A crash is a copy of the folder, opened elsewhere: what was
//! not flushed is gone, all else is there.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::status::{Liveness, Status};
use sitebeat::store::{Opened, Store};
use store_kit::{at, copy_folder, id, miss, notice, open, removal, reply, turn};
use tempfile::TempDir;

const DEVICES: usize = 5;
const DAYS: i64 = 3;
const DAY: i64 = 86_400_000;

#[derive(Clone, Debug)]
enum Deed {
    Push(Vec<(usize, i64, bool)>),
    Notice(usize),
    Flush,
    Commit(Vec<(usize, Status)>),
    Remove(usize),
    Checkpoint,
    RemoveDay(i64),
    Close,
    Crash,
}

fn deed() -> impl Strategy<Value = Deed> {
    let device = 0..DEVICES;
    let beat = (device.clone(), 0..DAYS * DAY, any::<bool>());
    let status = proptest::sample::select(Status::ALL.to_vec());
    prop_oneof![
        6 => proptest::collection::vec(beat, 1..40).prop_map(Deed::Push),
        2 => device.clone().prop_map(Deed::Notice),
        5 => Just(Deed::Flush),
        4 => proptest::collection::vec((device.clone(), status), 1..4).prop_map(Deed::Commit),
        1 => device.prop_map(Deed::Remove),
        2 => Just(Deed::Checkpoint),
        1 => (0..DAYS).prop_map(Deed::RemoveDay),
        1 => Just(Deed::Close),
        2 => Just(Deed::Crash),
    ]
}

#[derive(Default)]
struct Model {
    waiting: Vec<Sample>,
    written: Vec<Sample>,
    waiting_notices: Vec<String>,
    /// What each event must say, by number from 1.
    events: Vec<String>,
    verdicts: BTreeMap<DeviceId, Option<Status>>,
}

/// The store under test, and where it lives now.
struct Bench {
    folder: TempDir,
    path: PathBuf,
    opened: Opened,
    lives: u32,
    now: i64,
    model: Model,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life-1");
        let opened = open(&path, at(0));
        Self {
            folder,
            path,
            opened,
            lives: 1,
            now: 0,
            model: Model::default(),
        }
    }

    fn store(&self) -> &Store {
        &self.opened.store
    }

    fn act(&mut self, deed: &Deed) {
        self.now += 1;
        match deed {
            Deed::Push(_) | Deed::Notice(_) | Deed::Flush | Deed::RemoveDay(_) => self.keep(deed),
            Deed::Commit(_) | Deed::Remove(_) | Deed::Checkpoint => self.commit(deed),
            Deed::Close => {
                self.store().close(at(self.now)).unwrap();
                self.model.flush();
                self.reopen();
            }
            Deed::Crash => {
                self.lives += 1;
                let copy = self.folder.path().join(format!("life-{}", self.lives));
                copy_folder(&self.path, &copy);
                self.path = copy;
                self.model.waiting.clear();
                self.model.waiting_notices.clear();
                self.reopen();
            }
        }
    }

    /// Deeds on heartbeats and notices.
    fn keep(&mut self, deed: &Deed) {
        let now = self.now;
        match deed {
            Deed::Push(beats) => {
                let make = |&(n, millis, replied): &(usize, i64, bool)| {
                    if replied {
                        reply(n, millis)
                    } else {
                        miss(n, millis)
                    }
                };
                let samples: Vec<_> = beats.iter().map(make).collect();
                self.store().push_raw(&samples);
                self.model.waiting.extend(samples);
            }
            Deed::Notice(n) => {
                self.store().push_notices(vec![notice(*n, now)]);
                self.model.waiting_notices.push(at(now).to_string());
            }
            Deed::Flush => {
                self.store().flush_raw(at(now)).unwrap();
                self.model.flush();
            }
            Deed::RemoveDay(day) => {
                let day = Day::of(at(day * DAY)).unwrap();
                self.store().remove_raw_day(day).unwrap();
                self.model
                    .written
                    .retain(|sample| Day::of(sample.at) != Some(day));
            }
            Deed::Commit(_) | Deed::Remove(_) | Deed::Checkpoint | Deed::Close | Deed::Crash => {}
        }
    }

    /// Deeds on standings.
    fn commit(&mut self, deed: &Deed) {
        let now = self.now;
        match deed {
            Deed::Commit(turns) => {
                let changes: Vec<_> = turns.iter().map(|&(n, to)| turn(n, to, now)).collect();
                let seqs = self.store().commit(&changes, at(now)).unwrap();
                let first = self.model.events.len() as u64 + 1;
                assert_eq!(seqs, (first..first + seqs.len() as u64).collect::<Vec<_>>());
                for &(n, to) in turns {
                    self.model
                        .events
                        .push(format!("\"current_status\":\"{to}\""));
                    self.model.verdicts.insert(id(n), Some(to));
                }
            }
            Deed::Remove(n) => {
                // Long after every heartbeat, so that none brings it back.
                let gone = removal(*n, DAYS * DAY + now);
                self.store().commit(&[gone], at(now)).unwrap();
                self.model.events.push("\"reason\":\"removed\"".into());
                self.model.verdicts.insert(id(*n), None);
            }
            Deed::Checkpoint => {
                let standings: Vec<Liveness> = self.opened.standings.clone();
                self.store().checkpoint(&standings, at(now)).unwrap();
            }
            Deed::Push(_)
            | Deed::Notice(_)
            | Deed::Flush
            | Deed::RemoveDay(_)
            | Deed::Close
            | Deed::Crash => {}
        }
    }

    fn reopen(&mut self) {
        let boot = self.opened.boot;
        self.opened = open(&self.path, at(self.now));
        assert_eq!(self.opened.mended, [""; 0]);
        assert_eq!(self.opened.boot, boot + 1);
        self.check_verdicts();
    }

    fn check_verdicts(&self) {
        let standing = |device| {
            let mut all = self.opened.standings.iter();
            all.find(|one| one.device == device)
                .map(|one| one.track.status)
        };
        for (&device, &verdict) in &self.model.verdicts {
            // A device that left may stand again, by a checkpoint taken later.
            let expected = verdict.unwrap_or(Status::Unknown);
            let found = standing(device).unwrap_or(Status::Unknown);
            assert_eq!(found, expected, "{device}");
        }
    }

    fn check(&self) {
        for n in 0..DEVICES {
            for day in 0..DAYS {
                let day = Day::of(at(day * DAY)).unwrap();
                let found = self.store().heartbeats(id(n), day).unwrap();
                assert_eq!(found, self.model.heartbeats(id(n), day), "{n} on {day}");
            }
        }
        let found = self.store().events(None, None, usize::MAX).unwrap();
        assert_eq!(found.len(), self.model.events.len());
        for (event, (seq, words)) in found.iter().rev().zip((1..).zip(&self.model.events)) {
            assert_eq!(event.seq, seq);
            assert!(event.json.contains(words), "{}: {words}", event.json);
            assert!(event.json.contains(&format!("\"seq\":{seq},")));
        }
        let figures = self.store().figures();
        assert_eq!(figures.open_samples, self.model.waiting.len());
        assert_eq!(figures.lost_samples, 0);
    }
}

impl Model {
    fn flush(&mut self) {
        self.written.append(&mut self.waiting);
        self.events.append(&mut self.waiting_notices);
    }

    fn heartbeats(&self, device: DeviceId, day: Day) -> Vec<Sample> {
        let all = self.written.iter().chain(&self.waiting);
        let mut found: Vec<Sample> = all
            .filter(|sample| sample.device == device && Day::of(sample.at) == Some(day))
            .copied()
            .collect();
        found.sort_by_key(|sample| sample.at);
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_store_does_what_a_plain_list_does(
        deeds in proptest::collection::vec(deed(), 1..40),
    ) {
        let mut bench = Bench::new();
        for deed in &deeds {
            bench.act(deed);
        }
        bench.check();
        bench.act(&Deed::Close);
        bench.check();
        bench.act(&Deed::Crash);
        bench.check();
    }
}
