//! What is past its retention goes, and nothing else; a store that is only read.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::fs;
use std::path::Path;

use sitebeat::domain::daily::{CALC_VERSION, Figures, SiteSummary, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::event::{Change, News};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use sitebeat::store::{OpenError, Store};
use store_kit::{at, contents, copy_folder, event, id, notice, open, removal, reply, seqs, turn};

const DAY: i64 = 86_400_000;

fn day(n: i64) -> Day {
    Day::of(at(n * DAY)).unwrap()
}

fn row(day: Day) -> Summary {
    Summary {
        day,
        device: id(1),
        figures: Figures::default(),
        calc_version: CALC_VERSION,
        created_at: at(0),
        updated_at: at(0),
    }
}

fn site(day: Day) -> Change {
    let news = News::SiteSummarised(Box::new(SiteSummary::of(day, [])));
    Change::Announcement {
        day,
        content: 1,
        event: event(None, 0, news),
    }
}

/// One turn and one failed heartbeat a day: numbers 2 n + 1 and 2 n + 2.
fn work(store: &Store, days: std::ops::Range<i64>) {
    for n in days {
        let now = n * DAY + 1_000;
        let changes = [turn(1, Status::Online, now), Change::Notice(notice(2, now))];
        store.commit(&changes, at(now)).unwrap();
    }
}

fn prune(store: &Store, events_from: Wall, heartbeat_from: Wall) {
    store
        .prune(day(-10_000), 0, events_from, heartbeat_from)
        .unwrap();
}

#[test]
fn old_events_go_and_numbers_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = open(folder.path(), at(0));
    work(&opened.store, 0..10);
    // Turns from day 3 on stay, failed heartbeats from day 7 on.
    let expected: Vec<u64> = [7, 9, 11, 13].into_iter().chain(15..=20).collect();
    for _ in 0..2 {
        prune(&opened.store, at(3 * DAY), at(7 * DAY));
        assert_eq!(seqs(&opened.store), expected);
    }
    for round in 0..2 {
        drop(opened);
        opened = open(folder.path(), at(0));
        assert_eq!(opened.mended, [""; 0]);
        assert_eq!(opened.store.figures().events, 10 + round);
        let seqs = opened.store.commit(&[removal(9, 0)], at(0)).unwrap();
        assert_eq!(seqs, [21 + round]);
    }
    let newest = &opened.store.events(None, None, 1).unwrap()[0];
    assert!(newest.json.contains(r#""seq":22,"prev_seq":21}"#));
    // All of it, in the end; the next number is another one all the same.
    prune(&opened.store, at(99 * DAY), at(99 * DAY));
    assert_eq!(seqs(&opened.store), [0; 0]);
    drop(opened);
    let opened = open(folder.path(), at(0));
    assert_eq!(opened.mended, [""; 0]);
    assert_eq!(opened.store.figures().events, 0);
    let seqs = opened.store.commit(&[removal(9, 0)], at(0)).unwrap();
    assert_eq!(seqs, [23]);
}

#[test]
fn thousands_of_old_events_go_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let changes: Vec<_> = (0..5_000)
        .map(|n| {
            if n % 5 == 0 {
                turn(1, Status::Online, n)
            } else {
                Change::Notice(notice(2, n))
            }
        })
        .collect();
    store.commit(&changes, at(0)).unwrap();
    prune(&store, at(0), at(4_990));
    let expected: Vec<u64> = (1..=4_991).step_by(5).chain(4_992..=5_000).collect();
    assert_eq!(seqs(&store), expected);
    prune(&store, at(4_000), at(4_990));
    assert_eq!(seqs(&store), expected[800..]);
    store.close(at(0)).unwrap();
    let opened = open(folder.path(), at(0));
    assert_eq!(opened.mended, [""; 0]);
    assert_eq!(opened.store.figures().events, 208);
}

#[test]
fn an_event_dated_by_a_wrong_clock_holds_up_no_removal() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let ahead = turn(1, Status::Online, 9_999 * DAY);
    store.commit(&[ahead], at(0)).unwrap();
    work(&store, 0..4);
    prune(&store, at(2 * DAY), at(2 * DAY));
    assert_eq!(seqs(&store), [1, 6, 7, 8, 9]);
}

