//! Random deeds on the outbox and on a plain list of it, in lockstep.
//!
//! The list knows every event that was committed, everything that was handed out to
//! be sent, and nothing of how the store does it. A kill is a copy of the folder,
//! opened elsewhere.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;
use sitebeat::domain::daily::SiteSummary;
use sitebeat::domain::day::Day;
use sitebeat::domain::event::{Change, Failure, FailureCode, News, Stage};
use sitebeat::domain::outbox::{Class, Load};
use sitebeat::domain::status::Status;
use sitebeat::store::outbox::{Parcel, UplinkMarks};
use sitebeat::store::{Opened, Store};
use store_kit::{at, copy_folder, event, notice, open, removal, turn};
use tempfile::TempDir;

/// Between two deeds.
const STEP: i64 = 1_000;
/// Numbers that a start takes for handed out though they were not.
const RESERVED: u64 = 64;

#[derive(Clone, Debug)]
enum Deed {
    Commit(Vec<u8>),
    Miss(bool),
    Hold(bool),
    Read(usize, usize),
    Acknowledge(usize),
    Keep,
    Reconnect,
    PassOver(u64),
    SetAside,
    Prune(i64, i64),
    Close,
    Kill,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => proptest::collection::vec(0..5_u8, 1..12).prop_map(Deed::Commit),
        1 => any::<bool>().prop_map(Deed::Miss),
        1 => any::<bool>().prop_map(Deed::Hold),
        6 => (1..12_usize, 1..9_000_usize).prop_map(|(limit, bytes)| Deed::Read(limit, bytes)),
        3 => (1..6_usize).prop_map(Deed::Acknowledge),
        1 => Just(Deed::Keep),
        1 => Just(Deed::Reconnect),
        3 => (0..20_000_u64).prop_map(Deed::PassOver),
        1 => Just(Deed::SetAside),
        2 => (0..40_i64, 0..40_i64).prop_map(|(all, beats)| Deed::Prune(all, beats)),
        1 => Just(Deed::Close),
        2 => Just(Deed::Kill),
    ]
}

fn change(kind: u8, now: i64) -> Change {
    let failed = |message: &str| {
        News::Failed(Failure {
            stage: Stage::Store,
            code: FailureCode::RawLost,
            message: message.into(),
            retryable: false,
            failed_at: at(now),
        })
    };
    match kind {
        0 => turn(1, Status::Online, now),
        1 => removal(2, now),
        2 => Change::Notice(notice(3, now)),
        3 => Change::Notice(event(None, now, failed("the disk is \"full\""))),
        _ => {
            let day = Day::of(at(now)).unwrap();
            let site = SiteSummary::of(day, []);
            Change::Notice(event(None, now, News::SiteSummarised(Box::new(site))))
        }
    }
}

