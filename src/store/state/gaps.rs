//! What is given up of what waits for the uplink: the oldest where too much waits,
//! and what the broker does not take.
//!
//! # Invariants
//!
//! - What was handed out to be sent is not passed over, and a gap that was handed out
//!   does not change: no number is sent with two contents.
//! - Entries stay in the log; only the uplink passes them over.

use std::ops::ControlFlow;

use sled::Transactional as _;
use sled::transaction::{
    ConflictableTransactionError, TransactionalTree, UnabortableTransactionError,
};

use super::outbox::gap_envelope;
use super::walk::{Item, Walked};
use super::{StateDatabase, UPLINK, fault_of, seq_of};
use crate::domain::event::{Event, Failure, FailureCode, News, Stage};
use crate::domain::instant::Wall;
use crate::domain::outbox::{Class, Load};
use crate::domain::size::Bytes;
use crate::store::database::{self, Fault};
use crate::store::step::{Aside, Voice, bytes_of};
use crate::wire::record::logged;
use crate::wire::record::uplink::{DeadLetter, Gap};

/// Events passed over in one transaction at most.
const PASSED_MAX: u64 = 512;

/// Messages kept aside; the oldest make room.
const DEAD_MAX: usize = 1_000;

/// Characters of a broker's reason that are kept: its words are not ours.
const REASON_CHARS_MAX: usize = 160;

/// What is passed over in one step.
struct Pass {
    class: Class,
    bytes_wanted: u64,
    now: Wall,
    passed: Load,
    /// The last one that was passed over.
    last: u64,
    /// The gap that grows.
    run: Option<Run>,
    /// The gap just before, which may grow.
    left: Option<(u64, Gap)>,
    gaps: Vec<(u64, Gap)>,
    replaced: Vec<u64>,
}

/// A gap that grows.
struct Run {
    to: u64,
    gap: Gap,
    /// Whether a gap is kept under its last number already.
    is_kept: bool,
}

impl StateDatabase {
    /// Passes over some of the oldest events of a class, of about `bytes_wanted`,
    /// after number `spared` and below `end`; tells how many, and whether there are
    /// no more of them.
    pub(in crate::store) fn pass_over(
        &mut self,
        (class, bytes_wanted): (Class, u64),
        (spared, end): (u64, u64),
        now: Wall,
    ) -> Result<(u64, bool), Fault> {
        let floor = spared.max(self.told_to).max(self.uplink.cursor);
        let hint = self.hints.of_class.get(class.index());
        let (begin, looked_to) = hint.copied().unwrap_or_default();
        let (begin, after) = if begin <= floor {
            (begin, floor.max(looked_to))
        } else {
            (floor, floor)
        };
        let mut pass = Pass {
            class,
            bytes_wanted,
            now,
            passed: Load::default(),
            last: after,
            run: None,
            left: None,
            gaps: Vec::new(),
            replaced: Vec::new(),
        };
        let walked = self.walk(after, end, &mut |item| Ok(pass.take(item)))?;
        pass.end_run();
        let Pass {
            passed,
            last,
            gaps,
            replaced,
            ..
        } = pass;
        if passed.events > 0 {
            let mut uplink = self.uplink.clone();
            uplink.take_out(class, passed);
            uplink.passed_over = uplink.passed_over.saturating_add(passed.events);
            self.write_uplink(uplink, &gaps, &replaced)?;
            self.forget_first();
            self.sweep_again_from(gaps.first().map_or(after, |(_, gap)| gap.from));
        }
        let looked_to = match walked {
            Walked::ToTheEnd => end.saturating_sub(1).max(after),
            Walked::UpTo(reached) => reached,
            Walked::Enough => last,
        };
        if let Some(hint) = self.hints.of_class.get_mut(class.index()) {
            *hint = (begin, looked_to);
        }
        Ok((passed.events, walked == Walked::ToTheEnd))
    }