#[test]
fn thousands_of_events_dated_ahead_hold_up_no_removal_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let ahead: Vec<_> = (0..9_000)
        .map(|n| {
            let millis = 9_999 * DAY + i64::from(n);
            if n % 2 == 0 {
                turn(1, Status::Online, millis)
            } else {
                Change::Notice(notice(2, millis))
            }
        })
        .collect();
    store.commit(&ahead, at(0)).unwrap();
    work(&store, 0..200);
    // Of the days before 150 nothing stays, of those before 180 no failed heartbeat.
    prune(&store, at(150 * DAY), at(180 * DAY));
    let turns = (150..180).map(|n| 9_000 + 2 * n + 1);
    let expected: Vec<u64> = (1..=9_000).chain(turns).chain(9_361..=9_400).collect();
    assert_eq!(seqs(&store), expected);
}

#[test]
fn whole_months_of_rows_go_and_the_month_at_the_border_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let days: Vec<Day> = ["2026-01-31", "2026-02-01", "2026-02-28", "2026-03-01"]
        .map(|day| day.parse().unwrap())
        .to_vec();
    for &of in &days {
        store.upsert_summaries(of, &[row(of)]).unwrap();
    }
    // A removal that a crash cut short is finished by the next start.
    let half = folder.path().join("daily/2025-12.removing");
    fs::create_dir(&half).unwrap();
    store.prune(days[2], 0, at(0), at(0)).unwrap();
    drop(store);
    let store = open(folder.path(), at(0)).store;
    assert!(!half.exists() && !folder.path().join("daily/2026-01").exists());
    let mut found = Vec::new();
    store
        .summaries(days[0], days[3], None, &mut |row| {
            found.push(row.day);
            true
        })
        .unwrap();
    assert_eq!(found, days[1..]);
}

#[test]
fn marks_stay_for_forty_days_and_as_long_as_their_raw() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[reply(1, 5 * DAY)]);
    store.flush_raw(at(0)).unwrap();
    let marks: Vec<_> = (0..60).map(|n| site(day(n))).collect();
    store.announce(&marks, at(0)).unwrap();
    let events_before = seqs(&store);
    prune(&store, at(-DAY), at(-DAY));
    let expected: Vec<Day> = [5].into_iter().chain(19..60).map(day).collect();
    assert_eq!(store.final_days().unwrap(), expected);
    store.remove_raw_day(day(5)).unwrap();
    prune(&store, at(-DAY), at(-DAY));
    assert_eq!(store.final_days().unwrap(), expected[1..]);
    assert_eq!(seqs(&store), events_before);
}

#[test]
fn events_of_one_device_are_found_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let changes: Vec<_> = (0..25_000)
        .map(|n: i64| turn(usize::from(n % 100 == 0), Status::Online, n))
        .collect();
    store.commit(&changes, at(0)).unwrap();
    let first = store.events(Some(id(1)), None, 10).unwrap();
    let numbers: Vec<u64> = first.iter().map(|event| event.seq).collect();
    assert_eq!(
        numbers,
        (0..10).map(|n| 24_901 - 100 * n).collect::<Vec<_>>()
    );
    let next = store.events(Some(id(1)), Some(numbers[9]), 1).unwrap();
    assert_eq!(next[0].seq, 23_901);
    // A look at 20,000 entries ends, and says where to go on.
    let page = store.events_page(Some(id(1)), None, 1_000).unwrap();
    assert_eq!((page.events.len(), page.older), (200, Some(5_001)));
    let page = store.events_page(Some(id(1)), page.older, 1_000).unwrap();
    assert_eq!((page.events.len(), page.older), (50, None));
    let none = store.events_page(Some(id(7)), Some(100), 5).unwrap();
    assert_eq!((none.events.len(), none.older), (0, None));
    let all = store.events_page(None, None, 3).unwrap();
    assert_eq!((all.events.len(), all.older), (3, Some(24_998)));
}

