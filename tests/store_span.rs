//! Heartbeats of all devices over some time, read piece by piece.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use sitebeat::domain::heartbeat::Sample;
use sitebeat::store::Store;
use store_kit::{at, miss, open, reply};

const MINUTE: i64 = 60_000;
const DAY: i64 = 86_400_000;

/// All of a time in pieces of about `limit`; checks that each is in order and goes on
/// where the one before ended.
fn pieces(store: &Store, (from, to): (i64, i64), limit: usize) -> Vec<Sample> {
    let mut all = Vec::new();
    let mut next = at(from);
    while next < at(to) {
        let (piece, until) = store.heartbeats_between(next, at(to), limit).unwrap();
        assert!(until > next && until <= at(to), "{next} to {until}");
        assert!(piece.iter().all(|one| one.at >= next && one.at < until));
        assert!(piece.is_sorted_by_key(|one| one.at));
        all.extend(piece);
        next = until;
    }
    all
}

fn sorted(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.sort_by_key(|one| (one.at, one.device));
    samples
}

#[test]
fn heartbeats_of_a_time_come_whole_and_in_order_whatever_happened_to_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = open(folder.path(), at(DAY));
    let mut expected = Vec::new();
    // Three shards of devices, over a midnight, with a restart every few minutes;
    // each flush holds the minutes in another order, and some from long before.
    for minute in 0..30 {
        let start = DAY - 15 * MINUTE + minute * MINUTE;
        let mut batch: Vec<Sample> = (0..600)
            .map(|n: usize| {
                let at = start + i64::try_from(n * 7_919 % 600).unwrap() * 100;
                if n.is_multiple_of(50) {
                    miss(n, at)
                } else {
                    reply(n, at)
                }
            })
            .collect();
        batch.push(miss(700, start - 300 * MINUTE + 1));
        batch.reverse();
        opened.store.push_raw(&batch);
        expected.extend(batch);
        if minute % 3 == 1 {
            opened.store.flush_raw(at(start)).unwrap();
        }
        if minute % 10 == 4 {
            opened.store.close(at(start)).unwrap();
            drop(opened);
            opened = open(folder.path(), at(start));
        }
    }
    let store = &opened.store;
    assert!(store.figures().open_samples > 0 && opened.boot > 2);
    let whole = (0, 2 * DAY);
    for limit in [1_000, 4_999, usize::MAX] {
        assert_eq!(
            sorted(pieces(store, whole, limit)),
            sorted(expected.clone()),
            "{limit}"
        );
    }
    let within = (DAY - 5 * MINUTE + 7, DAY + 3 * MINUTE + 7);
    expected.retain(|one| one.at >= at(within.0) && one.at < at(within.1));
    assert_eq!(sorted(pieces(store, within, 37)), sorted(expected));
    let (none, until) = store
        .heartbeats_between(at(9 * DAY), at(8 * DAY), 5)
        .unwrap();
    assert_eq!((none, until), (Vec::new(), at(9 * DAY)));
}

#[test]
fn a_flush_that_comes_hours_late_hides_no_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let expected: Vec<_> = (0..600).map(|minute| reply(1, minute * MINUTE)).collect();
    store.push_raw(&expected);
    store.flush_raw(at(600 * MINUTE)).unwrap();
    let from = 400 * MINUTE;
    let (found, until) = store.heartbeats_between(at(from), at(DAY), 10).unwrap();
    assert_eq!(
        (found, until),
        (expected[400..410].to_vec(), at(from + 10 * MINUTE))
    );
}
