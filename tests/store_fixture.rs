//! A store of schema 1 as its first version wrote it reads back in this one.
//!
//! `tests/fixtures/store-v1.pack` is that store, killed in the middle of its
//! work: the folder's files one after the other, each as `path`, `length`, `kept`
//! (a line each) and `kept` bytes; the rest up to `length` is zeros, which sled
//! preallocates. It was written once and is never written again, or the test
//! proves nothing. A new schema gets a pack of its own:
//!
//! ```text
//! STORE_PACK=tests/fixtures/store-v2.pack cargo test --test store_fixture write_a_pack
//! ```
#![cfg(test)]

#[path = "support/store_kit.rs"]
mod store_kit;

use std::fs;
use std::path::Path;

use sitebeat::domain::day::Day;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::store::daily::DeviceDay;
use sitebeat::store::{OpenError, Store};
use store_kit::{
    at, contents, copy_folder, id, miss, notice, open, removal, reply, seqs, try_open, turn,
};

const DAY: i64 = 86_400_000;
const DAYS: i64 = 7;
const DEVICES: usize = 3;

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
