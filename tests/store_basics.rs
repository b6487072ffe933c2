//! What the store promises, one claim a test.
#![cfg(test)]

#[path = "support/store_kit.rs"]
mod store_kit;

use std::fs;

use sitebeat::domain::day::Day;
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::store::{Figures, OpenError, WriteError};
use store_kit::{
    DAY_START, at, contents, copy_folder, id, miss, notice, open, options, removal, reply, seqs,
    try_open, turn,
};

fn day() -> Day {
    Day::of(at(0)).unwrap()
}

fn standing(opened: &sitebeat::store::Opened, n: usize) -> Option<Track> {
    let found = opened.standings.iter().find(|one| one.device == id(n));
    found.map(|liveness| liveness.track)
}

#[test]
fn a_store_can_be_shared_between_threads() {
    const fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<sitebeat::store::Store>();
}

#[test]
fn a_new_store_is_empty_and_counts_its_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/demand");
    for boot in 1..=3 {
        let opened = open(&path, at(0));
        assert_eq!(opened.boot, boot);
        assert_eq!(opened.standings, []);
        assert_eq!(opened.mended, [""; 0]);
        assert_eq!(seqs(&opened.store), [0; 0]);
        assert_eq!(opened.store.raw_days().unwrap(), []);
    }
    let format = fs::read_to_string(path.join("FORMAT")).unwrap();
    assert_eq!(format, "sitebeat store, schema 1\n");
}

#[test]
fn a_change_and_its_event_are_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let crashed = folder.path().join("crashed");
    let opened = open(&path, at(0));
    let changes = [turn(1, Status::Online, 1), turn(2, Status::Offline, 2)];
    assert_eq!(opened.store.commit(&changes, at(3)).unwrap(), [1, 2]);
    assert_eq!(opened.store.figures().events, 2, "counted at once");
    assert_eq!(
        opened
            .store
            .commit(&[turn(1, Status::Degraded, 4)], at(4))
            .unwrap(),
        [3]
    );
    copy_folder(&path, &crashed);
    let opened = open(&crashed, at(10));
    assert_eq!(standing(&opened, 1).unwrap().status, Status::Degraded);
    assert_eq!(standing(&opened, 2).unwrap().status, Status::Offline);
    let events = opened.store.events(None, None, 10).unwrap();
    assert_eq!(
        events.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [3, 2, 1]
    );
    assert!(events[0].json.contains(r#""seq":3,"prev_seq":2}"#));
    assert!(events[2].json.contains(r#""seq":1,"prev_seq":null}"#));
    assert_eq!(opened.store.events(None, Some(3), 1).unwrap()[0].seq, 2);
    assert_eq!(opened.store.events(None, Some(1), 9).unwrap(), []);
}

#[test]
fn heartbeats_come_back_ascending_from_disk_and_open_frame() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    let first: Vec<_> = (0..600)
        .zip(60_000..)
        .map(|(n, millis)| reply(n, millis))
        .collect();
    store.push_raw(&first);
    store.flush_raw(at(120_000)).unwrap();
    store.push_raw(&[miss(7, 30_000), reply(7, 180_000), reply(8, 5)]);
    let read = store.heartbeats(id(7), day()).unwrap();
    assert_eq!(read, [miss(7, 30_000), reply(7, 60_007), reply(7, 180_000)]);
    store.flush_raw(at(240_000)).unwrap();
    assert_eq!(store.heartbeats(id(7), day()).unwrap(), read);
    assert_eq!(
        store.heartbeats(id(599), day()).unwrap(),
        [reply(599, 60_599)]
    );
    assert_eq!(store.heartbeats(id(9_999), day()).unwrap(), []);
    assert_eq!(store.figures().open_samples, 0);
}

#[test]
fn heartbeats_of_any_date_lie_under_their_day() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let times = [
        -86_400_001,
        0,
        951_782_400_000,
        DAY_START,
        4_102_444_800_000,
        253_402_300_800_000,
    ];
    let samples = times.map(|millis| reply(1, millis - DAY_START));
    opened.store.push_raw(&samples);
    opened.store.flush_raw(at(0)).unwrap();
    for sample in samples {
        let day = Day::of(sample.at).unwrap();
        assert_eq!(
            opened.store.heartbeats(id(1), day).unwrap(),
            [sample],
            "{day}"
        );
    }
    assert_eq!(opened.store.raw_days().unwrap().len(), times.len());
    // Past the calendar there is no day; that is counted, not hidden.
    opened.store.push_raw(&[reply(1, i64::MAX - DAY_START)]);
    opened.store.flush_raw(at(0)).unwrap();
    assert_eq!(opened.store.figures().lost_samples, 1);
}

#[test]
fn a_removed_day_is_gone_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    opened.store.push_raw(&[reply(1, -1), reply(1, 0)]);
    opened.store.flush_raw(at(0)).unwrap();
    assert_eq!(opened.store.raw_days().unwrap(), [day().previous(), day()]);
    opened.store.remove_raw_day(day().previous()).unwrap();
    opened.store.remove_raw_day(day().previous()).unwrap();
    assert_eq!(opened.store.raw_days().unwrap(), [day()]);
    assert_eq!(
        opened.store.heartbeats(id(1), day().previous()).unwrap(),
        []
    );
    assert_eq!(
        opened.store.heartbeats(id(1), day()).unwrap(),
        [reply(1, 0)]
    );
    drop(opened);
    // A crash in the middle of a removal leaves no half day.
    fs::rename(
        folder.path().join("raw/2026-03-12"),
        folder.path().join("raw/2026-03-12.removing"),
    )
    .unwrap();
    let opened = open(folder.path(), at(0));
    assert_eq!(opened.store.raw_days().unwrap(), []);
    assert!(!folder.path().join("raw/2026-03-12.removing").exists());
}

