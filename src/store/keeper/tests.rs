//! What becomes of changes whose durability an error left in doubt.

use super::*;
use crate::domain::event::{Event, News};
use crate::domain::status::{Status, Track};
use crate::store::outbox::UplinkMarks;
use crate::store::state::Reading;
use crate::wire::record::logged;

fn now() -> Wall {
    Wall::from_millis(1_773_273_600_000)
}

fn keeper(path: &std::path::Path) -> Keeper {
    let voice = Voice {
        site: "site-1".into(),
        node: "gw-a".into(),
    };
    Keeper::open(path.join("state"), voice, now()).unwrap()
}

fn turn(device: &str) -> Change {
    let device = device.parse().unwrap();
    let news = News::StatusChanged {
        previous: Status::Unknown,
        current: Status::Online,
        missed_count: 0,
        last_seen: None,
    };
    let track = Track {
        status: Status::Online,
        ..Track::default()
    };
    Change::Standing {
        liveness: Liveness { device, track },
        event: Event {
            device: Some(device),
            produced_at: now(),
            process_ms: 0,
            news,
        },
    }
}

/// Leaves `changes` in doubt: written (if `is_written`) and then failed.
fn leave_in_doubt(keeper: &mut Keeper, changes: &[Change], is_written: bool) {
    keeper.database(now()).unwrap();
    let steps = keeper.number(&changes.iter().collect::<Vec<_>>()).unwrap();
    fail_with(keeper, changes, &steps, is_written);
}

fn fail_with(keeper: &mut Keeper, changes: &[Change], steps: &[Step], is_written: bool) {
    let steps = steps.to_vec();
    keeper.uncertain = changes.iter().cloned().zip(steps.clone()).collect();
    let failed = keeper.try_on(|database| {
        if is_written {
            database.write(&steps)?;
        }
        Err::<(), _>(Fault::Io(sled::Error::Io(std::io::Error::other("full"))))
    });
    assert!(failed.is_err() && keeper.open.is_none());
}

fn numbers(keeper: &mut Keeper) -> Vec<u64> {
    let page = keeper.events(None, None, (usize::MAX, usize::MAX), now());
    page.unwrap()
        .events
        .iter()
        .rev()
        .map(|event| event.seq)
        .collect()
}

#[test]
fn a_retry_of_what_turned_out_durable_keeps_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    let (a, b, c) = (turn("a"), turn("b"), turn("c"));
    assert_eq!(keeper.commit(&[turn("z")], now()).unwrap(), [1]);
    leave_in_doubt(&mut keeper, &[a.clone(), b.clone()], true);
    // Among others, in another order.
    assert_eq!(keeper.commit(&[c, b, a.clone()], now()).unwrap(), [4, 3, 2]);
    assert_eq!(numbers(&mut keeper), [1, 2, 3, 4]);
    // Claimed once; the same again is another event.
    assert_eq!(keeper.commit(&[a], now()).unwrap(), [5]);
}

#[test]
fn a_retry_of_what_was_not_written_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    leave_in_doubt(&mut keeper, &[turn("a"), turn("b")], false);
    assert_eq!(numbers(&mut keeper), [0; 0]);
    assert_eq!(
        keeper.commit(&[turn("a"), turn("b")], now()).unwrap(),
        [1, 2]
    );
    assert_eq!(numbers(&mut keeper), [1, 2]);
}

#[test]
fn the_newest_entries_are_told_only_once_they_are_durable() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    keeper.commit(&[turn("a")], now()).unwrap();
    let steps = keeper.number(&[&turn("b")]).unwrap();
    keeper.try_on(|database| database.write(&steps)).unwrap();
    assert_eq!(numbers(&mut keeper), [1]);
}

fn announcement(device: Option<&str>, content: u64, millis: i64) -> Change {
    let day = "2026-03-12".parse().unwrap();
    let site = crate::domain::daily::SiteSummary::of(day, []);
    Change::Announcement {
        day,
        content,
        event: Event {
            device: device.map(|device| device.parse().unwrap()),
            produced_at: Wall::from_millis(millis),
            process_ms: 0,
            news: News::SiteSummarised(Box::new(site)),
        },
    }
}

#[test]
fn an_announcement_that_turned_out_durable_is_not_told_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    let first = [announcement(Some("a"), 1, 0), announcement(None, 1, 0)];
    leave_in_doubt(&mut keeper, &first, true);
    // The very same: this try is the first to say that it was told.
    assert_eq!(keeper.announce(&first, now()).unwrap(), 2);
    assert_eq!(keeper.announce(&first, now()).unwrap(), 0);
    // Made anew, at another time: its mark came with the event.
    leave_in_doubt(&mut keeper, &[announcement(Some("b"), 1, 0)], true);
    let later = announcement(Some("b"), 1, 9);
    assert_eq!(keeper.announce(&[later], now()).unwrap(), 0);
    assert!(keeper.unclaimed.is_empty());
    assert_eq!(numbers(&mut keeper), [1, 2, 3]);
    let day = "2026-03-12".parse().unwrap();
    assert_eq!(keeper.final_days(now()).unwrap(), [day]);
}

#[test]
fn an_announcement_that_was_not_written_is_told_by_the_retry() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    let first = [announcement(Some("a"), 1, 0)];
    leave_in_doubt(&mut keeper, &first, false);
    assert_eq!(keeper.final_days(now()).unwrap(), []);
    assert_eq!(keeper.announce(&first, now()).unwrap(), 1);
    assert_eq!(numbers(&mut keeper), [1]);
}

