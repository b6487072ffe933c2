//! Damaged files: the store opens or says why not; it never panics out, never
//! hangs, and never takes down what was whole.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use sitebeat::domain::day::Day;
use sitebeat::domain::status::Status;
use sitebeat::store::{OpenError, Opened};
use store_kit::{at, copy_folder, id, notice, open, reply, seqs, try_open, turn};

const DAY: i64 = 86_400_000;
const DEVICES: usize = 40;

/// A store with three days of raw, some events and a checkpoint.
fn sound_store(path: &Path) {
    for day in -2..=0 {
        // A new opening each day leaves the snapshots of every restart.
        let opened = open(path, at(day * DAY));
        let store = &opened.store;
        for minute in 0..30 {
            let millis = day * DAY + minute * 60_000;
            let samples: Vec<_> = (0..DEVICES).map(|n| reply(n, millis)).collect();
            store.push_raw(&samples);
            store.push_notices(vec![notice(1, millis)]);
            store.flush_raw(at(millis)).unwrap();
            let n = usize::try_from(minute).unwrap();
            store
                .commit(&[turn(n, Status::Online, millis)], at(millis))
                .unwrap();
        }
        if day == -1 {
            store.checkpoint(&opened.standings, at(-DAY)).unwrap();
        }
        store.close(at(day * DAY)).unwrap();
    }
    drop(open(path, at(3_000_000)));
}