#[test]
fn misses_go_on_counting_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    opened
        .store
        .commit(&[turn(1, Status::Online, 1_000)], at(1_000))
        .unwrap();
    opened.store.push_raw(&[
        reply(1, 1_000),
        miss(1, 61_000),
        miss(1, 121_000),
        miss(2, 5),
    ]);
    opened.store.close(at(130_000)).unwrap();
    drop(opened);
    let opened = open(folder.path(), at(140_000));
    let track = standing(&opened, 1).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Online, 2));
    assert_eq!(track.last_ping_at, Some(at(121_000)));
    // Never judged, but known from its raw.
    let track = standing(&opened, 2).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Unknown, 1));
}

#[test]
fn a_checkpoint_counts_where_it_is_newer_but_names_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    store
        .commit(
            &[
                turn(1, Status::Online, 1_000),
                turn(2, Status::Online, 1_000),
            ],
            at(1_000),
        )
        .unwrap();
    let counted = |n: usize| Liveness {
        device: id(n),
        track: Track {
            status: Status::Offline,
            missed_count: 9,
            last_ping_at: Some(at(600_000)),
            updated_at: Some(at(605_000)),
            ..Track::default()
        },
    };
    store
        .checkpoint(&[counted(1), counted(2), counted(3)], at(606_000))
        .unwrap();
    store
        .commit(&[turn(2, Status::Degraded, 660_000)], at(660_000))
        .unwrap();
    store.push_raw(&[miss(1, 660_000), miss(1, 60_000)]);
    store.close(at(700_000)).unwrap();
    drop(opened);
    let opened = open(folder.path(), at(720_000));
    let track = standing(&opened, 1).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Online, 10));
    let track = standing(&opened, 2).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Degraded, 0));
    let track = standing(&opened, 3).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Unknown, 9));
}

#[test]
fn a_removed_device_comes_back_only_by_what_is_newer() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    store
        .commit(
            &[
                turn(1, Status::Online, 1_000),
                turn(2, Status::Online, 1_000),
            ],
            at(1_000),
        )
        .unwrap();
    store.push_raw(&[miss(1, 61_000), miss(2, 61_000)]);
    let all = opened.standings.clone();
    store.checkpoint(&all, at(62_000)).unwrap();
    store
        .commit(&[removal(1, 70_000), removal(2, 70_000)], at(70_000))
        .unwrap();
    store.push_raw(&[miss(2, 130_000)]);
    store.close(at(140_000)).unwrap();
    drop(opened);
    let opened = open(folder.path(), at(150_000));
    assert_eq!(standing(&opened, 1), None);
    let track = standing(&opened, 2).unwrap();
    assert_eq!((track.status, track.missed_count), (Status::Unknown, 1));
}

