//! Summary rows, announcements and terms: what is written stays, once.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sitebeat::domain::daily::{CALC_VERSION, Carry, Figures, SiteSummary, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::event::{Change, News};
use sitebeat::domain::status::Status;
use sitebeat::domain::terms::Terms;
use sitebeat::store::Store;
use sitebeat::store::daily::Upserted;
use store_kit::{at, copy_folder, event, id, open, seqs, turn};

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

/// A row of a device with so many replies of 1,440, written at `millis`.
fn row(day: Day, n: usize, replied: u32, millis: i64) -> Summary {
    Summary {
        day,
        device: id(n),
        figures: Figures {
            expected: 1_440,
            replied,
            online: replied,
            avg_rtt_us: (replied > 0).then_some(300_000),
            carry: Carry {
                missed_count: 2,
                is_offline: n.is_multiple_of(2),
            },
            ..Figures::default()
        },
        calc_version: CALC_VERSION,
        created_at: at(millis),
        updated_at: at(millis),
    }
}

fn rows(day: Day, devices: impl IntoIterator<Item = usize>, millis: i64) -> Vec<Summary> {
    let devices = devices.into_iter();
    devices.map(|n| row(day, n, 1_000, millis)).collect()
}

fn read(store: &Store, from: &str, to: &str, device: Option<DeviceId>) -> Vec<Summary> {
    let mut found = Vec::new();
    store
        .summaries(day(from), day(to), device, &mut |row| {
            found.push(*row);
            true
        })
        .unwrap();
    found
}

fn upserted(changed: usize, kept: usize) -> Upserted {
    Upserted { changed, kept }
}

fn announcement(n: Option<usize>, day: Day, content: u64, millis: i64) -> Change {
    let row = row(day, n.unwrap_or(0), 1, 0);
    let news = if n.is_some() {
        News::DaySummarised(Box::new(row))
    } else {
        News::SiteSummarised(Box::new(SiteSummary::of(day, [&row])))
    };
    Change::Announcement {
        day,
        content,
        event: event(n, millis, news),
    }
}

#[test]
fn a_row_keeps_when_it_was_made_and_gives_way_only_to_a_fuller_or_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let of = day("2026-03-12");
    let first = rows(of, 0..40, 1_000);
    assert_eq!(store.upsert_summaries(of, &first).unwrap(), upserted(40, 0));
    // The same again, at another time: nothing is written.
    let again = rows(of, 0..40, 2_000);
    assert_eq!(store.upsert_summaries(of, &again).unwrap(), upserted(0, 40));
    assert_eq!(read(&store, "2026-03-12", "2026-03-12", None), first);
    // Poorer stays out; fuller, and equally full with another content, come in.
    let mut other = row(of, 2, 1_000, 3_000);
    other.figures.late = 7;
    let news = [row(of, 0, 999, 3_000), row(of, 1, 1_001, 3_000), other];
    assert_eq!(store.upsert_summaries(of, &news).unwrap(), upserted(2, 1));
    drop(store);
    let store = open(folder.path(), at(0)).store;
    let found = read(&store, "2026-03-12", "2026-03-12", None);
    assert_eq!(found[0], first[0]);
    for (found, new) in found[1..3].iter().zip(&news[1..]) {
        assert_eq!(found.figures, new.figures);
        let times = (found.created_at, found.updated_at);
        assert_eq!(times, (at(1_000), at(3_000)));
    }
    assert_eq!(found[3..], first[3..]);
    assert_eq!(store.upsert_summaries(of, &[]).unwrap(), upserted(0, 0));
}

#[test]
fn a_row_is_never_updated_before_it_was_made_though_the_clock_stepped_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let of = day("2026-03-12");
    store
        .upsert_summaries(of, &[row(of, 1, 900, 9_000)])
        .unwrap();
    let later = row(of, 1, 901, 2_000);
    store.upsert_summaries(of, &[later]).unwrap();
    let found = read(&store, "2026-03-12", "2026-03-12", None);
    assert_eq!(found[0].figures, later.figures);
    let times = (found[0].created_at, found[0].updated_at);
    assert_eq!(times, (at(9_000), at(9_000)));
}

