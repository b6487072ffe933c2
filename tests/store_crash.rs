//! Two processes on one store, and processes that are killed.
//!
//! The other process is this test binary again, told by the environment to play
//! `child_process`.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sitebeat::domain::daily::{Figures, SiteSummary, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::event::{Change, News};
use sitebeat::domain::status::Status;
use sitebeat::store::outbox::UplinkMarks;
use sitebeat::store::{OpenError, Opened};
use store_kit::{at, contents, event, id, notice, open, reply, seqs, try_open, turn};

const STORE: &str = "SITEBEAT_TEST_STORE";
const PART: &str = "SITEBEAT_TEST_PART";
const DEVICES: usize = 30;

/// A child that is killed with its test.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    heard: Vec<String>,
}

impl Other {
    fn play(part: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "child_process"])
            .env(STORE, path)
            .env(PART, part)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut other = Self {
            child,
            lines,
            heard: Vec::new(),
        };
        other.wait_for("open");
        other
    }

    fn wait_for(&mut self, word: &str) {
        for line in self.lines.by_ref() {
            self.heard.push(line.unwrap());
            if self.heard.last().unwrap().starts_with(word) {
                return;
            }
        }
        panic!("the child ended early");
    }

    /// `SIGKILL`; tells all that it said.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let rest = self.lines.by_ref().map_while(Result::ok);
        self.heard.extend(rest);
        self.heard
    }
}

/// Not a test of its own: what the other process does.
#[test]
fn child_process() {
    let Some(path) = std::env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let part = std::env::var(PART).unwrap();
    let opened = open(&path, at(0));
    say("open");
    match part.as_str() {
        "work" => work(&opened),
        "forward" => forward(&opened),
        "let go after 300 ms" => {
            std::thread::sleep(Duration::from_millis(300));
            opened.store.close(at(1)).unwrap();
            say("closed");
            wait_for_the_end();
        }
        _ => wait_for_the_end(),
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn say(line: &str) {
    // The harness has written the test's name without a line end.
    println!("\n{line}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_the_end() {
    // Until killed; the parent's end closes our standard input.
    drop(std::io::stdin().lock().lines().next());
    std::thread::sleep(Duration::from_mins(1));
}

/// Commits and flushes as fast as it can, and says what was acknowledged.
fn work(opened: &Opened) {
    let store = &opened.store;
    let base = i64::from(opened.boot) * 1_000_000;
    for round in 0..100_000 {
        let now = base + round * 10;
        let samples: Vec<_> = (0..DEVICES).map(|n| reply(n, now)).collect();
        store.push_raw(&samples);
        let n = usize::try_from(round).unwrap() % DEVICES;
        let changes = [
            turn(n, Status::Online, now),
            turn(n + 100, Status::Offline, now),
        ];
        let seqs = store.commit(&changes, at(now)).unwrap();
        say(&format!("committed {} {} {now}", seqs[0], seqs[1]));
        if round % 3 == 0 {
            store.push_notices(vec![notice(n, now)]);
            store.flush_raw(at(now)).unwrap();
            say(&format!("flushed {now}"));
        }
        if round % 4 == 1 {
            let rows: Vec<_> = (0..DEVICES).map(|n| row(n, now)).collect();
            store.upsert_summaries(day(), &rows).unwrap();
            store.announce(&[announcement(now)], at(now)).unwrap();
            say(&format!("summed {now}"));
        }
        if round % 20 == 7 {
            store.checkpoint(&opened.standings, at(now)).unwrap();
        }
    }
}

/// Logs, sends, acknowledges, gives up and removes as fast as it can, and says what
/// it sent.
fn forward(opened: &Opened) {
    let store = &opened.store;
    store.hold_for_uplink(true);
    let base = i64::from(opened.boot) * 1_000_000;
    let mut position = store.outbox().cursor;
    say(&format!("resumed {position}"));
    for round in 0..100_000 {
        let now = base + round * 10;
        let (n, now) = (usize::try_from(round).unwrap() % DEVICES, now);
        let failed = Change::Notice(notice(n, now));
        let changes = [failed.clone(), turn(n, Status::Online, now), failed];
        store.commit(&changes, at(now)).unwrap();
        for parcel in store
            .read_outbox(position, (3, usize::MAX), at(now))
            .unwrap()
        {
            say(&format!("sent {} {}", parcel.seq, parcel.json));
            position = parcel.seq;
        }
        match round % 7 {
            0 | 3 => store.move_cursor(position, at(now)).unwrap(),
            1 => store.keep_uplink(&UplinkMarks::default(), at(now)).unwrap(),
            2 | 5 => drop(store.pass_over(4_000, position, at(now)).unwrap()),
            4 => store.prune(day(), 0, at(now), at(now)).unwrap(),
            _ => {}
        }
        say("turned");
    }
}

fn day() -> Day {
    Day::of(at(0)).unwrap()
}

/// Fuller, the later it is.
fn row(n: usize, now: i64) -> Summary {
    Summary {
        day: day(),
        device: id(n),
        figures: Figures {
            replied: u32::try_from(now).unwrap(),
            ..Figures::default()
        },
        calc_version: 1,
        created_at: at(now),
        updated_at: at(now),
    }
}

fn announcement(now: i64) -> Change {
    let site = SiteSummary::of(day(), [&row(0, now)]);
    Change::Announcement {
        day: day(),
        content: now.cast_unsigned(),
        event: event(None, now, News::SiteSummarised(Box::new(site))),
    }
}

#[test]
fn thirty_kills_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut committed: BTreeMap<u64, i64> = BTreeMap::new();
    let mut flushed_to: Vec<(i64, i64)> = Vec::new();
    let mut summed_to = 0;
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..30_u32 {
        let mut other = Other::play("work", &path);
        // Some rounds in, at an instant of the dice's choice.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        for _ in 0..dice % 12 {
            other.wait_for("committed");
        }
        std::thread::sleep(Duration::from_micros(dice % 5_000));
        let heard = other.kill();
        let base = i64::from(round + 1) * 1_000_000;
        let mut last_flush = None;
        for line in &heard {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["committed", first, second, now] => {
                    committed.insert(first.parse().unwrap(), now.parse().unwrap());
                    committed.insert(second.parse().unwrap(), now.parse().unwrap());
                }
                ["flushed", now] => last_flush = Some(now.parse().unwrap()),
                ["summed", now] => summed_to = now.parse().unwrap(),
                _ => {}
            }
        }
        flushed_to.extend(last_flush.map(|last| (base, last)));
    }
    let opened = open(&path, at(100_000_000));
    check(&opened, &committed, &flushed_to);
    assert!(summed_to > 0, "too little was summed to tell");
    let mut rows = Vec::new();
    let each = &mut |row: &Summary| {
        rows.push(*row);
        true
    };
    opened.store.summaries(day(), day(), None, each).unwrap();
    assert_eq!(rows.len(), DEVICES);
    for row in &rows {
        assert_eq!(row.figures, rows[0].figures, "a day changes as a whole");
        assert!(i64::from(row.figures.replied) >= summed_to);
    }
    assert_eq!(opened.store.final_days().unwrap(), [day()]);
}

