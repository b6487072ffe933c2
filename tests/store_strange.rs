//! Things in the store's folder that no run of ours leaves there: each is told by
//! its name with the cure, or costs nothing.
#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/store_kit.rs"]
mod store_kit;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::Duration;

use sitebeat::clock::{Clock as _, SystemClock};
use sitebeat::domain::day::Day;
use sitebeat::edge::rollup::plan::{Depth, Job};
use sitebeat::edge::rollup::work::{Summarised, summarise};
use sitebeat::fault::chain;
use sitebeat::store::{OpenError, Store};
use store_kit::{at, id, open, reply, seqs, try_open};

const DAY: i64 = 86_400_000;

fn day(millis: i64) -> Day {
    Day::of(at(millis)).unwrap()
}

fn finish(store: &Store, day: Day) -> Summarised {
    let job = Job {
        day,
        depth: Depth::Final,
    };
    summarise(store, job, day.end()).unwrap()
}

#[test]
fn a_file_named_as_what_is_being_removed_stops_neither_a_start_nor_a_removal() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[reply(1, 0)]);
    store.flush_raw(at(0)).unwrap();
    let raw = folder.path().join("raw");
    let in_the_way = raw.join(format!("{}.removing", day(0)));
    fs::write(&in_the_way, "x").unwrap();
    store.remove_raw_day(day(0)).unwrap();
    assert_eq!(store.raw_days().unwrap(), []);
    drop(store);
    for part in ["raw", "daily"] {
        let part = folder.path().join(part);
        fs::write(part.join("x.removing"), "x").unwrap();
        symlink("/nowhere", part.join("y.removing")).unwrap();
    }
    assert_eq!(open(folder.path(), at(0)).mended, [""; 0]);
    assert!(!raw.join("x.removing").exists());
}

#[test]
fn a_link_to_nothing_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    symlink(folder.path().join("disk"), &path).unwrap();
    let told = chain(&try_open(&path, at(0)).unwrap_err());
    assert!(
        told.contains("symbolic link") && told.contains("/disk, which is not there"),
        "{told}"
    );
    assert!(!folder.path().join("disk").exists());
    fs::create_dir(folder.path().join("disk")).unwrap();
    open(&path, at(0));
}

#[test]
fn rows_removed_under_the_program_are_told_though_nobody_asks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let daily = folder.path().join("daily");
    let flush = |n: i64| {
        store.push_raw(&[reply(1, n)]);
        store.flush_raw(at(n)).unwrap();
    };
    flush(0);
    // What holds no rows is no loss.
    fs::remove_dir_all(&daily).unwrap();
    flush(1);
    assert_eq!(store.take_mended(), [""; 0]);
    assert!(daily.is_dir());
    assert_eq!(finish(&store, day(0)).told, 2);
    // The month is closed by then.
    (2..30).for_each(flush);
    fs::remove_dir_all(&daily).unwrap();
    flush(30);
    let told = store.take_mended();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("daily was removed"), "{told:?}");
    flush(31);
    assert_eq!(store.take_mended(), [""; 0], "told once");
    finish(&store, day(0));
}

#[test]
fn an_empty_folder_among_those_of_raw_makes_no_row_and_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[reply(1, 0)]);
    store.flush_raw(at(0)).unwrap();
    let empty = day(-DAY);
    fs::create_dir(folder.path().join(format!("raw/{empty}"))).unwrap();
    assert_eq!(store.raw_days().unwrap(), [empty, day(0)]);
    assert_eq!(finish(&store, empty), Summarised::default());
    assert_eq!(seqs(&store), [0_u64; 0]);
    assert_eq!(store.final_days().unwrap(), []);
    assert_eq!(finish(&store, day(0)).told, 2);
    // A day that has rows already is not empty, whatever became of its raw.
    store.remove_raw_day(day(0)).unwrap();
    fs::create_dir(folder.path().join(format!("raw/{}", day(0)))).unwrap();
    assert_eq!(finish(&store, day(0)), Summarised::default());
    assert_eq!(store.final_days().unwrap(), [day(0)]);
    assert_eq!(store.standing_of(id(1)).unwrap(), None);
}

#[test]
fn a_database_that_another_process_holds_is_waited_for_three_seconds() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), at(0)));
    // As a process does whose LOCK somebody removed.
    let held = File::open(folder.path().join("state/db")).unwrap();
    held.lock().unwrap();
    let clock = SystemClock::new();
    let began = clock.mono();
    let refused = try_open(folder.path(), at(0)).unwrap_err();
    let waited = clock.mono().since(began);
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(8)).contains(&waited),
        "{waited:?}"
    );
    held.unlock().unwrap();
    assert_eq!(open(folder.path(), at(0)).mended, [""; 0]);
}