#[test]
fn devices_that_come_and_go_stay_in_order_over_months() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let days = ["2025-12-31", "2026-01-01", "2026-01-31", "2026-02-01"].map(day);
    let mut expected = Vec::new();
    for (of, nth) in days.into_iter().zip(0..) {
        let (odd, even) = ((1..60).step_by(2), (0..60).step_by(2));
        store.upsert_summaries(of, &rows(of, odd, nth)).unwrap();
        store.upsert_summaries(of, &rows(of, even, nth)).unwrap();
        expected.extend(rows(of, 0..60, nth));
    }
    let all = read(&store, "2000-01-01", "2100-01-01", None);
    assert_eq!(all, expected);
    assert_eq!(
        read(&store, "2026-01-01", "2026-01-31", None),
        expected[60..180]
    );
    assert_eq!(read(&store, "2026-01-02", "2026-01-30", None), []);
    for n in [0, 15, 16, 31, 59] {
        let of_one = read(&store, "2025-12-31", "2026-02-01", Some(id(n)));
        let expected: Vec<_> = expected.iter().filter(|row| row.device == id(n)).collect();
        assert_eq!(of_one.iter().collect::<Vec<_>>(), expected, "device {n}");
    }
    assert_eq!(read(&store, "2025-12-31", "2026-02-01", Some(id(999))), []);
    let mut count = 0;
    let stop = &mut |_: &Summary| {
        count += 1;
        count < 70
    };
    store.summaries(days[0], days[3], None, stop).unwrap();
    assert_eq!(count, 70);
}

#[test]
fn reading_makes_no_month_and_five_years_keep_few_open() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    assert_eq!(read(&store, "2020-01-01", "2026-12-31", None), []);
    assert_eq!(
        fs::read_dir(folder.path().join("daily")).unwrap().count(),
        0
    );
    let mut expected = Vec::new();
    for (year, month) in (2021..2026).flat_map(|year| (1..=12).map(move |month| (year, month))) {
        let of = day(&format!("{year}-{month:02}-15"));
        store.upsert_summaries(of, &rows(of, 0..3, 0)).unwrap();
        expected.extend(rows(of, 0..3, 0));
    }
    assert_eq!(read(&store, "2020-01-01", "2026-12-31", None), expected);
    let open_files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open_months = open_files
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .filter(|path| path.starts_with(folder.path().join("daily")) && path.ends_with("db"));
    assert!(open_months.count() <= 4);
}

#[test]
fn a_kill_keeps_the_rows_that_were_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let of = day("2026-03-12");
    store.upsert_summaries(of, &rows(of, 100..400, 0)).unwrap();
    // All rows move, and all is there as it was when the process is gone.
    store.upsert_summaries(of, &rows(of, 0..100, 1)).unwrap();
    let killed = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), killed.path());
    let opened = open(killed.path(), at(0));
    assert_eq!(opened.mended, [""; 0]);
    let mut expected = rows(of, 0..100, 1);
    expected.extend(rows(of, 100..400, 0));
    let found = read(&opened.store, "2026-03-12", "2026-03-12", None);
    assert_eq!(found, expected);
}

#[test]
fn a_damaged_month_is_told_and_leaves_the_others_alone() {
    let sound = tempfile::tempdir().unwrap();
    let days = ["2026-01-10", "2026-02-10", "2026-03-10"].map(day);
    let store = open(sound.path(), at(0)).store;
    for of in days {
        store.upsert_summaries(of, &rows(of, 0..200, 0)).unwrap();
    }
    store.close(at(1)).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(sound.path(), folder.path());
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let file = folder.path().join("daily/2026-02/db");
        let mut bytes = fs::read(&file).unwrap();
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        let from = usize::try_from(seed).unwrap() % used;
        bytes[from..(from + 500).min(used)].fill(0xa5);
        fs::write(&file, bytes).unwrap();
        check_damaged(folder.path(), days, &format!("round {round}, byte {from}"));
    }
}

fn check_damaged(path: &Path, days: [Day; 3], what: &str) {
    let store = open(path, at(0)).store;
    let mut found = Vec::new();
    // It may fail, once; then it reads what is left.
    for _ in 0..3 {
        found.clear();
        let read = store.summaries(days[1], days[1], None, &mut |row| {
            found.push(*row);
            true
        });
        if read.is_ok() {
            break;
        }
    }
    let lost = 200 - found.len();
    let told = store.take_mended();
    assert!(
        lost == 0 || told.iter().any(|one| one.contains("2026-02")),
        "{what}: {lost} {told:?}"
    );
    let all = rows(days[1], 0..200, 5);
    let done = store.upsert_summaries(days[1], &all).unwrap();
    assert_eq!(done, upserted(lost, 200 - lost), "{what}");
    for of in days {
        let text = of.to_string();
        let rows = read(&store, &text, &text, None);
        assert_eq!(rows.len(), 200, "{what}: {of}");
    }
}

#[test]
fn a_month_removed_under_the_program_is_told_and_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let of = day("2026-03-12");
    store.upsert_summaries(of, &rows(of, 0..10, 0)).unwrap();
    fs::remove_dir_all(folder.path().join("daily")).unwrap();
    let done = store.upsert_summaries(of, &rows(of, 0..10, 1)).unwrap();
    assert_eq!(done, upserted(10, 0));
    let told = store.take_mended();
    assert!(told[0].contains("removed or replaced"), "{told:?}");
    assert_eq!(read(&store, "2026-03-12", "2026-03-12", None).len(), 10);
}

