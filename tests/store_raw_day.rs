//! A whole day of raw, read device by device, and its late replies.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use sitebeat::domain::daily::Beat;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::store::Store;
use sitebeat::store::daily::DeviceDay;
use store_kit::{at, id, miss, open, options, reply};

const DAY: i64 = 86_400_000;

fn day() -> Day {
    Day::of(at(0)).unwrap()
}

fn read(store: &Store, day: Day) -> BTreeMap<DeviceId, DeviceDay> {
    let mut found = BTreeMap::new();
    store
        .read_day(day, &mut |devices| {
            for one in devices {
                assert!(found.insert(one.device, one).is_none(), "a device twice");
            }
        })
        .unwrap();
    found
}

fn late(store: &Store, day: Day) -> Vec<(DeviceId, u32)> {
    let found = read(store, day).into_values();
    found.map(|one| (one.device, one.late)).collect()
}

fn beats(samples: &[Sample]) -> Vec<Beat> {
    let beat = |one: &Sample| Beat {
        at: one.at,
        outcome: one.outcome,
        occasion: one.occasion,
        status: one.status,
    };
    samples.iter().map(beat).collect()
}

#[test]
fn late_replies_are_counted_with_the_day_of_their_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[miss(1, 0), miss(2, 0)]);
    store.push_late(&[(id(1), at(0)), (id(1), at(60_000)), (id(2), at(DAY))]);
    assert_eq!(late(&store, day()), [], "nothing is read before the flush");
    store.flush_raw(at(1)).unwrap();
    assert_eq!(late(&store, day()), [(id(1), 2), (id(2), 0)]);
    // Without a heartbeat of its own, and after a restart, they add up.
    assert_eq!(late(&store, day().next()), [(id(2), 1)]);
    store.push_late(&[(id(1), at(0)), (id(3), at(0))]);
    store.close(at(2)).unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_late(&[(id(1), at(0))]);
    store.flush_raw(at(3)).unwrap();
    assert_eq!(late(&store, day()), [(id(1), 4), (id(2), 0), (id(3), 1)]);
    store.flush_raw(at(4)).unwrap();
    assert_eq!(late(&store, day())[0], (id(1), 4));
}

#[test]
fn a_start_without_a_checkpoint_finds_the_end_of_every_device_of_a_large_day() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    // More than is read of a day before it is opened again.
    let (devices, beats) = (600, 1_600);
    for flush in 0..16 {
        let beats_now = flush * 100..(flush + 1) * 100;
        let samples: Vec<Sample> = beats_now
            .flat_map(|beat| (0..devices).map(move |n| (beat, n)))
            .map(|(beat, n)| {
                let millis = i64::from(beat) * 50_000 + i64::try_from(n).unwrap();
                let is_missed = beat >= beats - i32::try_from(n % 3).unwrap();
                if is_missed {
                    miss(n, millis)
                } else {
                    reply(n, millis)
                }
            })
            .collect();
        store.push_raw(&samples);
        store
            .flush_raw(at(i64::from(flush + 1) * 5_000_000))
            .unwrap();
    }
    drop(store);
    let opened = open(folder.path(), at(DAY));
    assert_eq!(opened.mended, Vec::<String>::new());
    let found = opened.standings.iter();
    let found: Vec<_> = found
        .map(|one| (one.device, one.track.missed_count, one.track.last_ping_at))
        .collect();
    let expected: Vec<_> = (0..devices)
        .map(|n| {
            let last = i64::from(beats - 1) * 50_000 + i64::try_from(n).unwrap();
            (id(n), u32::try_from(n % 3).unwrap(), Some(at(last)))
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn late_counts_that_were_refused_are_written_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.set_limits(1, 0);
    for _ in 0..3 {
        store.push_late(&[(id(1), at(0))]);
        assert!(store.flush_raw(at(1)).is_err());
    }
    store.set_limits(1 << 30, 0);
    store.flush_raw(at(2)).unwrap();
    assert_eq!(late(&store, day()), [(id(1), 3)]);
}

#[test]
fn a_file_in_the_place_of_a_day_costs_no_late_count() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let blocked = folder.path().join("raw").join(day().to_string());
    fs::write(&blocked, "").unwrap();
    for _ in 0..2 {
        store.push_late(&[(id(1), at(0))]);
        store.flush_raw(at(1)).unwrap();
    }
    assert_eq!(late(&store, day()), [(id(1), 2)]);
}

#[test]
fn a_day_without_raw_is_no_call_and_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    assert_eq!(read(&store, day()), BTreeMap::new());
    assert_eq!(store.raw_days().unwrap(), []);
}

#[test]
fn flushing_goes_on_while_a_day_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let devices = 1_000;
    for hour in 0..24 {
        let samples: Vec<_> = (0..20)
            .flat_map(|minute| (0..devices).map(move |n| reply(n, (hour * 60 + minute) * 60_000)))
            .collect();
        store.push_raw(&samples);
        store.flush_raw(at(0)).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut count = 0;
            store
                .read_day(day(), &mut |devices| {
                    // Who takes its time with a group holds up nobody.
                    thread::sleep(Duration::from_millis(300));
                    count += devices.iter().map(|one| one.beats.len()).sum::<usize>();
                })
                .unwrap();
            is_over.store(true, Ordering::SeqCst);
            count
        });
        let mut flushes = 0;
        while !is_over.load(Ordering::SeqCst) {
            store.push_raw(&[reply(0, DAY + flushes)]);
            store.flush_raw(at(DAY)).unwrap();
            flushes += 1;
        }
        // Four groups of 300 ms: one each, if the day were held meanwhile.
        assert!(flushes > 20, "{flushes} flushes");
        assert_eq!(reader.join().unwrap(), devices * 480);
    });
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_the_day() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[reply(1, 0)]);
    store.close(at(1)).unwrap();
    let refused = store.read_day(day(), &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("2026-03-12"), "{refused}");
    assert!(options(folder.path()).path.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_day_read_is_a_plain_list_sorted_by_time(
        starts in prop::collection::vec(
            prop::collection::vec((0_usize..600, 0_i64..40, any::<bool>()), 0..200),
            1..5,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut model: BTreeMap<DeviceId, Vec<Sample>> = BTreeMap::new();
        let mut store = open(folder.path(), at(0)).store;
        for samples in starts {
            let samples: Vec<Sample> = samples
                .into_iter()
                .map(|(n, millis, is_reply)| if is_reply { reply(n, millis) } else { miss(n, millis) })
                .collect();
            for part in samples.chunks(70) {
                store.push_raw(part);
                store.flush_raw(at(0)).unwrap();
            }
            for sample in samples {
                let held = model.entry(sample.device).or_default();
                if !held.contains(&sample) {
                    held.push(sample);
                }
            }
            drop(store);
            store = open(folder.path(), at(0)).store;
        }
        let found = read(&store, day());
        prop_assert_eq!(found.len(), model.len());
        for (device, mut samples) in model {
            let found = &found[&device];
            // As a page sees them.
            prop_assert_eq!(&found.beats, &beats(&store.heartbeats(device, day()).unwrap()));
            let mut ours = found.beats.clone();
            let key = |at, outcome| (at, format!("{outcome:?}"));
            ours.sort_by_key(|beat| key(beat.at, beat.outcome));
            samples.sort_by_key(|one| key(one.at, one.outcome));
            prop_assert_eq!(ours, beats(&samples));
            prop_assert!(found.beats.is_sorted_by_key(|beat| beat.at));
        }
    }
}
