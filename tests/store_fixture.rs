//! Stores of schema 1 as earlier versions wrote them read back in this one.
//!
//! `tests/fixtures/store-v1.pack` is that of the first version, with heartbeats and
//! events; `store-v1-days.pack` came later and holds all else: rows, terms, marks,
//! a checkpoint and how far the uplink is. Both were killed in the middle of their
//! work: the folder's files one after the other, each as `path`, `length`, `kept`
//! (a line each) and `kept` bytes; the rest up to `length` is zeros, which sled
//! preallocates. They were written once and are never written again, or the tests
//! prove nothing. A new schema gets packs of its own:
//!
//! ```text
//! STORE_PACK=tests/fixtures/store-v2.pack cargo test --test store_fixture write_a_pack
//! STORE_DAYS_PACK=tests/fixtures/store-v2-days.pack cargo test --test store_fixture write_a_pack
//! ```
#![cfg(test)]

#[path = "support/store_kit.rs"]
mod store_kit;

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use sitebeat::domain::daily::Summary;
use sitebeat::domain::day::Day;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::domain::terms::{Term, Terms};
use sitebeat::edge::rollup::plan::{Depth, Job};
use sitebeat::edge::rollup::work::summarise;
use sitebeat::store::daily::DeviceDay;
use sitebeat::store::outbox::UplinkMarks;
use sitebeat::store::{OpenError, Opened, Store};
use store_kit::{
    at, contents, copy_folder, id, miss, notice, open, removal, reply, seqs, try_open, turn,
};

const DAY: i64 = 86_400_000;
const DAYS: i64 = 7;
const DEVICES: usize = 3;
/// When the store of days was killed.
const KILLED: i64 = 2 * DAY + 3 * 3_600_000;

fn beat(n: usize, day: i64, hour: i64) -> Sample {
    let millis = day * DAY + hour * 3_600_000 + 100 * i64::try_from(n).unwrap();
    if (hour + i64::try_from(n).unwrap()) % 5 == 0 {
        miss(n, millis)
    } else {
        reply(n, millis)
    }
}

fn unpack(pack: &[u8], folder: &Path) {
    let mut rest = pack;
    while !rest.is_empty() {
        let mut line = || {
            let end = rest.iter().position(|&byte| byte == b'\n').unwrap();
            let line = std::str::from_utf8(&rest[..end]).unwrap();
            rest = &rest[end + 1..];
            line
        };
        let (path, length, kept): (_, usize, usize) =
            (line(), line().parse().unwrap(), line().parse().unwrap());
        let mut bytes = rest[..kept].to_vec();
        rest = &rest[kept..];
        bytes.resize(length, 0);
        let target = folder.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
}

fn pack(folder: &Path) -> Vec<u8> {
    let mut pack = Vec::new();
    for (path, bytes) in contents(folder) {
        let kept = bytes
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        pack.extend_from_slice(format!("{path}\n{}\n{kept}\n", bytes.len()).as_bytes());
        pack.extend_from_slice(&bytes[..kept]);
    }
    pack
}

/// Does nothing unless a pack is asked for.
#[test]
fn write_a_pack() {
    let Some(target) = std::env::var_os("STORE_PACK") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    for day in 0..DAYS {
        for n in 0..DEVICES {
            let samples: Vec<_> = (0..24).map(|hour| beat(n, day, hour)).collect();
            store.push_raw(&samples);
        }
        store.push_notices(vec![notice(1, day * DAY)]);
        store.flush_raw(at(day * DAY)).unwrap();
        let changes = [
            turn(0, Status::Online, day * DAY),
            turn(1, Status::Offline, day * DAY),
        ];
        store.commit(&changes, at(day * DAY)).unwrap();
    }
    store
        .commit(
            &[turn(8, Status::Online, 1), removal(8, DAYS * DAY)],
            at(DAYS * DAY),
        )
        .unwrap();
    let track = Track {
        missed_count: 4,
        last_ping_at: Some(at(DAYS * DAY)),
        ..Track::default()
    };
    let counted = Liveness {
        device: id(2),
        track,
    };
    store.checkpoint(&[counted], at(DAYS * DAY)).unwrap();
    // Taken while the store is open, as a kill would leave it.
    let killed = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), killed.path());
    fs::write(target, pack(killed.path())).unwrap();
}