#[test]
fn what_was_announced_is_told_once_per_content() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let (one, other) = (day("2026-03-10"), day("2026-03-11"));
    let of_day = |day, content| -> Vec<Change> {
        let devices = (0..600).map(Some).chain([None]);
        devices.map(|n| announcement(n, day, content, 5)).collect()
    };
    assert_eq!(store.announce(&of_day(one, 1), at(0)).unwrap(), 601);
    assert_eq!(store.final_days().unwrap(), [one]);
    assert_eq!(store.announce(&of_day(one, 1), at(0)).unwrap(), 0);
    // A device alone makes no day final.
    let of_device = [announcement(Some(1), other, 1, 5)];
    assert_eq!(store.announce(&of_device, at(0)).unwrap(), 1);
    assert_eq!(store.final_days().unwrap(), [one]);
    assert_eq!(store.announce(&of_day(other, 1), at(0)).unwrap(), 600);
    drop(store);
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.final_days().unwrap(), [one, other]);
    assert_eq!(store.announce(&of_day(other, 1), at(0)).unwrap(), 0);
    // Another content is told again, and the first one after it too.
    let again = |content| store.announce(&[announcement(Some(7), one, content, 5)], at(0));
    assert_eq!(again(2).unwrap(), 1);
    assert_eq!(again(1).unwrap(), 1);
    // Twice in one call is told once.
    let twice = [1, 1].map(|millis| announcement(None, one.previous(), 9, millis));
    assert_eq!(store.announce(&twice, at(0)).unwrap(), 1);
    assert_eq!(seqs(&store), (1..=1_205).collect::<Vec<_>>());
}

#[test]
fn announcements_and_changes_share_one_row_of_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let of = day("2026-03-10");
    store
        .announce(&[announcement(Some(1), of, 1, 0)], at(0))
        .unwrap();
    let seqs = store.commit(&[turn(1, Status::Online, 1)], at(1)).unwrap();
    assert_eq!(seqs, [2]);
    // By way of a plain commit it is marked as well.
    store
        .commit(&[announcement(None, of, 1, 0)], at(0))
        .unwrap();
    assert_eq!(store.final_days().unwrap(), [of]);
    let again = [announcement(None, of, 1, 8)];
    assert_eq!(store.announce(&again, at(0)).unwrap(), 0);
    let events = store.events(None, None, 9).unwrap();
    assert!(events[0].json.contains("heartbeat.site.summarised.v1"));
    assert!(events[2].json.contains("heartbeat.daily.summarised.v1"));
}

#[test]
fn terms_come_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.terms().unwrap(), BTreeMap::new());
    let mut terms: BTreeMap<DeviceId, Terms> = BTreeMap::new();
    for n in 0..3_000 {
        let terms = terms.entry(id(n)).or_default();
        terms.note(at(0), Some(Duration::from_secs(60)));
        if n % 3 == 0 {
            terms.note(at(10_000), None);
        }
    }
    store.keep_terms(&terms, at(0)).unwrap();
    drop(store);
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.terms().unwrap(), terms);
    terms.retain(|device, _| *device < id(5));
    store.keep_terms(&terms, at(0)).unwrap();
    assert_eq!(store.terms().unwrap(), terms);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_are_those_of_a_plain_map(
        upserts in prop::collection::vec(
            (0_usize..4, prop::collection::btree_map(0_usize..120, 0_u32..3, 1..60), any::<bool>()),
            1..12,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let days = ["2026-01-30", "2026-01-31", "2026-02-01", "2026-03-01"].map(day);
        let mut store = open(folder.path(), at(0)).store;
        let mut model: BTreeMap<(Day, DeviceId), Summary> = BTreeMap::new();
        for (now, (of, devices, reopens)) in (0..).zip(upserts) {
            let of = days[of];
            let rows: Vec<_> = devices.iter().map(|(&n, &replied)| row(of, n, replied, now)).collect();
            let mut expected = Upserted::default();
            for row in &rows {
                let key = (of, row.device);
                let held = model.get(&key).copied();
                if held.is_some_and(|held| held.figures.replied >= row.figures.replied) {
                    expected.kept += 1;
                } else {
                    let created_at = held.unwrap_or(*row).created_at;
                    model.insert(key, Summary { created_at, ..*row });
                    expected.changed += 1;
                }
            }
            prop_assert_eq!(store.upsert_summaries(of, &rows).unwrap(), expected);
            if reopens {
                drop(store);
                store = open(folder.path(), at(0)).store;
            }
        }
        let expected: Vec<_> = model.values().copied().collect();
        prop_assert_eq!(read(&store, "2026-01-01", "2026-12-31", None), expected);
    }
}