#[test]
fn heartbeats_from_a_future_clock_do_not_hide_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let ten_years = 10 * 365 * 86_400_000;
    opened
        .store
        .push_raw(&[miss(1, ten_years), miss(1, 60_000), miss(1, 120_000)]);
    opened.store.close(at(130_000)).unwrap();
    drop(opened);
    let opened = open(folder.path(), at(140_000));
    assert_eq!(standing(&opened, 1).unwrap().missed_count, 2);
    drop(opened);
    // A gateway that starts in 1970 believes its files rather than its clock.
    let opened = open(folder.path(), Wall::from_millis(0));
    assert_eq!(standing(&opened, 1).unwrap().missed_count, 3);
}

#[test]
fn notices_ride_the_flush_and_are_numbered_there() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    store.push_notices(vec![notice(1, 1), notice(2, 2)]);
    assert_eq!(
        store.commit(&[turn(3, Status::Online, 3)], at(3)).unwrap(),
        [1]
    );
    assert_eq!(seqs(store), [1]);
    store.flush_raw(at(4)).unwrap();
    assert_eq!(seqs(store), [1, 2, 3]);
    assert_eq!(store.figures().events, 3);
    assert_eq!(store.figures().last_flush, Some(at(4)));
}

#[test]
fn limits_refuse_raw_but_never_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    let store = &opened.store;
    for (max_bytes, min_free_bytes) in [(1, 0), (u64::MAX, u64::MAX)] {
        store.set_limits(max_bytes, min_free_bytes);
        store.push_raw(&[reply(1, i64::try_from(max_bytes % 1_000).unwrap())]);
        store.push_notices(vec![notice(1, 1)]);
        let refused = store.flush_raw(at(1)).unwrap_err();
        assert!(matches!(
            refused,
            WriteError::Full { .. } | WriteError::DiskLow { .. }
        ));
        store.commit(&[turn(1, Status::Online, 1)], at(1)).unwrap();
    }
    assert_eq!(seqs(store), [1, 2, 3, 4]);
    assert_eq!(store.figures().open_samples, 2);
    assert!(store.figures().bytes > 0 && store.figures().free_bytes > 0);
    store.set_limits(u64::MAX, 0);
    store.flush_raw(at(2)).unwrap();
    assert_eq!(store.heartbeats(id(1), day()).unwrap().len(), 2);
}

#[test]
fn a_closed_store_refuses_politely() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path(), at(0));
    opened.store.push_raw(&[reply(1, 1)]);
    opened.store.close(at(2)).unwrap();
    assert!(
        opened
            .store
            .commit(&[turn(1, Status::Online, 1)], at(3))
            .is_err()
    );
    assert!(opened.store.heartbeats(id(1), day()).is_err());
    // The lock is free although the value is still there.
    let again = open(folder.path(), at(4));
    assert_eq!(again.store.heartbeats(id(1), day()).unwrap(), [reply(1, 1)]);
}

#[test]
fn a_folder_that_is_no_store_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("holiday.jpg"), b"sea").unwrap();
    let before = contents(folder.path());
    let refused = try_open(folder.path(), at(0)).unwrap_err();
    let OpenError::Unusable { source, .. } = refused else {
        panic!("{refused:?}");
    };
    assert!(source.to_string().contains("holiday.jpg"), "{source}");
    assert_eq!(contents(folder.path()), before);
    // A data partition fresh from mkfs is empty in this sense.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    open(folder.path(), at(0));
}

#[test]
fn a_store_of_another_schema_is_refused_byte_identical() {
    for text in [
        "sitebeat store, schema 99\n",
        "sitebeat store, schema 1x",
        "sitebeat store, schema ",
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), at(0)));
        fs::remove_file(folder.path().join("LOCK")).unwrap();
        fs::write(folder.path().join("FORMAT"), text).unwrap();
        let before = contents(folder.path());
        let refused = try_open(folder.path(), at(0)).unwrap_err();
        assert!(
            matches!(refused, OpenError::Schema { readable: 1, .. }),
            "{refused:?}"
        );
        assert_eq!(contents(folder.path()), before);
    }
}

