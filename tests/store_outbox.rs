//! What waits for the uplink: its order, what stays and what goes, how far it is.
#![cfg(test)]

#[path = "support/outbox_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod outbox_kit;
#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use outbox_kit::{ALL, bytes, commit, in_short, json, miss, read, site, trouble};
use sitebeat::domain::day::Day;
use sitebeat::domain::outbox::Class;
use sitebeat::domain::status::Status;
use sitebeat::store::Store;
use sitebeat::store::outbox::UplinkMarks;
use store_kit::{at, copy_folder, id, notice, open, removal, seqs, turn};

const DAY: i64 = 86_400_000;

#[test]
fn events_come_out_in_the_order_of_their_numbers_with_class_and_subject() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.outbox().backlog.total().events, 0);
    let changes = [
        turn(1, Status::Online, 5),
        miss(2, 6),
        site(7),
        removal(1, 8),
        trouble(9, "full"),
    ];
    commit(&store, &changes);
    let parcels = read(&store, 0);
    assert_eq!(in_short(&parcels, None), "1 2 3 4 5");
    let subjects: Vec<_> = parcels
        .iter()
        .map(|parcel| (parcel.class, parcel.device, parcel.is_of_site))
        .collect();
    let expected = [
        (Class::Status, Some(id(1)), false),
        (Class::Failed, Some(id(2)), false),
        (Class::Daily, None, true),
        (Class::Status, Some(id(1)), false),
        (Class::Failed, None, false),
    ];
    assert_eq!(subjects, expected);
    let page = store.events(None, None, 9).unwrap();
    let told: Vec<_> = page.iter().rev().map(|event| &event.json).collect();
    assert_eq!(
        told,
        parcels
            .iter()
            .map(|parcel| &parcel.json)
            .collect::<Vec<_>>()
    );
    let outbox = store.outbox();
    assert_eq!((outbox.cursor, outbox.last), (0, 5));
    assert_eq!(outbox.backlog.loads.map(|load| load.events), [2, 2, 0, 1]);
    assert_eq!(outbox.backlog.oldest_at, Some(at(5)));
    let sent: usize = parcels.iter().map(|parcel| parcel.json.len()).sum();
    assert_eq!(usize::try_from(outbox.backlog.total().bytes), Ok(sent));
    assert_eq!(outbox.logged_bytes, outbox.backlog.total().bytes);
    // A few at a time, by number or by size; at least one.
    let few = |after, limits| {
        in_short(
            &store.read_outbox(after, limits, at(0)).unwrap(),
            Some(after),
        )
    };
    assert_eq!(few(1, (2, usize::MAX)), "2 3");
    assert_eq!(few(3, (9, 1)), "4");
    assert_eq!(few(3, (0, 0)), "4");
    assert_eq!(few(5, ALL), "");
}

#[test]
fn twelve_thousand_events_come_out_by_number_past_every_power_of_ten() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    for first in (0..12_000).step_by(2_000) {
        let changes: Vec<_> = (first..first + 2_000)
            .map(|n| turn(1, Status::Online, n))
            .collect();
        commit(&opened.store, &changes);
    }
    drop(opened);
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.outbox().backlog.total().events, 12_000);
    let mut after = 0;
    while after < 12_000 {
        let parcels = store.read_outbox(after, (700, usize::MAX), at(0)).unwrap();
        let numbers: Vec<u64> = parcels.iter().map(|parcel| parcel.seq).collect();
        assert_eq!(
            numbers,
            (after + 1..=after + numbers.len() as u64).collect::<Vec<_>>()
        );
        after = *numbers.last().unwrap();
        store.move_cursor(after, at(0)).unwrap();
    }
    let outbox = store.outbox();
    assert_eq!((outbox.backlog.total().events, bytes(&store)), (0, 0));
    assert_eq!(outbox.backlog.oldest_at, None);
    assert!(read(&store, after).is_empty());
}

