//! What of the outbox is given up: the oldest where too much waits, and what the broker
//! does not take.
#![cfg(test)]

#[path = "support/outbox_kit.rs"]
mod outbox_kit;
#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use outbox_kit::{bytes, commit, in_short, json, miss, read, site, trouble, waiting};
use sitebeat::domain::event::Change;
use sitebeat::domain::outbox::Class;
use sitebeat::domain::status::Status;
use store_kit::{at, copy_folder, open, removal, seqs, turn};

/// A thousand each of statuses, failures and summaries, in turns.
fn mixed() -> Vec<Change> {
    (0..3_000)
        .map(|n: i64| match n % 3 {
            0 => turn(1, Status::Online, n),
            1 => miss(2, n),
            _ => site(n),
        })
        .collect()
}

#[test]
fn a_full_outbox_gives_up_failures_then_statuses_then_days_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    commit(store, &mixed());
    let before = store.outbox().backlog;
    let size = |class: Class| before.loads[class.index()].bytes;
    // A quarter of the failures must go; a little more does, the oldest.
    let all = before.total().bytes;
    let limit = all - size(Class::Failed) / 4;
    let passed = store.pass_over(limit, 3, at(9)).unwrap();
    let loads = waiting(store);
    assert_eq!(loads, [1_000 - passed, 1_000, 0, 1_000]);
    assert!((250..420).contains(&passed), "{passed}");
    assert!(bytes(store) <= limit - limit / 20 && bytes(store) > limit - limit / 10);
    assert_eq!(store.outbox().passed_over, passed);
    assert_eq!(store.pass_over(limit, 3, at(9)).unwrap(), 0);
    let parcels = store.read_outbox(0, (9, usize::MAX), at(9)).unwrap();
    assert_eq!(in_short(&parcels, None), "1 2 3 4 5-5 6 7 8-8 9");
    // All failures and some statuses, but none that was handed out.
    let limit = size(Class::Daily) + size(Class::Status) / 2;
    store.pass_over(limit, 0, at(9)).unwrap();
    let loads = waiting(store);
    assert_eq!((loads[0], loads[3]), (1, 1_000));
    assert!((480..500).contains(&loads[1]), "{loads:?}");
    assert!(bytes(store) <= limit);
}

#[test]
fn what_a_full_outbox_gave_up_and_what_it_kept_come_out_whole() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    commit(store, &mixed());
    store.pass_over(bytes(store) - 100_000, 3, at(9)).unwrap();
    store.read_outbox(0, (9, usize::MAX), at(9)).unwrap();
    // Nearly everything: what is left in the end are the newest summaries, and what
    // came before them is one gap.
    store.pass_over(10_000, 0, at(9)).unwrap();
    let loads = store.outbox().backlog.loads;
    assert!(bytes(store) <= 10_000 && bytes(store) > 9_000, "{loads:?}");
    let total = store.outbox().backlog.total();
    let passed = store.outbox().passed_over;
    assert_eq!(passed, 3_000 - total.events);
    drop(opened);
    let store = open(folder.path(), at(9)).store;
    assert_eq!(store.outbox().backlog.total(), total);
    let parcels = read(&store, 0);
    let short = in_short(&parcels, None);
    assert!(short.starts_with("1 2 3 4 5-5 6 7 8-8 9 10-"), "{short}");
    let gaps: Vec<&str> = short.split(' ').filter(|word| word.contains('-')).collect();
    let missing: u64 = gaps
        .iter()
        .map(|gap| gap.split_once('-').unwrap())
        .map(|(from, to)| to.parse::<u64>().unwrap() - from.parse::<u64>().unwrap() + 1)
        .sum();
    assert_eq!(missing, passed);
    let events = parcels
        .iter()
        .filter(|parcel| json(parcel)["error"]["from"].is_null());
    let left: usize = events.map(|parcel| parcel.json.len()).sum();
    assert_eq!(left as u64, bytes(&store));
    let message = json(&parcels[4])["error"]["error_message"].to_string();
    assert!(
        message.contains("event 5;") && message.contains("uplink.outbox_max_bytes"),
        "{message}"
    );
    // The page still has them all.
    assert_eq!(store.events(None, None, usize::MAX).unwrap().len(), 3_000);
    store.move_cursor(3_000, at(9)).unwrap();
    assert_eq!(
        (store.outbox().backlog.total().events, bytes(&store)),
        (0, 0)
    );
}