fn day(n: i64) -> Day {
    Day::of(at(n * DAY)).unwrap()
}

/// Where device `n` is watched: once an hour, the second from noon of the first day
/// on, the third not after it.
fn terms(n: usize) -> Terms {
    let hour = Some(Duration::from_hours(1));
    let term = |from, period| Term {
        from: at(from),
        period,
    };
    Terms::restored(match n {
        0 => vec![term(0, hour)],
        1 => vec![term(DAY / 2, hour)],
        _ => vec![term(0, hour), term(DAY, None)],
    })
}

fn address(n: usize) -> IpAddr {
    format!("10.0.0.{n}").parse().unwrap()
}

fn standing(n: usize) -> Liveness {
    let track = Track {
        missed_count: 2,
        last_ping_at: Some(at(2 * DAY)),
        updated_at: Some(at(2 * DAY)),
        ..Track::default()
    };
    Liveness {
        device: id(n),
        track,
    }
}

fn marks() -> UplinkMarks {
    UplinkMarks {
        metrics_from: Some(at(DAY)),
        traffic: Some((day(1), 12_345, 678)),
    }
}

/// Two days of rows with their events, the third day begun.
fn write_days(store: &Store) {
    let all: Vec<_> = (0..DEVICES).map(|n| (id(n), terms(n))).collect();
    store.keep_terms(&all.into_iter().collect(), at(0)).unwrap();
    let watched: Vec<_> = (0..DEVICES).map(|n| (id(n), address(n))).collect();
    store.remember_addresses(&watched, at(0)).unwrap();
    store.hold_for_uplink(true);
    for of in 0..3 {
        for n in 0..DEVICES {
            let hours = if of < 2 { 24 } else { 3 };
            let samples: Vec<_> = (0..hours).map(|hour| beat(n, of, hour)).collect();
            store.push_raw(&samples);
        }
        store.push_late(&[(id(1), at(of * DAY))]);
        store.flush_raw(at(of * DAY)).unwrap();
    }
    for of in 0..2 {
        let job = Job {
            day: day(of),
            depth: Depth::Final,
        };
        summarise(store, job, at((of + 1) * DAY)).unwrap();
    }
    store
        .commit(&[turn(0, Status::Online, KILLED)], at(KILLED))
        .unwrap();
    let known = [standing(2), standing(7)];
    store.checkpoint(&known, at(KILLED)).unwrap();
    // The events of the first day are with the broker, one was not taken.
    assert_eq!(
        store
            .read_outbox(0, (5, usize::MAX), at(KILLED))
            .unwrap()
            .len(),
        5
    );
    store.move_cursor(4, at(KILLED)).unwrap();
    store.set_aside(5, "too long", at(KILLED)).unwrap();
    store.keep_uplink(&marks(), at(KILLED)).unwrap();
}

/// Does nothing unless a pack is asked for.
#[test]
fn write_a_pack_of_days() {
    let Some(target) = std::env::var_os("STORE_DAYS_PACK") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    write_days(&opened.store);
    let killed = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), killed.path());
    fs::write(target, pack(killed.path())).unwrap();
}

fn opened_days(folder: &Path) -> Opened {
    unpack(include_bytes!("fixtures/store-v1-days.pack"), folder);
    let opened = open(folder, at(KILLED));
    assert_eq!(opened.mended, [""; 0]);
    opened
}

fn rows(store: &Store) -> Vec<Summary> {
    let mut rows = Vec::new();
    store
        .summaries(day(0), day(9), None, &mut |row| {
            rows.push(*row);
            true
        })
        .unwrap();
    rows
}