#[test]
fn failed_heartbeats_that_are_not_addressed_stay_on_the_page_and_leave_no_hole() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    store.address_misses(false);
    commit(store, &[miss(1, 1), turn(1, Status::Online, 2), miss(2, 3)]);
    store.push_notices(vec![notice(3, 4)]);
    store.flush_raw(at(4)).unwrap();
    commit(store, &[trouble(5, "full"), miss(2, 6)]);
    assert_eq!(in_short(&read(store, 0), None), "2 5");
    assert_eq!(seqs(store), [1, 2, 3, 4, 5, 6]);
    let outbox = store.outbox();
    assert_eq!((outbox.last, outbox.backlog.total().events), (5, 2));
    store.move_cursor(5, at(7)).unwrap();
    store.keep_uplink(&UplinkMarks::default(), at(7)).unwrap();
    drop(opened);
    // How an entry was addressed is on disk; what comes is addressed as it is set.
    let store = open(folder.path(), at(8)).store;
    assert_eq!(in_short(&read(&store, 0), None), "2 5");
    commit(&store, &[miss(1, 9)]);
    assert_eq!(in_short(&read(&store, 5), Some(5)), "7");
}

#[test]
fn what_was_removed_while_the_uplink_was_off_is_one_gap_that_stays_as_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    let changes: Vec<_> = (0..10).map(|n| turn(1, Status::Online, n * DAY)).collect();
    commit(store, &changes);
    let early = |store: &Store, day: i64| {
        store
            .prune(Day::of(at(0)).unwrap(), 0, at(day * DAY), at(day * DAY))
            .unwrap();
    };
    early(store, 4);
    assert_eq!(seqs(store), [5, 6, 7, 8, 9, 10]);
    assert_eq!(store.outbox().backlog.total().events, 6);
    let told = read(store, 0);
    assert_eq!(in_short(&told, None), "1-4 5 6 7 8 9 10");
    let error = &json(&told[0])["error"];
    assert_eq!(error["retryable"], false);
    let message = error["error_message"].as_str().unwrap();
    assert!(
        message.contains("up to 4 events") && message.contains("from 1 to 4"),
        "{message}"
    );
    // What was handed out stays, however old it gets: its number has this content.
    early(store, 9);
    assert_eq!(read(store, 0), told);
    drop(opened);
    let store = open(folder.path(), at(0)).store;
    assert_eq!(store.read_outbox(0, ALL, at(99 * DAY)).unwrap(), told);
    // Acknowledged, it goes like all else.
    store.move_cursor(10, at(0)).unwrap();
    early(&store, 99);
    assert_eq!(seqs(&store), [0; 0]);
    assert!(read(&store, 10).is_empty());
    assert_eq!(commit(&store, &[turn(1, Status::Online, 0)]), [11]);
    assert_eq!(in_short(&read(&store, 10), Some(10)), "11");
}

#[test]
fn an_outbox_that_was_removed_to_its_end_is_a_gap_before_anything_new() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.address_misses(false);
    commit(
        &store,
        &[turn(1, Status::Online, 0), removal(1, 1), miss(2, 2)],
    );
    let all = Day::of(at(0)).unwrap();
    store.prune(all, 0, at(DAY), at(DAY)).unwrap();
    assert_eq!(store.outbox().backlog.total().events, 0);
    assert_eq!(in_short(&read(&store, 0), None), "1-2");
    commit(&store, &[turn(1, Status::Online, 0)]);
    assert_eq!(in_short(&read(&store, 0), None), "1-2 4");
}

#[test]
fn what_waits_is_held_however_old_and_what_does_not_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.hold_for_uplink(true);
    commit(
        &store,
        &[turn(1, Status::Online, 0), miss(1, 1), miss(1, 2)],
    );
    store.address_misses(false);
    commit(&store, &[miss(1, 3), removal(1, 4)]);
    let prune = || {
        let day = Day::of(at(0)).unwrap();
        store.prune(day, 0, at(DAY), at(DAY)).unwrap();
        seqs(&store)
    };
    assert_eq!(prune(), [1, 2, 3, 5]);
    store.move_cursor(2, at(0)).unwrap();
    assert_eq!(prune(), [3, 5]);
    // Passed over, it is not sent, and so it is not held.
    store.pass_over(0, 3, at(0)).unwrap();
    assert_eq!(prune(), [3]);
    assert_eq!(in_short(&read(&store, 2), Some(2)), "3 5-5");
    store.hold_for_uplink(false);
    // It was handed out.
    assert_eq!(prune(), [3]);
    store.move_cursor(5, at(0)).unwrap();
    assert_eq!(prune(), [0; 0]);
    assert!(read(&store, 5).is_empty());
}

