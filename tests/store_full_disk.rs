//! A disk that fills up: writes are refused, nothing acknowledged is lost, and
//! they resume without a restart when there is room again.
//!
//! The scene plays in a child process with a small tmpfs of its own, mounted in
//! a mount namespace of its own; so nothing needs cleaning up.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

#[path = "support/small_disk.rs"]
mod small_disk;

use std::error::Error as _;
use std::fs;

use sitebeat::domain::daily::{Figures, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::event::{Change, News};
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::status::Status;
use sitebeat::store::{Store, WriteError};
use store_kit::{at, event, id, notice, open, reply, turn};

const DEVICES: usize = 300;

#[test]
fn a_full_disk_loses_nothing_and_is_left_without_a_restart() {
    small_disk::play("scene_on_a_small_disk");
}

#[test]
fn a_close_that_failed_can_be_tried_again() {
    small_disk::play("scene_of_a_close_on_a_full_disk");
}

#[test]
fn a_day_that_is_summarised_on_a_full_disk_is_told_once_there_is_room() {
    small_disk::play("scene_of_a_day_on_a_full_disk");
}

/// Does nothing unless it is the child.
#[test]
fn scene_on_a_small_disk() {
    let Some(disk) = small_disk::disk() else {
        return;
    };
    let data = disk.join("data");
    let mut opened = open(&data, at(0));
    let mut scene = Scene::default();
    for round in 0..3 {
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![7; 3 << 20]).unwrap();
        scene.fill(&opened.store);
        scene.is_refused(&opened.store);
        scene.all_is_there(&opened.store, false);
        fs::remove_file(ballast).unwrap();
        scene.resumes(&opened.store);
        scene.all_is_there(&opened.store, true);
        assert_eq!(opened.store.take_mended(), [""; 0], "round {round}");
        if round == 1 {
            drop(opened);
            opened = open(&data, at(scene.now));
            assert_eq!(opened.mended, [""; 0]);
            scene.all_is_there(&opened.store, true);
        }
        // The next round needs room to fill.
        scene.make_room(&opened.store);
    }
}

#[test]
fn scene_of_a_close_on_a_full_disk() {
    let Some(disk) = small_disk::disk() else {
        return;
    };
    let data = disk.join("closing");
    let store = open(&data, at(0)).store;
    store.push_raw(&[reply(1, 1_000)]);
    store.push_notices(vec![notice(1, 1_000)]);
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![7; 32 << 20]).unwrap_err();
    let told = |fault: &WriteError| fault.source().unwrap().to_string();
    let first = store.close(at(2_000)).unwrap_err();
    let again = store.close(at(3_000)).unwrap_err();
    assert_eq!(told(&first), told(&again), "the reason stays the true one");
    assert!(!told(&again).contains("closed"), "{again:?}");
    assert_eq!(store.figures().open_samples, 1);
    fs::remove_file(ballast).unwrap();
    store.close(at(4_000)).unwrap();
    store.close(at(5_000)).unwrap();
    let opened = open(&data, at(6_000));
    assert_eq!(opened.mended, [""; 0]);
    let day = Day::of(at(1_000)).unwrap();
    let found = opened.store.heartbeats(id(1), day).unwrap();
    assert_eq!(found, [reply(1, 1_000)]);
    assert_eq!(opened.store.events(None, None, 10).unwrap().len(), 1);
}

#[test]
fn scene_of_a_day_on_a_full_disk() {
    let Some(disk) = small_disk::disk() else {
        return;
    };
    let data = disk.join("day");
    let store = open(&data, at(0)).store;
    let day = Day::of(at(0)).unwrap();
    let rows = |n: usize| -> Vec<Summary> { (0..n).map(|n| row(day, n)).collect() };
    store.upsert_summaries(day, &rows(10)).unwrap();
    store.announce(&told(day, 0..10), at(0)).unwrap();
    store.push_raw(&[reply(1, 0)]);
    store.flush_raw(at(0)).unwrap();
    for round in 1..=3 {
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![7; 32 << 20]).unwrap_err();
        let (rows, told) = (rows(round * 1_000), told(day, 0..round * 1_000));
        store.push_late(&[(id(1), at(0))]);
        let mut refused = 0;
        for _ in 0..3 {
            refused += u32::from(store.flush_raw(at(0)).is_err());
            refused += u32::from(store.upsert_summaries(day, &rows).is_err());
            refused += u32::from(store.announce(&told, at(0)).is_err());
        }
        assert!(refused > 0, "there is room for everything");
        fs::remove_file(ballast).unwrap();
        store.flush_raw(at(0)).unwrap();
        store.upsert_summaries(day, &rows).unwrap();
        store.announce(&told, at(0)).unwrap();
    }
    assert_eq!(store.take_mended(), [""; 0]);
    store.close(at(1)).unwrap();
    let store = open(&data, at(1)).store;
    let mut found = Vec::new();
    let each = &mut |row: &Summary| {
        found.push(*row);
        true
    };
    store.summaries(day, day, None, each).unwrap();
    assert_eq!(found, rows(3_000));
    let events = store.events(None, None, usize::MAX).unwrap();
    assert_eq!(events.len(), 3_000, "each is told once");
    let mut late = Vec::new();
    store
        .read_day(day, &mut |group| late.extend(group))
        .unwrap();
    assert_eq!((late[0].beats.len(), late[0].late), (1, 3));
}