#[test]
fn rows_terms_and_marks_of_schema_1_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened_days(folder.path());
    let store = &opened.store;
    // Expected, replied, missed, late. On the day that the third was not watched, what
    // was sent was to be sent.
    let counts: Vec<_> = rows(store)
        .iter()
        .map(|row| {
            let figures = row.figures;
            assert_eq!(row.created_at, row.day.end());
            (
                (row.day, row.device),
                [
                    figures.expected,
                    figures.replied,
                    figures.missed,
                    figures.late,
                ],
            )
        })
        .collect();
    let expected: Vec<_> = COUNTS
        .into_iter()
        .map(|(of, n, counts)| ((day(of), id(n)), counts))
        .collect();
    assert_eq!(counts, expected);
    let kept: Vec<_> = store.terms().unwrap().into_iter().collect();
    let expected: Vec<_> = (0..DEVICES).map(|n| (id(n), terms(n))).collect();
    assert_eq!(kept, expected);
    let watched: Vec<_> = opened.addresses.clone().into_iter().collect();
    let expected: Vec<_> = (0..DEVICES).map(|n| (id(n), address(n))).collect();
    assert_eq!(watched, expected);
    // By the marks: what was told is not told again, and the days are final.
    assert_eq!(store.final_days().unwrap(), [day(0), day(1)]);
    let before = seqs(store);
    for of in 0..2 {
        let job = Job {
            day: day(of),
            depth: Depth::Final,
        };
        let again = summarise(store, job, at(3 * DAY)).unwrap();
        assert_eq!((again.rows.changed, again.told), (0, 0), "day {of}");
    }
    assert_eq!(seqs(store), before);
}

/// Day, device, and what its row counts.
const COUNTS: [(i64, usize, [u32; 4]); 6] = [
    (0, 0, [24, 19, 5, 0]),
    (0, 1, [12, 20, 4, 1]),
    (0, 2, [24, 19, 5, 0]),
    (1, 0, [24, 19, 5, 0]),
    (1, 1, [24, 20, 4, 1]),
    (1, 2, [24, 19, 5, 0]),
];

#[test]
fn checkpoint_and_uplink_of_schema_1_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened_days(folder.path());
    let store = &opened.store;
    let track = |n| {
        let mut all = opened.standings.iter();
        all.find(|one| one.device == id(n)).unwrap().track
    };
    // What raw tells is taken in; of the last one only the checkpoint knows.
    assert_eq!(track(2).last_ping_at, Some(beat(2, 2, 2).at));
    assert_eq!(track(7), standing(7).track);
    assert_eq!(store.uplink_marks().unwrap(), marks());
    let outbox = store.outbox();
    assert_eq!((outbox.cursor, outbox.last), (4, 10));
    let letters = store.dead_letters(9).unwrap();
    let told: Vec<_> = letters
        .iter()
        .map(|letter| (letter.seq, letter.reason.as_str()))
        .collect();
    assert_eq!(told, [(5, "too long")]);
    // A gap stands in its place.
    let parcels = store.read_outbox(4, (99, usize::MAX), at(KILLED)).unwrap();
    let numbers: Vec<u64> = parcels.iter().map(|parcel| parcel.seq).collect();
    assert_eq!(numbers, (5..=10).collect::<Vec<_>>());
    assert!(
        parcels[0].json.contains("OUTBOX_GAP"),
        "{}",
        parcels[0].json
    );
    assert!(parcels[5].json.contains("MESSAGE_REFUSED"));
}