/// Small, fast, the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// Damages one file of `folder`; tells what was done.
fn damage(folder: &Path, dice: &mut Dice) -> String {
    let files = files_of(folder);
    let file = &files[dice.below(files.len())];
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = fs::read(file).unwrap();
    // The head of the file is where the content is: the rest is preallocated.
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
    match dice.below(5) {
        0 => {
            fs::remove_file(file).unwrap();
            return format!("{name} deleted");
        }
        1 => bytes.truncate(dice.below(used)),
        2 => {
            for _ in 0..=dice.below(8) {
                let bit = dice.below(used * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        3 => {
            let from = dice.below(used);
            let to = (from + 1 + dice.below(8_192)).min(bytes.len());
            bytes[from..to].fill(0);
        }
        _ => {
            let from = dice.below(used);
            let to = (from + 1 + dice.below(8_192)).min(bytes.len());
            bytes[from..to].fill_with(|| u8::try_from(dice.below(256)).unwrap());
        }
    }
    fs::write(file, bytes).unwrap();
    format!("{name} damaged")
}

/// Runs `work` on its own thread; a hang fails the test instead of stopping it.
fn within_limit<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let worker = thread::spawn(move || {
        let outcome = work();
        done.send(()).unwrap();
        outcome
    });
    let waited = wait.recv_timeout(Duration::from_mins(1));
    assert_ne!(
        waited,
        Err(mpsc::RecvTimeoutError::Timeout),
        "{what}: hangs"
    );
    worker.join().unwrap_or_else(|_| panic!("{what}: panicked"))
}

/// Uses everything once; whatever it answers, it must answer.
fn use_it(opened: &Opened, what: &str) {
    let store = &opened.store;
    let days = store.raw_days().unwrap();
    for day in days {
        drop(store.heartbeats(id(3), day));
    }
    store.push_raw(&[reply(3, 3_600_000), reply(3, 3_600_000 - DAY)]);
    let flushed = store.flush_raw(at(3_600_000));
    assert!(flushed.is_ok(), "{what}: {flushed:?}");
    let committed = store.commit(&[turn(3, Status::Offline, 3_600_000)], at(3_600_000));
    let seq = committed.unwrap_or_else(|error| panic!("{what}: {error:?}"))[0];
    assert_eq!(store.events(None, None, 1).unwrap()[0].seq, seq, "{what}");
    let today = store.heartbeats(id(3), Day::of(at(0)).unwrap()).unwrap();
    assert_eq!(today.last(), Some(&reply(3, 3_600_000)), "{what}");
}

fn reads_whole(opened: &Opened, day: i64, what: &str) {
    for n in 0..DEVICES {
        let read = opened
            .store
            .heartbeats(id(n), Day::of(at(day * DAY)).unwrap())
            .unwrap();
        assert_eq!(read.len(), 30, "{what}: day {day}, device {n}");
    }
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("SEED") {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 1..41,
    }
}

#[test]
fn a_store_with_a_damaged_state_opens_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let sound = folder.path().join("sound");
    sound_store(&sound);
    for seed in seeds() {
        let path = folder.path().join(format!("state-{seed}"));
        copy_folder(&sound, &path);
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let done = damage(&path.join("state"), &mut dice);
        let what = format!("SEED={seed}, {done}");
        let name = what.clone();
        within_limit(&what, move || {
            let opened =
                try_open(&path, at(3_000_000)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            for day in -2..=0 {
                reads_whole(&opened, day, &name);
            }
            // Nobody is forgotten: where standings were lost, raw names them.
            assert_eq!(opened.standings.len(), DEVICES, "{name}");
            use_it(&opened, &name);
            let before = opened.store.events(None, None, 1).unwrap()[0].clone();
            drop(opened);
            let opened = open(&path, at(3_700_000));
            assert_eq!(opened.mended, [""; 0], "{name}: mended again");
            assert_eq!(
                opened.store.events(None, None, 1).unwrap()[0],
                before,
                "{name}"
            );
            fs::remove_dir_all(&path).unwrap();
        });
    }
}

#[test]
fn a_store_with_a_damaged_day_opens_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let sound = folder.path().join("sound");
    sound_store(&sound);
    for seed in seeds() {
        let path = folder.path().join(format!("day-{seed}"));
        copy_folder(&sound, &path);
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let damaged = if dice.below(2) == 0 {
            "2026-03-11"
        } else {
            "2026-03-12"
        };
        let done = damage(&path.join("raw").join(damaged), &mut dice);
        let what = format!("SEED={seed}, {damaged}: {done}");
        let name = what.clone();
        within_limit(&what, move || {
            let opened =
                try_open(&path, at(3_000_000)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            let events = seqs(&opened.store);
            assert_eq!(events, (1..=180).collect::<Vec<_>>(), "{name}");
            use_it(&opened, &name);
            reads_whole(&opened, -2, &name);
            if damaged == "2026-03-12" {
                // The flush above added one heartbeat of device 3.
                let yesterday = Day::of(at(-DAY)).unwrap();
                assert_eq!(opened.store.heartbeats(id(3), yesterday).unwrap().len(), 31);
            }
            drop(opened);
            open(&path, at(3_700_000));
            fs::remove_dir_all(&path).unwrap();
        });
    }
}

#[test]
fn a_file_in_place_of_a_folder_is_moved_aside() {
    for part in ["state", "raw"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        sound_store(&path);
        fs::remove_dir_all(path.join(part)).unwrap();
        fs::write(path.join(part), "x").unwrap();
        let opened = open(&path, at(3_000_000));
        assert!(opened.mended[0].contains("moved to"), "{:?}", opened.mended);
        use_it(&opened, part);
        drop(opened);
        assert_eq!(open(&path, at(3_700_000)).mended, [""; 0], "{part}");
    }
}

#[test]
fn a_day_of_which_nothing_can_be_read_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    sound_store(&path);
    for file in files_of(&path.join("raw/2026-03-12")) {
        if file.ends_with("db") {
            let length = fs::metadata(&file).unwrap().len();
            fs::write(&file, vec![0; usize::try_from(length).unwrap()]).unwrap();
        } else if file.file_name().unwrap() != "WRITTEN" {
            fs::remove_file(&file).unwrap();
        }
    }
    let opened = open(&path, at(3_000_000));
    let told = opened.mended.concat();
    assert!(told.contains("raw of 2026-03-12 is damaged"), "{told}");
    use_it(&opened, "a day of zeroes");
    drop(opened);
    assert_eq!(open(&path, at(3_700_000)).mended, [""; 0]);
}

/// What can be done to the folder of an open store without its noticing.
#[test]
fn a_store_removed_while_it_runs_is_made_again_and_says_so() {
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 5] = [
        ("all", |path| fs::remove_dir_all(path).unwrap()),
        ("moved", |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
        }),
        ("state", |path| {
            fs::remove_dir_all(path.join("state")).unwrap();
        }),
        ("raw", |path| fs::remove_dir_all(path.join("raw")).unwrap()),
        ("marks", |path| {
            fs::remove_file(path.join("FORMAT")).unwrap();
            fs::remove_file(path.join("LOCK")).unwrap();
        }),
    ];
    for (what, deed) in deeds {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        sound_store(&path);
        let opened = open(&path, at(3_000_000));
        use_it(&opened, what);
        let newest = opened.store.events(None, None, 1).unwrap()[0].seq;
        deed(&path);
        use_it(&opened, what);
        let mended = opened.store.take_mended().concat();
        assert_eq!(mended.contains("was removed"), what != "marks", "{mended}");
        let after = opened.store.events(None, None, 1).unwrap()[0].clone();
        assert!(after.seq > newest, "{what}: a number was given twice");
        if what == "marks" {
            let second = try_open(&path, at(3_000_000));
            assert!(matches!(second, Err(OpenError::Locked { .. })), "{what}");
        }
        drop(opened);
        let opened = open(&path, at(3_700_000));
        assert_eq!(opened.mended, [""; 0], "{what}");
        assert_eq!(
            opened.store.events(None, None, 1).unwrap()[0],
            after,
            "{what}"
        );
    }
}