#[test]
fn standings_and_terms_are_saved_from_a_state_whose_log_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let device = "a".parse().unwrap();
    let mut terms = std::collections::BTreeMap::new();
    let of_device: &mut crate::domain::terms::Terms = terms.entry(device).or_default();
    of_device.note(now(), Some(std::time::Duration::from_secs(60)));
    let mut before = keeper(folder.path());
    before.commit(&[turn("a")], now()).unwrap();
    before.remember_terms(&terms, now()).unwrap();
    before.close();
    let damaged = sled::open(folder.path().join("state")).unwrap();
    let log = damaged.open_tree("log").unwrap();
    log.insert(1_u64.to_be_bytes(), "no record").unwrap();
    damaged.flush().unwrap();
    drop((log, damaged));
    let mut after = keeper(folder.path());
    assert_eq!(after.mended.len(), 1, "{:?}", after.mended);
    assert_eq!(after.terms(now()).unwrap(), terms);
    let standings = after.database(now()).unwrap().standings().unwrap();
    assert_eq!(standings[0].0, device);
    assert_eq!(numbers(&mut after), [0; 0]);
}

fn waiting(keeper: &Keeper) -> (u64, u64, u64) {
    let outbox = keeper.shown().lock().unwrap().clone();
    let total = outbox.backlog.total();
    assert_eq!(total.events == 0, total.bytes == 0);
    (outbox.cursor, outbox.last, total.events)
}

fn sent(keeper: &mut Keeper, after: u64) -> Vec<u64> {
    let mut reading = Reading::new(after, 99, usize::MAX);
    assert!(keeper.read_outbox(&mut reading, now()).unwrap());
    reading.parcels.iter().map(|parcel| parcel.seq).collect()
}

#[test]
fn what_waits_is_counted_once_and_the_cursor_stays_whatever_became_of_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    keeper.commit(&[turn("a"), turn("b")], now()).unwrap();
    assert!(keeper.move_cursor(1, now()).unwrap());
    assert_eq!(waiting(&keeper), (1, 2, 1));
    // The cursor was in memory only when the database failed.
    leave_in_doubt(&mut keeper, &[turn("c")], true);
    keeper.database(now()).unwrap();
    assert_eq!(waiting(&keeper), (1, 3, 2));
    leave_in_doubt(&mut keeper, &[turn("d")], false);
    keeper.database(now()).unwrap();
    assert_eq!(waiting(&keeper), (1, 3, 2));
    assert_eq!(sent(&mut keeper, 1), [2, 3]);
    assert_eq!(*keeper.news().borrow(), 4);
}

#[test]
fn a_message_kept_aside_in_doubt_is_kept_aside_once() {
    for is_written in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut keeper = keeper(folder.path());
        keeper.commit(&[turn("a"), turn("b")], now()).unwrap();
        let reason = ("too large", now());
        let voice = keeper.voice.clone();
        let found = keeper.try_on(|database| database.aside(1, reason, &voice));
        let (aside, telling) = found.unwrap().unwrap();
        let change = Change::Notice(telling.unwrap());
        let mut steps = keeper.number(&[&change]).unwrap();
        steps[0].aside = Some(Box::new(aside));
        fail_with(&mut keeper, &[change], &steps, is_written);
        keeper.set_aside(1, "too large", now()).unwrap();
        assert_eq!(sent(&mut keeper, 0), [1, 2, 3], "{is_written}");
        assert_eq!(waiting(&keeper), (0, 3, 2), "{is_written}");
        assert_eq!(keeper.dead_letters(9, now()).unwrap().len(), 1);
    }
}

#[test]
fn what_a_program_logged_that_knows_no_uplink_waits_like_all_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = keeper(folder.path());
    before.commit(&[turn("a"), turn("b")], now()).unwrap();
    before.move_cursor(1, now()).unwrap();
    before.keep_uplink(&UplinkMarks::default(), now()).unwrap();
    let place = before.database(now()).unwrap().place().clone();
    let steps = before.number(&[&turn("c")]).unwrap();
    before.close();
    let older = sled::open(folder.path().join("state")).unwrap();
    let entry = logged::pack_event(steps[0].kind, false, &steps[0].json);
    let log = older.open_tree("log").unwrap();
    log.insert(3_u64.to_be_bytes(), entry).unwrap();
    let next = LogPlace {
        next_seq: 4,
        ..place
    };
    let meta = older.open_tree("meta").unwrap();
    meta.insert("log", next.to_bytes()).unwrap();
    older.flush().unwrap();
    drop((log, meta, older));
    let mut after = keeper(folder.path());
    assert_eq!(waiting(&after), (1, 3, 2));
    assert_eq!(sent(&mut after, 1), [2, 3]);
    assert_eq!(after.commit(&[turn("d")], now()).unwrap(), [4]);
}

#[test]
fn a_new_log_begins_after_what_waits_of_the_old_one_and_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = keeper(folder.path());
    keeper.commit(&[turn("a"), turn("b")], now()).unwrap();
    keeper.begin_log(50, now()).unwrap();
    assert_eq!(sent(&mut keeper, 0), [1, 2]);
    keeper.commit(&[turn("c"), turn("d")], now()).unwrap();
    assert_eq!(sent(&mut keeper, 0), [1, 2, 50, 51]);
    let first = keeper.try_on(|database| database.event(50));
    assert!(first.unwrap().unwrap().json.contains("\"prev_seq\":null"));
    assert_eq!(waiting(&keeper), (0, 51, 4));
    let oldest = keeper.shown().lock().unwrap().backlog.oldest_at;
    assert_eq!(oldest, Some(now()));
}