#[test]
fn a_store_of_schema_1_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    unpack(include_bytes!("fixtures/store-v1.pack"), folder.path());
    let opened = open(folder.path(), at(DAYS * DAY));
    let store = &opened.store;
    assert_eq!(opened.mended, [""; 0]);
    assert_eq!(opened.boot, 2);
    assert_eq!(store.raw_days().unwrap().len(), 7);
    for day in 0..DAYS {
        for n in 0..DEVICES {
            let expected: Vec<_> = (0..24).map(|hour| beat(n, day, hour)).collect();
            let found = store
                .heartbeats(id(n), Day::of(at(day * DAY)).unwrap())
                .unwrap();
            assert_eq!(found, expected, "device {n} on day {day}");
        }
    }
    let standings: Vec<_> = opened
        .standings
        .iter()
        .map(|one| (one.device, one.track.status, one.track.missed_count))
        .collect();
    let expected = [
        (id(0), Status::Online, 0),
        (id(1), Status::Offline, 0),
        (id(2), Status::Unknown, 4),
    ];
    assert_eq!(standings, expected);
    assert_eq!(seqs(store), (1..=23).collect::<Vec<_>>());
    // It goes on where it was, in the same log.
    let log_id = |json: &str| {
        let (_, rest) = json.split_once("\"log_id\":\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    assert_eq!(
        store
            .commit(&[turn(2, Status::Online, 0)], at(DAYS * DAY))
            .unwrap(),
        [24]
    );
    let events = store.events(None, None, 2).unwrap();
    assert_eq!(log_id(&events[0].json), log_id(&events[1].json));
    assert!(events[0].json.contains(r#""seq":24,"prev_seq":23}"#));
}

#[test]
fn what_came_later_is_added_to_a_store_of_the_first_version() {
    let folder = tempfile::tempdir().unwrap();
    unpack(include_bytes!("fixtures/store-v1.pack"), folder.path());
    let reader = Store::open_to_read(folder.path()).unwrap();
    assert_eq!(reader.events_page(None, None, 99).unwrap().events.len(), 23);
    drop(reader);
    let store = open(folder.path(), at(DAYS * DAY)).store;
    assert!(store.terms().unwrap().is_empty());
    assert_eq!(store.final_days().unwrap(), []);
    let today = Day::of(at(0)).unwrap();
    store.push_late(&[(id(1), at(0))]);
    store.flush_raw(at(0)).unwrap();
    let mut late = Vec::new();
    let each = &mut |group: Vec<DeviceDay>| {
        late.extend(group.iter().map(|one| (one.beats.len(), one.late)));
    };
    store.read_day(today, each).unwrap();
    assert_eq!(late, [(24, 0), (24, 1), (24, 0)]);
    store.prune(today, 0, at(3 * DAY), at(5 * DAY)).unwrap();
    let left = seqs(&store);
    assert!(left.len() < 23 && left.last() == Some(&23), "{left:?}");
    store.close(at(0)).unwrap();
    let opened = open(folder.path(), at(0));
    assert_eq!(opened.mended, [""; 0]);
    assert_eq!(seqs(&opened.store), left);
    assert_eq!(opened.store.figures().events, left.len() as u64);
}

#[test]
fn a_store_of_before_the_uplink_opens_with_its_events_as_backlog() {
    let folder = tempfile::tempdir().unwrap();
    unpack(include_bytes!("fixtures/store-v1.pack"), folder.path());
    for _ in 0..2 {
        let store = open(folder.path(), at(DAYS * DAY)).store;
        let outbox = store.outbox();
        assert_eq!((outbox.cursor, outbox.last), (0, 23));
        let loads = outbox.backlog.loads.map(|load| load.events);
        assert_eq!(loads, [7, 16, 0, 0]);
        assert_eq!(outbox.backlog.oldest_at, Some(at(0)));
        let parcels = store.read_outbox(0, (99, usize::MAX), at(0)).unwrap();
        let numbers: Vec<u64> = parcels.iter().map(|parcel| parcel.seq).collect();
        assert_eq!(numbers, (1..=23).collect::<Vec<_>>());
        let sent: usize = parcels.iter().map(|parcel| parcel.json.len()).sum();
        assert_eq!(outbox.backlog.total().bytes, sent as u64);
    }
}

#[test]
fn a_store_of_schema_99_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    unpack(include_bytes!("fixtures/store-v1.pack"), folder.path());
    fs::write(folder.path().join("FORMAT"), "sitebeat store, schema 99\n").unwrap();
    let before = contents(folder.path());
    let refused = try_open(folder.path(), at(0)).unwrap_err();
    assert!(matches!(&refused, OpenError::Schema { found, .. } if found == "99"));
    assert!(refused.to_string().contains("schema 99"), "{refused}");
    assert_eq!(contents(folder.path()), before);
}