fn row(day: Day, n: usize) -> Summary {
    Summary {
        day,
        device: id(n),
        figures: Figures::default(),
        calc_version: 1,
        created_at: at(0),
        updated_at: at(0),
    }
}

/// As a caller makes it anew at each try.
fn told(day: Day, devices: std::ops::Range<usize>) -> Vec<Change> {
    let of = |n| Change::Announcement {
        day,
        content: 1,
        event: event(Some(n), 0, News::DaySummarised(Box::new(row(day, n)))),
    };
    devices.map(of).collect()
}

#[derive(Default)]
struct Scene {
    now: i64,
    acknowledged: Vec<Sample>,
    waiting: Vec<Sample>,
    events: Vec<u64>,
    /// Time of the change that is tried again and again.
    round: i64,
}

impl Scene {
    fn stubborn(&self) -> Change {
        turn(999, Status::Offline, self.round)
    }

    fn fill(&mut self, store: &Store) {
        // Mostly raw, so that the state leaves room for the rounds to come.
        for turn in 0..10_000 {
            if self.flush(store) {
                if turn % 20 == 0 {
                    self.commit(store);
                }
            } else if !self.commit(store) {
                return;
            }
        }
        panic!("the disk never fills up");
    }

    fn is_refused(&mut self, store: &Store) {
        for _ in 0..3 {
            assert!(!self.flush(store));
            assert!(store.commit(&[self.stubborn()], at(self.now)).is_err());
        }
        assert_eq!(store.figures().open_samples, self.waiting.len());
    }

    fn resumes(&mut self, store: &Store) {
        assert!(self.flush(store), "raw does not resume");
        let seqs = store.commit(&[self.stubborn()], at(self.now)).unwrap();
        self.events.extend(seqs);
        let events = store.events(None, None, usize::MAX).unwrap();
        let wanted = format!(r#""missed_count":0,"last_seen":"{}""#, at(self.round));
        let told = events
            .iter()
            .filter(|event| event.json.contains(&wanted) && event.json.contains("meter-0999"));
        assert_eq!(told.count(), 1, "tried four times, told once");
        assert!(self.commit(store), "events do not resume");
        assert!(self.flush(store) && self.commit(store));
        assert_eq!(store.figures().open_samples, 0);
        assert_eq!(store.figures().lost_samples, 0);
    }

    fn make_room(&mut self, store: &Store) {
        let day = Day::of(at(self.now)).unwrap();
        store.remove_raw_day(day).unwrap();
        self.acknowledged.clear();
        self.round = self.now;
        // On to the next day.
        self.now += 86_400_000;
    }

    /// A minute of heartbeats; tells whether it is acknowledged.
    fn flush(&mut self, store: &Store) -> bool {
        self.now += 60;
        let now = self.now;
        let samples: Vec<_> = (0..DEVICES).map(|n| reply(n, now)).collect();
        store.push_raw(&samples);
        self.waiting.extend(samples);
        let done = store.flush_raw(at(now)).is_ok();
        if done {
            self.acknowledged.append(&mut self.waiting);
        }
        done
    }

    /// Some changes of status; tells whether they are acknowledged.
    fn commit(&mut self, store: &Store) -> bool {
        let changes: Vec<_> = (0..20).map(|n| turn(n, Status::Online, self.now)).collect();
        match store.commit(&changes, at(self.now)) {
            Ok(seqs) => {
                self.events.extend(seqs);
                true
            }
            Err(_) => false,
        }
    }

    /// While the disk is full the store may be unable to read, but never wrong.
    fn all_is_there(&self, store: &Store, must_read: bool) {
        let day = Day::of(at(self.now)).unwrap();
        let events = store.events(None, None, usize::MAX);
        assert!(events.is_ok() || !must_read, "{events:?}");
        if let Ok(found) = events {
            let found: Vec<u64> = found.iter().rev().map(|event| event.seq).collect();
            for seq in &self.events {
                assert!(found.contains(seq), "event {seq} is lost");
            }
            let expected: Vec<u64> = (1..=found.len() as u64).collect();
            assert_eq!(found, expected, "a gap or a repeat");
        }
        for n in [0, 150, DEVICES - 1] {
            let found = store.heartbeats(id(n), day);
            assert!(found.is_ok() || !must_read, "{found:?}");
            let waiting = self.waiting.iter().filter(|one| one.device == id(n));
            let found = match found {
                Ok(found) => found,
                Err(fault) => {
                    assert!(fault.in_memory.iter().eq(waiting), "{fault:?}");
                    continue;
                }
            };
            let expected: Vec<&Sample> = self
                .acknowledged
                .iter()
                .chain(&self.waiting)
                .filter(|sample| sample.device == id(n))
                .collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "device {n}");
        }
    }
}