#[test]
fn gaps_that_touch_are_one_until_they_were_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    store.address_misses(false);
    let mut changes = vec![turn(1, Status::Online, 0), trouble(1, "a"), miss(1, 2)];
    changes.extend([
        trouble(3, "b"),
        turn(1, Status::Online, 4),
        turn(1, Status::Online, 5),
    ]);
    commit(&store, &changes);
    // 2 and 4 touch, for 3 is nobody's; then 5 and 6 touch them, then 1 does.
    let size = |class: Class| store.outbox().backlog.loads[class.index()].bytes;
    store.pass_over(size(Class::Status) + 1, 0, at(8)).unwrap();
    assert_eq!(store.outbox().passed_over, 2);
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), copy.path());
    let other = open(copy.path(), at(9)).store;
    assert_eq!(in_short(&read(&other, 0), None), "1 2-4 5 6");
    // Once told, it grows no more.
    commit(
        &other,
        &[turn(1, Status::Online, 9), trouble(9, "c"), removal(1, 9)],
    );
    other.pass_over(bytes(&other) - 10, 0, at(9)).unwrap();
    assert_eq!(in_short(&read(&other, 0), None), "1 2-4 5 6 7 8-8 9");
    // Not told, it does.
    store.pass_over(0, 0, at(9)).unwrap();
    assert_eq!(in_short(&read(&store, 0), None), "1-6");
    commit(&store, &[trouble(9, "d"), removal(2, 9)]);
    store.pass_over(0, 0, at(9)).unwrap();
    assert_eq!(in_short(&read(&store, 0), None), "1-6 7-8");
}

#[test]
fn a_refused_message_is_kept_aside_and_told_and_the_next_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    commit(store, &[turn(1, Status::Online, 0), site(1), removal(1, 2)]);
    let parcels = read(store, 0);
    store.move_cursor(1, at(3)).unwrap();
    store.set_aside(2, "packet too large", at(3)).unwrap();
    // Done once, however often it is asked for; and nothing where nothing waits.
    for seq in [1, 2, 99, 0] {
        store.set_aside(seq, "packet too large", at(4)).unwrap();
    }
    let outbox = store.outbox();
    assert_eq!((outbox.dead_letters, outbox.passed_over), (1, 0));
    assert_eq!(outbox.backlog.loads.map(|load| load.events), [1, 1, 0, 0]);
    let after = read(store, 1);
    assert_eq!(in_short(&after, Some(1)), "2-2 3 4");
    let told = &json(&after[2])["error"];
    assert_eq!(
        (&told["error_code"], &told["retryable"]),
        (&"MESSAGE_REFUSED".into(), &false.into())
    );
    let message = told["error_message"].as_str().unwrap();
    for word in ["event 2", " B", "packet too large", "Raise"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    let dead = store.dead_letters(9).unwrap();
    assert_eq!((dead[0].seq, &dead[0].json), (2, &parcels[1].json));
    assert_eq!((dead[0].at, &*dead[0].reason), (at(3), "packet too large"));
}

#[test]
fn a_broker_that_takes_nothing_at_all_makes_no_endless_row_of_failures() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    commit(store, &[turn(1, Status::Online, 0), site(1), removal(1, 2)]);
    store.set_aside(2, "not allowed", at(3)).unwrap();
    store.move_cursor(1, at(3)).unwrap();
    store.set_aside(4, "not allowed", at(5)).unwrap();
    assert_eq!(in_short(&read(store, 1), Some(1)), "2-2 3 4-4");
    assert_eq!(store.outbox().dead_letters, 2);
    drop(opened);
    let store = open(folder.path(), at(6)).store;
    assert_eq!(in_short(&read(&store, 1), Some(1)), "2-2 3 4-4");
    assert_eq!(store.outbox().backlog.total().events, 1);
    assert_eq!(seqs(&store), [1, 2, 3, 4]);
}

#[test]
fn the_newest_thousand_dead_letters_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), at(0)).store;
    let changes: Vec<_> = (0..1_010).map(|n| turn(1, Status::Online, n)).collect();
    commit(&store, &changes);
    for seq in 1..=1_010 {
        store
            .set_aside(seq, &"too large ".repeat(50), at(0))
            .unwrap();
    }
    let dead = store.dead_letters(usize::MAX).unwrap();
    let numbers: Vec<u64> = dead.iter().map(|letter| letter.seq).collect();
    assert_eq!(numbers, (11..=1_010).rev().collect::<Vec<_>>());
    assert_eq!(store.outbox().dead_letters, 1_010);
    // A broker's long words leave room for what to do.
    let newest = &store.events(None, None, 1).unwrap()[0];
    assert!(
        newest.json.contains("publish to the topic"),
        "{}",
        newest.json
    );
}

/// Passed over again and again while events of all kinds come in between: what is read
/// is one chain, each number in one place of it.
#[test]
fn gaps_made_at_different_times_never_overlap() {
    for seed in 1..40_u64 {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), at(0));
        let store = &opened.store;
        let mut dice = seed;
        let mut below = |n: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        for round in 0..30 {
            let changes: Vec<Change> = (0..=below(20))
                .map(|_| match below(5) {
                    0 => site(round),
                    1 | 2 => turn(1, Status::Online, round),
                    _ => miss(2, round),
                })
                .collect();
            commit(store, &changes);
            let limit = bytes(store) * (40 + below(60)) / 100;
            store.pass_over(limit, 0, at(round)).unwrap();
        }
        let mut upto = 0;
        for parcel in read(store, 0) {
            let (json, seq) = (json(&parcel), parcel.seq);
            let from = json["error"]["from"].as_u64().unwrap_or(seq);
            assert_eq!(from, upto + 1, "seed {seed}: number {seq}");
            assert_eq!(
                json["meta"]["prev_seq"].as_u64().unwrap_or(0),
                upto,
                "seed {seed}"
            );
            upto = seq;
        }
        assert_eq!(upto, store.outbox().last, "seed {seed}");
    }
}