/// The store under test, and what a plain list knows of it.
struct Bench {
    folder: TempDir,
    path: PathBuf,
    opened: Opened,
    lives: u32,
    now: i64,
    addresses_misses: bool,
    holds: bool,
    next_seq: u64,
    /// What is addressed to MQTT.
    addressed: BTreeSet<u64>,
    /// What was handed out under each number.
    handed_out: BTreeMap<u64, String>,
    /// The session: the last parcel that was read.
    position: u64,
    cursor: u64,
    told_to: u64,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life-1");
        let opened = open(&path, at(0));
        Self {
            folder,
            path,
            opened,
            lives: 1,
            now: 0,
            addresses_misses: true,
            holds: false,
            next_seq: 1,
            addressed: BTreeSet::new(),
            handed_out: BTreeMap::new(),
            position: 0,
            cursor: 0,
            told_to: 0,
        }
    }

    fn store(&self) -> &Store {
        &self.opened.store
    }

    /// What was read in this session and is not acknowledged.
    fn under_way(&self) -> impl Iterator<Item = u64> {
        let read = self.handed_out.range(self.cursor + 1..);
        let numbers = read.map(|(seq, _)| *seq);
        numbers.take_while(|seq| *seq <= self.position)
    }

    fn act(&mut self, deed: &Deed) {
        self.now += STEP;
        let now = at(self.now);
        match deed {
            Deed::Commit(kinds) => self.commit(kinds),
            Deed::Miss(is_on) => {
                self.addresses_misses = *is_on;
                self.store().address_misses(*is_on);
            }
            Deed::Hold(is_on) => {
                self.holds = *is_on;
                self.store().hold_for_uplink(*is_on);
            }
            Deed::Read(limit, bytes) => self.read(*limit, *bytes),
            Deed::Acknowledge(count) => {
                let to = self.under_way().take(*count).last();
                if let Some(to) = to {
                    self.store().move_cursor(to, now).unwrap();
                    self.cursor = to;
                }
            }
            Deed::Keep => {
                let marks = UplinkMarks::default();
                self.store().keep_uplink(&marks, now).unwrap();
            }
            Deed::Reconnect => self.position = self.cursor,
            Deed::PassOver(limit) => self.pass_over(*limit),
            Deed::SetAside => self.set_aside(),
            Deed::Prune(all, beats) => self.prune(*all, *beats),
            Deed::Close => {
                self.store().close(now).unwrap();
                self.reopen();
            }
            Deed::Kill => {
                self.lives += 1;
                let copy = self.folder.path().join(format!("life-{}", self.lives));
                copy_folder(&self.path, &copy);
                self.path = copy;
                self.reopen();
            }
        }
        assert_eq!(self.store().outbox().cursor, self.cursor);
    }

    fn commit(&mut self, kinds: &[u8]) {
        let changes: Vec<_> = kinds.iter().map(|&kind| change(kind, self.now)).collect();
        let seqs = self.store().commit(&changes, at(self.now)).unwrap();
        for (seq, kind) in seqs.into_iter().zip(kinds) {
            assert_eq!(seq, self.next_seq);
            self.next_seq += 1;
            if *kind != 2 || self.addresses_misses {
                self.addressed.insert(seq);
            }
        }
        let last = self.addressed.last().copied().unwrap_or(0);
        assert_eq!(self.store().outbox().last, last);
    }

    fn read(&mut self, limit: usize, bytes: usize) {
        let read = self
            .store()
            .read_outbox(self.position, (limit, bytes), at(self.now));
        let parcels = read.unwrap();
        assert!(parcels.len() <= limit);
        for parcel in &parcels {
            check_chain(parcel, self.position);
            let before = self.handed_out.insert(parcel.seq, parcel.json.clone());
            if let Some(before) = before {
                assert_eq!(before, parcel.json, "a number with two contents");
            }
            self.position = parcel.seq;
        }
        self.told_to = self.told_to.max(self.position);
        let last = self.addressed.last().copied().unwrap_or(0);
        assert!(
            !parcels.is_empty() || self.position >= last,
            "something was left"
        );
    }

    fn pass_over(&mut self, limit: u64) {
        let before = self.store().outbox();
        let passed = self
            .store()
            .pass_over(limit, self.told_to, at(self.now))
            .unwrap();
        let after = self.store().outbox();
        assert_eq!(after.passed_over, before.passed_over + passed);
        let (was, is) = (before.backlog.total(), after.backlog.total());
        assert_eq!(was.events, is.events + passed);
        if was.bytes <= limit {
            assert_eq!(passed, 0, "nothing had to go");
        }
        if is.bytes > limit {
            // All that still waits may have been sent.
            let spared = self
                .addressed
                .range(self.cursor + 1..=self.told_to + RESERVED);
            assert!(is.events <= spared.count() as u64);
        }
    }

    /// The broker refuses the first event that is under way.
    fn set_aside(&mut self) {
        let Some(seq) = self.under_way().next() else {
            return;
        };
        let before = self.store().outbox();
        self.store()
            .set_aside(seq, "too large", at(self.now))
            .unwrap();
        let after = self.store().outbox();
        if after.dead_letters == before.dead_letters {
            assert!(is_gap(&self.handed_out[&seq]), "an event stays where it is");
            return;
        }
        self.handed_out.remove(&seq);
        if after.last > before.last {
            assert_eq!(after.last, self.next_seq);
            self.addressed.insert(self.next_seq);
            self.next_seq += 1;
        }
        self.position = self.cursor;
    }

    fn prune(&mut self, all: i64, beats: i64) {
        let before = self.store().outbox().backlog;
        let old = |steps: i64| at(self.now - steps * STEP);
        let day = Day::of(at(0)).unwrap();
        self.store().prune(day, 0, old(all), old(beats)).unwrap();
        if self.holds {
            assert_eq!(self.store().outbox().backlog, before);
        }
    }

    fn reopen(&mut self) {
        let before = self.store().outbox();
        self.opened = open(&self.path, at(self.now));
        assert_eq!(self.opened.mended, [""; 0]);
        let after = self.store().outbox();
        assert!(after.cursor <= self.cursor, "the cursor went ahead");
        if after.cursor == before.cursor {
            assert_eq!(after.backlog, before.backlog);
        }
        (self.cursor, self.position) = (after.cursor, after.cursor);
        self.store().address_misses(self.addresses_misses);
        self.store().hold_for_uplink(self.holds);
    }

    /// All that waits, read from a copy, is what the totals say.
    fn check_totals(&self) {
        let copy = self.folder.path().join("copy");
        copy_folder(&self.path, &copy);
        let opened = open(&copy, at(self.now));
        let outbox = opened.store.outbox();
        let read = opened
            .store
            .read_outbox(outbox.cursor, (usize::MAX, usize::MAX), at(self.now));
        let mut loads = [Load::default(); 4];
        for parcel in read.unwrap() {
            if !is_gap(&parcel.json) {
                let load = &mut loads[parcel.class.index()];
                load.events += 1;
                load.bytes += parcel.json.len() as u64;
            }
        }
        assert_eq!(outbox.backlog.loads, loads);
        drop(opened);
        std::fs::remove_dir_all(copy).unwrap();
    }

    /// Every event that is addressed was handed out itself or is in exactly one gap.
    fn check_whole(&mut self) {
        while self.position < self.addressed.last().copied().unwrap_or(0) {
            self.read(7, 5_000);
        }
        let mut ways: BTreeMap<u64, u32> = BTreeMap::new();
        for (seq, json) in &self.handed_out {
            let json: Value = serde_json::from_str(json).unwrap();
            let from = json["error"]["from"].as_u64().unwrap_or(*seq);
            for missing in self.addressed.range(from..=*seq) {
                *ways.entry(*missing).or_default() += 1;
            }
        }
        for seq in &self.addressed {
            assert_eq!(ways.get(seq), Some(&1), "event {seq}");
        }
    }
}

fn is_gap(json: &str) -> bool {
    json.contains("\"error_code\":\"OUTBOX_GAP\"")
}

fn check_chain(parcel: &Parcel, after: u64) {
    let json: Value = serde_json::from_str(&parcel.json).unwrap();
    assert_eq!(json["meta"]["seq"], parcel.seq);
    let previous = json["meta"]["prev_seq"].as_u64().unwrap_or(0);
    assert_eq!(previous, after, "the chain has a hole: {json}");
    if is_gap(&parcel.json) {
        assert_eq!(parcel.class, Class::Failed);
        assert_eq!(json["error"]["to"], parcel.seq);
        let from = json["error"]["from"].as_u64().unwrap();
        assert!(from > after && from <= parcel.seq, "{json}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_outbox_does_what_a_plain_list_does(
        deeds in proptest::collection::vec(deed(), 1..60),
    ) {
        let mut bench = Bench::new();
        for deed in &deeds {
            bench.act(deed);
        }
        bench.check_totals();
        bench.check_whole();
        bench.act(&Deed::Kill);
        bench.check_whole();
        bench.check_totals();
    }
}