#[test]
fn a_store_is_read_without_counting_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let opened = open(&path, at(0));
    opened.store.push_raw(&[reply(1, 0), reply(2, 0)]);
    opened.store.flush_raw(at(1)).unwrap();
    opened
        .store
        .commit(&[turn(1, Status::Online, 0)], at(0))
        .unwrap();
    opened
        .store
        .upsert_summaries(day(0), &[row(day(0))])
        .unwrap();
    let locked = Store::open_to_read(&path).unwrap_err();
    assert!(matches!(locked, OpenError::Locked { .. }), "{locked}");
    drop(opened);
    let reader = Store::open_to_read(&path).unwrap();
    assert_eq!(reader.raw_days().unwrap(), [day(0)]);
    let mut devices = Vec::new();
    let each = &mut |group: Vec<_>| devices.extend(group);
    reader.read_day(day(0), each).unwrap();
    assert_eq!(devices.len(), 2);
    let mut rows = Vec::new();
    let each = &mut |row: &Summary| {
        rows.push(*row);
        true
    };
    reader.summaries(day(-400), day(400), None, each).unwrap();
    assert_eq!(rows, [row(day(0))]);
    assert_eq!(reader.events_page(None, None, 9).unwrap().events.len(), 1);
    let locked = Store::open_to_read(&path).unwrap_err();
    assert!(matches!(locked, OpenError::Locked { .. }), "{locked}");
    drop(reader);
    let opened = open(&path, at(0));
    assert_eq!((opened.boot, opened.mended), (2, Vec::new()));
}

#[test]
fn reading_makes_nothing_where_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| Store::open_to_read(path).unwrap_err();
    let missing = folder.path().join("nowhere");
    let fault = describe(&refused(&missing));
    assert!(
        fault.contains("nowhere") && fault.contains("set store.path"),
        "{fault}"
    );
    assert!(!missing.exists());
    let empty = tempfile::tempdir().unwrap();
    assert!(describe(&refused(empty.path())).contains("FORMAT"));
    assert_eq!(contents(empty.path()), []);
    fs::write(empty.path().join("FORMAT"), "sitebeat store, schema 99\n").unwrap();
    assert!(matches!(refused(empty.path()), OpenError::Schema { .. }));
    assert_eq!(contents(empty.path()).len(), 1);
    // A store from which all but its name is gone reads as empty, and stays so.
    fs::write(empty.path().join("FORMAT"), "sitebeat store, schema 1\n").unwrap();
    let reader = Store::open_to_read(empty.path()).unwrap();
    assert_eq!(reader.raw_days().unwrap(), []);
    assert_eq!(reader.events_page(None, None, 9).unwrap().events, []);
    let each = &mut |_: &Summary| true;
    reader.summaries(day(-400), day(400), None, each).unwrap();
    let names: Vec<String> = contents(empty.path())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["FORMAT", "LOCK"]);
}

#[test]
fn reading_mends_nothing() {
    let sound = tempfile::tempdir().unwrap();
    let store = open(sound.path(), at(0)).store;
    store.push_raw(&[reply(1, 0)]);
    store.commit(&[turn(1, Status::Online, 0)], at(0)).unwrap();
    store.upsert_summaries(day(0), &[row(day(0))]).unwrap();
    store.close(at(0)).unwrap();
    let names = |path: &Path| -> Vec<String> {
        ["", "raw", "daily"]
            .iter()
            .flat_map(|part| fs::read_dir(path.join(part)).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    for part in ["state", "raw/2026-03-12", "daily/2026-03"] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(sound.path(), folder.path());
        fs::write(folder.path().join(part).join("conf"), "torn in the middle").unwrap();
        let before = names(folder.path());
        let reader = Store::open_to_read(folder.path()).unwrap();
        let tries = [
            reader.events_page(None, None, 9).is_err(),
            reader.read_day(day(0), &mut |_| {}).is_err(),
            reader
                .summaries(day(0), day(0), None, &mut |_| true)
                .is_err(),
        ];
        assert_eq!(tries.iter().filter(|failed| **failed).count(), 1, "{part}");
        assert_eq!(names(folder.path()), before, "{part}");
    }
}

/// With its cause.
fn describe(fault: &OpenError) -> String {
    let cause = std::error::Error::source(fault).map(ToString::to_string);
    format!("{fault}: {}", cause.unwrap_or_default())
}