#[test]
fn an_empty_format_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let format = folder.path().join("FORMAT");
    let store = open(folder.path(), at(0)).store;
    store.push_raw(&[reply(1, 1)]);
    store.close(at(2)).unwrap();
    drop(store);
    fs::write(&format, "").unwrap();
    let opened = open(folder.path(), at(3));
    assert_eq!(opened.mended.len(), 1, "{:?}", opened.mended);
    assert!(opened.mended[0].contains("FORMAT was empty"));
    let found = opened.store.heartbeats(id(1), day()).unwrap();
    assert_eq!(found, [reply(1, 1)]);
    drop(opened);
    assert_eq!(open(folder.path(), at(4)).mended, [""; 0]);

    // A power cut in the making of the store leaves no more than this.
    let folder = tempfile::tempdir().unwrap();
    for file in ["FORMAT", "FORMAT.new", "LOCK"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    assert_eq!(open(folder.path(), at(0)).mended.len(), 1);
}

#[test]
fn a_format_that_says_nothing_is_refused_with_a_cure_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let format = folder.path().join("FORMAT");
    drop(open(folder.path(), at(0)));
    let cure = |refused: OpenError| {
        let OpenError::Unusable { source, .. } = refused else {
            panic!("{refused:?}");
        };
        let text = source.to_string();
        let (_, rest) = text.split_once("write the line \"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    fs::write(&format, "\0\0\0\0").unwrap();
    let line = cure(try_open(folder.path(), at(1)).unwrap_err());
    fs::write(&format, line).unwrap();
    drop(open(folder.path(), at(2)));

    // Empty, and beside nothing of ours.
    let folder = tempfile::tempdir().unwrap();
    let format = folder.path().join("FORMAT");
    fs::write(&format, "").unwrap();
    fs::write(folder.path().join("holiday.jpg"), b"sea").unwrap();
    let before = contents(folder.path());
    let line = cure(try_open(folder.path(), at(0)).unwrap_err());
    assert_eq!(contents(folder.path()), before);
    fs::write(&format, line).unwrap();
    drop(open(folder.path(), at(1)));
}

#[test]
fn a_path_that_cannot_be_a_folder_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let mut options = options(&file);
    options.path = file.join("below");
    let refused = sitebeat::store::Store::open(&options, at(0)).unwrap_err();
    assert!(refused.to_string().contains("below"), "{refused}");
}

#[test]
fn a_limit_that_is_near_is_told_before_it_is_reached() {
    let roomy = Figures {
        bytes: 799,
        max_bytes: 1_000,
        free_bytes: 200,
        min_free_bytes: 100,
        ..Figures::default()
    };
    assert_eq!(roomy.nears_limit(), None);
    let large = Figures {
        bytes: 1_801_234_567,
        max_bytes: 2_000_000_000,
        ..roomy
    };
    assert_eq!(
        large.nears_limit().unwrap(),
        "the store holds 1.8 GB of the 2.0 GB that store.max_bytes allows: raise it, or watch \
         fewer devices"
    );
    let tight = Figures {
        free_bytes: 100_000_000,
        min_free_bytes: 64 << 20,
        ..roomy
    };
    assert_eq!(
        tight.nears_limit().unwrap(),
        "the disk has 100.0 MB free; below the 67.1 MB that store.min_free_bytes asks for, \
         heartbeats are refused: free some disk"
    );
}

#[test]
fn refusals_tell_sizes_as_people_read_them() {
    let low = WriteError::DiskLow {
        free: 64_600_000,
        limit: 64 << 20,
    };
    assert_eq!(
        low.to_string(),
        "the disk has 64.6 MB free, store.min_free_bytes asks for 67.1 MB"
    );
    let full = WriteError::Full {
        bytes: 2_100_000_000,
        limit: 2_000_000_000,
    };
    assert_eq!(
        full.to_string(),
        "the store holds 2.1 GB, store.max_bytes allows 2.0 GB"
    );
}