fn check(opened: &Opened, committed: &BTreeMap<u64, i64>, flushed_to: &[(i64, i64)]) {
    assert_eq!(opened.mended, [""; 0]);
    assert_eq!(opened.boot, 31);
    assert!(committed.len() > 60, "too little was committed to tell");
    let numbers = seqs(&opened.store);
    let last = u64::try_from(numbers.len()).unwrap();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "a gap or a repeat");
    let events = opened.store.events(None, None, usize::MAX).unwrap();
    for event in events {
        if let Some(now) = committed.get(&event.seq) {
            let time = at(*now).to_string();
            assert!(
                event.json.contains(&time),
                "{} at {time}: {}",
                event.seq,
                event.json
            );
        }
    }
    let newest = committed.keys().next_back().copied();
    assert!(
        newest <= Some(last),
        "{newest:?} was acknowledged, {last} is the last"
    );
    // Every device whose change was acknowledged stands in the liveness tree.
    assert!(opened.standings.iter().any(|one| one.device == id(100)));
    let day = Day::of(at(0)).unwrap();
    for n in 0..DEVICES {
        let found = opened.store.heartbeats(id(n), day).unwrap();
        for &(base, last) in flushed_to {
            let kept = found
                .iter()
                .filter(|sample| sample.at >= at(base) && sample.at <= at(last));
            let expected = usize::try_from((last - base) / 10 + 1).unwrap();
            assert_eq!(kept.count(), expected, "device {n}, from {base} to {last}");
        }
    }
}

#[test]
fn thirty_kills_send_no_number_with_two_contents_and_leave_out_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut sent: BTreeMap<u64, Value> = BTreeMap::new();
    let mut take_in = |seq: u64, json: Value, after: u64| {
        let previous = json["meta"]["prev_seq"].as_u64().unwrap_or(0);
        assert_eq!(previous, after, "a hole before {json}");
        if let Some(before) = sent.insert(seq, json.clone()) {
            assert_eq!(before, json, "a number with two contents");
        }
    };
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..30 {
        let mut other = Other::play("forward", &path);
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        for _ in 0..dice % 16 {
            other.wait_for("turned");
        }
        std::thread::sleep(Duration::from_micros(dice % 5_000));
        let mut position = 0;
        for line in other.kill() {
            if let Some(cursor) = line.strip_prefix("resumed ") {
                position = cursor.parse().unwrap();
            }
            let parcel = line
                .strip_prefix("sent ")
                .and_then(|rest| rest.split_once(' '));
            // The last line may have been cut by the kill.
            let Some((seq, Ok(json))) = parcel.map(|(seq, json)| (seq, json.parse())) else {
                continue;
            };
            let seq = seq.parse().unwrap();
            take_in(seq, json, position);
            position = seq;
        }
    }
    let opened = open(&path, at(100_000_000));
    assert_eq!((opened.boot, opened.mended), (31, Vec::new()));
    let store = &opened.store;
    let outbox = store.outbox();
    let mut position = outbox.cursor;
    for parcel in store
        .read_outbox(position, (usize::MAX, usize::MAX), at(0))
        .unwrap()
    {
        take_in(parcel.seq, parcel.json.parse().unwrap(), position);
        position = parcel.seq;
    }
    assert_eq!(position, outbox.last);
    assert!(
        outbox.last > 300 && outbox.passed_over > 20,
        "too little happened to tell"
    );
    let mut next = 1;
    for (seq, json) in &sent {
        let from = json["error"]["from"].as_u64().unwrap_or(*seq);
        assert_eq!(from, next, "a hole or a repeat before {json}");
        next = seq + 1;
    }
    assert_eq!(next, outbox.last + 1);
}

#[test]
fn a_second_process_is_refused_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let other = Other::play("wait", &path);
    let before = contents(&path);
    let refused = try_open(&path, at(0)).unwrap_err();
    assert!(matches!(&refused, OpenError::Locked { path: named } if *named == path));
    assert!(refused.to_string().contains("already running"), "{refused}");
    assert_eq!(contents(&path), before);
    other.kill();
    // No stale lock after a kill.
    assert_eq!(open(&path, at(1)).boot, 2);
}

#[test]
fn a_store_that_is_about_to_be_let_go_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let other = Other::play("let go after 300 ms", &path);
    assert_eq!(open(&path, at(1)).boot, 2);
    other.kill();
}