#[test]
fn of_many_that_start_at_once_one_makes_the_store_and_the_rest_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let stores: Vec<PathBuf> = (0..8).map(|n| folder.path().join(n.to_string())).collect();
    let start = Barrier::new(stores.len() * 4);
    let start = &start;
    thread::scope(|scope| {
        let spawn = |path| {
            let one = move |()| {
                scope.spawn(move || {
                    start.wait();
                    try_open(path, at(0))
                })
            };
            [(); 4].map(one)
        };
        let all: Vec<_> = stores.iter().map(|path| spawn(path.as_path())).collect();
        for of_one_store in all {
            let opened = of_one_store.map(|one| one.join().unwrap());
            assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1);
            for loser in opened.iter().filter_map(|opened| opened.as_ref().err()) {
                assert!(matches!(loser, OpenError::Locked { .. }), "{loser:?}");
            }
        }
    });
}

/// Overwrites a stretch of the log of an open database, in place.
fn damage_in_place(folder: &Path, dice: &mut Dice) {
    let path = folder.join("db");
    let bytes = fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
    let from = dice.below(used);
    let noise: Vec<u8> = (0..=dice.below(16_384))
        .map(|_| u8::try_from(dice.below(256)).unwrap())
        .collect();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &noise, u64::try_from(from).unwrap()).unwrap();
}

/// `log_id` and `seq` as they stand in an event.
fn identity(json: &str) -> String {
    let (_, rest) = json.split_once("\"log_id\":").unwrap();
    rest.split_once(",\"prev_seq\"").unwrap().0.to_owned()
}

#[test]
fn a_store_damaged_while_it_runs_recovers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let sound = folder.path().join("sound");
    sound_store(&sound);
    for seed in seeds() {
        let path = folder.path().join(format!("running-{seed}"));
        copy_folder(&sound, &path);
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let name = format!("SEED={seed}");
        within_limit(&name.clone(), move || {
            let opened = open(&path, at(3_000_000));
            let store = &opened.store;
            let today = Day::of(at(0)).unwrap();
            let mut told = BTreeSet::new();
            for round in 0..60 {
                if round % 10 == 3 {
                    damage_in_place(&path.join("state"), &mut dice);
                    damage_in_place(&path.join("raw/2026-03-12"), &mut dice);
                }
                let millis = 3_000_000 + round * 1_000;
                let samples: Vec<_> = (0..DEVICES).map(|n| reply(n, millis)).collect();
                store.push_raw(&samples);
                drop(store.flush_raw(at(millis)));
                let n = usize::try_from(round).unwrap() % DEVICES;
                let committed = store.commit(&[turn(n, Status::Online, millis)], at(millis));
                if let (Ok(seqs), Ok(events)) = (committed, store.events(None, None, 1)) {
                    assert_eq!(events[0].seq, seqs[0], "{name}");
                    let identity = identity(&events[0].json);
                    assert!(told.insert(identity.clone()), "{name}: {identity} again");
                }
                drop(store.heartbeats(id(n), today));
                drop(store.events(None, None, 100));
                drop(store.checkpoint(&opened.standings, at(millis)));
            }
            // Whatever was lost, it works again.
            use_it(&opened, &name);
            assert_eq!(store.figures().open_samples, 0, "{name}");
            drop(opened);
            use_it(&open(&path, at(3_700_000)), &name);
            fs::remove_dir_all(&path).unwrap();
        });
    }
}