#[test]
fn failed_heartbeats_that_were_held_go_once_they_are_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.hold_for_uplink(true);
    let changes: Vec<_> = (0..9_000)
        .map(|n| {
            if n % 100 == 0 {
                turn(1, Status::Online, n)
            } else {
                miss(1, n)
            }
        })
        .collect();
    commit(&store, &changes);
    let day = Day::of(at(0)).unwrap();
    for to in [0, 5_000, 5_001, 8_950] {
        store.move_cursor(to, at(0)).unwrap();
        store.prune(day, 0, at(-DAY), at(DAY)).unwrap();
        let expected = (1..=9_000).filter(|seq| *seq > to || seq % 100 == 1);
        assert_eq!(seqs(&store), expected.collect::<Vec<_>>(), "up to {to}");
    }
}

#[test]
fn cursor_and_marks_survive_a_kill_once_kept_and_the_cursor_rides_the_next_change() {
    let folder = tempfile::tempdir().unwrap();
    let killed = |n: u32| {
        let copy = folder.path().join(format!("life-{n}"));
        copy_folder(&folder.path().join("life-0"), &copy);
        open(&copy, at(9)).store
    };
    let store = open(&folder.path().join("life-0"), at(0)).store;
    let changes: Vec<_> = (0..9).map(|n| turn(1, Status::Online, n)).collect();
    commit(&store, &changes);
    store.move_cursor(3, at(0)).unwrap();
    assert_eq!(store.outbox().cursor, 3);
    let other = killed(1);
    assert_eq!(
        (other.outbox().cursor, other.outbox().backlog.total().events),
        (0, 9)
    );
    let marks = UplinkMarks {
        metrics_from: Some(at(7)),
        traffic: Some((Day::of(at(0)).unwrap(), 12, 34)),
    };
    store.keep_uplink(&marks, at(0)).unwrap();
    // Backwards it does not move.
    store.move_cursor(2, at(0)).unwrap();
    let other = killed(2);
    assert_eq!(other.uplink_marks().unwrap(), marks);
    assert_eq!(
        (other.outbox().cursor, other.outbox().backlog.total().events),
        (3, 6)
    );
    store.move_cursor(5, at(0)).unwrap();
    commit(&store, &[removal(1, 1)]);
    let other = killed(3);
    assert_eq!(
        (other.outbox().cursor, other.outbox().backlog),
        (5, store.outbox().backlog)
    );
    assert_eq!(other.uplink_marks().unwrap(), marks);
    // Past the end it does not move either.
    store.move_cursor(u64::MAX, at(0)).unwrap();
    assert_eq!(store.outbox().cursor, 10);
}

#[test]
fn the_number_below_which_all_is_durable_is_told_when_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let mut news = store.news();
    assert_eq!(*news.borrow_and_update(), 1);
    commit(&store, &[turn(1, Status::Online, 0), removal(1, 1)]);
    assert!(news.has_changed().unwrap());
    assert_eq!(*news.borrow_and_update(), 3);
    store.push_notices(vec![notice(1, 1)]);
    assert!(!news.has_changed().unwrap());
    store.flush_raw(at(1)).unwrap();
    assert_eq!(*news.borrow_and_update(), 4);
    store.move_cursor(3, at(1)).unwrap();
    assert!(!news.has_changed().unwrap());
}

#[test]
fn standings_since_an_event_come_by_its_number_and_tell_who_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let changes = [
        turn(3, Status::Online, 0),
        turn(1, Status::Offline, 1),
        turn(2, Status::Online, 2),
        removal(2, 3),
        turn(3, Status::Degraded, 4),
        miss(1, 5),
    ];
    commit(&store, &changes);
    let since = |after| -> Vec<_> {
        let standings = store.standings_after(after).unwrap();
        let short = standings
            .into_iter()
            .map(|(seq, device, track)| (seq, device, track.map(|track| track.status)));
        short.collect()
    };
    let all = [
        (2, id(1), Some(Status::Offline)),
        (4, id(2), None),
        (5, id(3), Some(Status::Degraded)),
    ];
    assert_eq!(since(0), all);
    assert_eq!(since(4), all[2..]);
    assert_eq!(since(5), []);
}