    /// What it takes to keep an event aside, and the failure to tell of it, if there
    /// is to be one; `None`: it does not wait.
    pub(in crate::store) fn aside(
        &self,
        seq: u64,
        (reason, now): (&str, Wall),
        voice: &Voice,
    ) -> Result<Option<(Aside, Option<Event>)>, Fault> {
        let mut found = None;
        if seq > self.uplink.cursor {
            self.walk(seq - 1, seq + 1, &mut |item| {
                if let Item::Entry(_, entry) = item {
                    found = Some((entry.kind, entry.json.to_owned()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let Some((kind, json)) = found else {
            return Ok(None);
        };
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let failure = |code, message| Failure {
            stage: Stage::Uplink,
            code,
            message,
            retryable: false,
            failed_at: now,
        };
        let mut gap = Gap {
            from: seq,
            previous: logged::prev_seq(&json),
            events: 1,
            at: now,
            log_id: logged::log_id(&json).unwrap_or_default().to_owned(),
            told: None,
        };
        let size = Bytes(bytes_of(&json));
        let message = format!(
            "not sent, because the broker does not take it ({reason}): event {seq}, of {size}; it \
             is kept aside in the store"
        );
        let code = FailureCode::OutboxGap { from: seq, to: seq };
        gap.told = Some(gap_envelope(failure(code, message), seq, &gap, voice));
        // One such message about another would go on for ever where the broker
        // takes none.
        let telling = (!logged::is_refusal(kind, &json)).then(|| Event {
            device: logged::device(&json),
            produced_at: now,
            process_ms: 0,
            news: News::Failed(failure(
                FailureCode::MessageRefused,
                format!(
                    "the broker does not take event {seq}, of {size}: {reason}; it is kept aside \
                     and what comes after it goes on. Raise the broker's limit on the size of a \
                     message, or allow this client to publish to the topic"
                ),
            )),
        });
        let aside = Aside {
            seq,
            gap,
            letter: DeadLetter {
                at: now,
                reason,
                kind,
                json,
            },
            dropped: self.letters_beyond(DEAD_MAX - 1)?,
        };
        Ok(Some((aside, telling)))
    }

    /// Writes an event aside of which nothing more is told, without flushing it.
    pub(in crate::store) fn write_aside(&mut self, aside: &Aside) -> Result<(), Fault> {
        let mut uplink = self.uplink.clone();
        let (class, load) = aside.load();
        uplink.take_out(class, load);
        uplink.dead_letters += 1;
        let bytes = uplink.to_bytes();
        database::guarded(|| {
            let trees = (&self.gaps, &self.dead, &self.meta);
            let result = trees.transaction(|(gaps, dead, meta)| {
                aside.write(gaps, dead)?;
                meta.insert(UPLINK, bytes.as_slice())?;
                Ok::<(), ConflictableTransactionError<()>>(())
            });
            result.map_err(|error| fault_of(&error))
        })?;
        self.uplink = uplink;
        self.forget_first();
        Ok(())
    }

    /// The newest messages kept aside, at most `limit`, with their numbers, newest
    /// first.
    pub(in crate::store) fn dead_letters(
        &self,
        limit: usize,
    ) -> Result<Vec<(u64, DeadLetter)>, Fault> {
        database::guarded(|| {
            let newest = self.dead.iter().rev().take(limit);
            newest
                .map(|entry| {
                    let (key, value) = entry?;
                    Ok((seq_of(&key)?, DeadLetter::from_bytes(&value)?))
                })
                .collect()
        })
    }

    /// The numbers of all kept messages but the newest `count`.
    fn letters_beyond(&self, count: usize) -> Result<Vec<u64>, Fault> {
        database::guarded(|| {
            let older = self.dead.iter().keys().rev().skip(count);
            older.map(|key| seq_of(&key?)).collect()
        })
    }
}

impl Aside {
    pub(super) fn write(
        &self,
        gaps: &TransactionalTree,
        dead: &TransactionalTree,
    ) -> Result<(), UnabortableTransactionError> {
        gaps.insert(&self.seq.to_be_bytes(), self.gap.to_bytes())?;
        dead.insert(&self.seq.to_be_bytes(), self.letter.to_bytes())?;
        for dropped in &self.dropped {
            dead.remove(&dropped.to_be_bytes())?;
        }
        Ok(())
    }
}

impl Pass {
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        let has_enough = self.passed.bytes >= self.bytes_wanted || self.passed.events >= PASSED_MAX;
        match item {
            Item::Gap(to, gap) if gap.told.is_none() => {
                // Met even when there is enough: a gap that touches becomes one.
                self.meet(to, gap);
            }
            Item::Gap(..) => self.end_run(),
            Item::Entry(..) if has_enough => return ControlFlow::Break(()),
            Item::Entry(seq, entry) if entry.kind.class() == self.class => {
                self.pass(seq, entry.json);
            }
            Item::Entry(..) => {}
        }
        ControlFlow::Continue(())
    }

    fn meet(&mut self, to: u64, gap: Gap) {
        if let Some(run) = &mut self.run
            && gap.previous == Some(run.to)
        {
            run.gap.events += gap.events;
            // The run goes on under a later number: what it was kept under goes.
            self.replaced.extend(run.is_kept.then_some(run.to));
            (run.to, run.is_kept) = (to, true);
            return;
        }
        self.end_run();
        self.left = Some((to, gap));
    }

    fn pass(&mut self, seq: u64, json: &str) {
        self.passed.events += 1;
        self.passed.bytes += bytes_of(json);
        self.last = seq;
        let previous = logged::prev_seq(json);
        if let Some(run) = &mut self.run
            && previous == Some(run.to)
        {
            run.gap.events += 1;
            run.gap.at = self.now;
            self.replaced.extend(run.is_kept.then_some(run.to));
            (run.to, run.is_kept) = (seq, false);
            return;
        }
        self.end_run();
        let left = self.left.take_if(|(to, _)| previous == Some(*to));
        let gap = if let Some((to, gap)) = left {
            self.replaced.push(to);
            Gap {
                events: gap.events + 1,
                at: self.now,
                ..gap
            }
        } else {
            Gap {
                from: seq,
                previous,
                events: 1,
                at: self.now,
                log_id: logged::log_id(json).unwrap_or_default().to_owned(),
                told: None,
            }
        };
        self.run = Some(Run {
            to: seq,
            gap,
            is_kept: false,
        });
    }

    fn end_run(&mut self) {
        let run = self.run.take();
        self.gaps.extend(run.map(|run| (run.to, run.gap)));
    }
}
