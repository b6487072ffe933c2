//! What waits in the event log for the uplink: how much, and its reading.

use std::ops::ControlFlow;

use sled::Transactional as _;
use sled::transaction::ConflictableTransactionError;

use super::walk::{Item, Walked};
use super::{StateDatabase, UPLINK, fault_of};
use crate::domain::event::{Event, Failure, FailureCode, News, Stage};
use crate::domain::instant::Wall;
use crate::domain::outbox::{Backlog, Load};
use crate::store::database::{self, Fault};
use crate::store::outbox::Parcel;
use crate::store::step::{Seat, Step, Voice, bytes_of, envelope};
use crate::wire::record::logged::{self, Kind};
use crate::wire::record::uplink::{Gap, UplinkPlace};

/// Numbers beyond those asked for that are noted as handed out: at least so many, and
/// a part of what waits, for a flush with every reading wrote 4 KB an event. After a
/// kill as many events are not passed over.
const RESERVED_MIN: u64 = 64;
const RESERVED_PART: u64 = 16;

/// What need not be looked for again; forgotten at the end of the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// Nothing waits up to this number.
    none_up_to: u64,
    /// The first that waits, and when it was produced.
    first: Option<(u64, Option<Wall>)>,
    /// By class: nothing after the first number and up to the second can be passed
    /// over.
    pub(super) of_class: [(u64, u64); 4],
    /// By rule of removal: past the cursor, nothing below this number may go.
    pub(super) swept: [u64; 2],
}

/// A reading of the outbox, slice by slice.
#[derive(Debug)]
pub(in crate::store) struct Reading {
    /// What was read.
    pub(in crate::store) parcels: Vec<Parcel>,
    /// All up to this number was looked at.
    position: u64,
    /// Number of the parcel before the next.
    last: u64,
    limit: usize,
    bytes_max: usize,
}

impl Reading {
    /// A reading from the parcel after number `after` on.
    pub(in crate::store) const fn new(after: u64, limit: usize, bytes_max: usize) -> Self {
        Self {
            parcels: Vec::new(),
            position: after,
            last: after,
            limit,
            bytes_max,
        }
    }
}

/// One slice of a reading.
struct Slice<'a> {
    base_seq: u64,
    voice: &'a Voice,
    now: Wall,
    reading: &'a mut Reading,
    bytes: usize,
    pending: Option<Pending>,
    /// Gaps that are told from now on, with their last number.
    told: Vec<(u64, Gap)>,
    /// Numbers under which they were kept before.
    replaced: Vec<u64>,
}

/// A gap that grows as long as the next one touches it.
struct Pending {
    to: u64,
    gap: Gap,
    is_passed_over: bool,
    is_outdated: bool,
}

impl StateDatabase {
    /// How far the uplink is.
    pub(in crate::store) const fn uplink(&self) -> &UplinkPlace {
        &self.uplink
    }

    /// Counts what waits, where nobody did yet or a program that knows nothing of it
    /// has logged since.
    pub(in crate::store) fn begin_uplink(&mut self) -> Result<(), Fault> {
        let is_known = database::guarded(|| Ok(self.meta.contains_key(UPLINK)?))?;
        if is_known && self.uplink.next_seq == self.place.next_seq {
            return Ok(());
        }
        let mut uplink = self.uplink.clone();
        if !is_known {
            uplink.swept_below = self.place.pruned_below;
            if database::guarded(|| Ok(self.log.is_empty()))? {
                uplink.cursor = self.place.base_seq - 1;
            }
        }
        if self.place.next_seq > self.place.base_seq.max(uplink.next_seq) {
            uplink.last = self.place.next_seq - 1;
        }
        uplink.next_seq = self.place.next_seq;
        uplink.loads = [Load::default(); 4];
        let mut walked = Walked::UpTo(uplink.cursor);
        while let Walked::UpTo(after) = walked {
            walked = self.walk(after, self.place.next_seq, &mut |item| {
                if let Item::Entry(seq, entry) = item {
                    uplink.take_in(entry.kind.class(), bytes_of(entry.json));
                    uplink.last = uplink.last.max(seq);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.write_uplink(uplink, &[], &[])?;
        self.flush()
    }

    /// How far the uplink is once these steps are written.
    pub(super) fn uplink_after(&self, steps: &[Step], next_seq: u64) -> UplinkPlace {
        let mut uplink = UplinkPlace {
            next_seq,
            ..self.uplink.clone()
        };
        for step in steps.iter().filter(|step| step.seq >= self.place.next_seq) {
            if !step.is_local {
                uplink.take_in(step.kind.class(), step.bytes());
                uplink.last = step.seq;
            }
            if let Some(aside) = &step.aside {
                let (class, load) = aside.load();
                uplink.take_out(class, load);
                uplink.dead_letters += 1;
            }
        }
        uplink
    }

    /// Moves the cursor forward, in memory; tells whether it is there yet.
    pub(in crate::store) fn move_cursor(&mut self, to: u64) -> Result<bool, Fault> {
        let to = to.min(self.place.next_seq.saturating_sub(1));
        if to <= self.uplink.cursor {
            return Ok(true);
        }
        let mut uplink = self.uplink.clone();
        let walked = self.walk(uplink.cursor, to + 1, &mut |item| {
            if let Item::Entry(_, entry) = item {
                let bytes = bytes_of(entry.json);
                uplink.take_out(entry.kind.class(), Load { events: 1, bytes });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        uplink.cursor = match walked {
            Walked::UpTo(reached) => reached.min(to),
            Walked::ToTheEnd | Walked::Enough => to,
        };
        self.uplink = uplink;
        Ok(self.uplink.cursor == to)
    }

    /// Writes how far the uplink is, with these marks, and flushes it.
    pub(in crate::store) fn keep_uplink(&mut self, uplink: UplinkPlace) -> Result<(), Fault> {
        self.write_uplink(uplink, &[], &[])?;
        self.flush()
    }

    /// What waits below number `end`, and since when as far as a short look tells.
    pub(in crate::store) fn backlog(&mut self, end: u64) -> Result<Backlog, Fault> {
        let backlog = Backlog {
            loads: self.uplink.loads,
            oldest_at: None,
        };
        if backlog.total().events == 0 {
            return Ok(backlog);
        }
        let cursor = self.uplink.cursor;
        self.hints.first = self.hints.first.filter(|(seq, _)| *seq > cursor);
        if self.hints.first.is_none() {
            let mut first = None;
            let after = cursor.max(self.hints.none_up_to);
            let walked = self.walk(after, end, &mut |item| {
                let Item::Entry(seq, entry) = item else {
                    return Ok(ControlFlow::Continue(()));
                };
                first = Some((seq, logged::produced_at(entry.json)));
                Ok(ControlFlow::Break(()))
            })?;
            self.hints.first = first;
            self.hints.none_up_to = match (first, walked) {
                (Some((seq, _)), _) => seq - 1,
                (None, Walked::UpTo(reached)) => reached,
                (None, Walked::ToTheEnd | Walked::Enough) => after,
            };
        }
        let oldest_at = self.hints.first.and_then(|(_, at)| at);
        Ok(Backlog {
            oldest_at,
            ..backlog
        })
    }

    /// Forgets which event waits first: it may wait no more.
    pub(super) const fn forget_first(&mut self) {
        self.hints.first = None;
    }

    /// Reads a slice of the outbox below number `end`; tells whether the reading is
    /// at its end. What it hands out is noted on disk first.
    pub(in crate::store) fn read_outbox(
        &mut self,
        reading: &mut Reading,
        end: u64,
        (voice, now): (&Voice, Wall),
    ) -> Result<bool, Fault> {
        let position = reading.position;
        let mut slice = Slice {
            base_seq: self.place.base_seq,
            voice,
            now,
            reading,
            bytes: 0,
            pending: None,
            told: Vec::new(),
            replaced: Vec::new(),
        };
        let walked = self.walk(position, end, &mut |item| Ok(slice.take(item)))?;
        let last = self.uplink.last;
        if walked == Walked::ToTheEnd && last < end && last >= self.place.base_seq {
            slice.expect(Some(last), &self.place.log_id);
        }
        slice.settle();
        let Slice { told, replaced, .. } = slice;
        if let Walked::UpTo(reached) = walked {
            reading.position = reached;
        }
        let told_to = self.told_to.max(reading.last);
        let mut uplink = self.uplink.clone();
        if told_to > uplink.reserved {
            let waiting: u64 = uplink.loads.iter().map(|load| load.events).sum();
            let ahead = RESERVED_MIN.max(waiting / RESERVED_PART);
            uplink.reserved = told_to.saturating_add(ahead);
        }
        if !told.is_empty() || uplink.reserved != self.uplink.reserved {
            self.write_uplink(uplink, &told, &replaced)?;
            self.flush()?;
        }
        if !reading.parcels.is_empty() {
            self.told_to = told_to;
        }
        Ok(!matches!(walked, Walked::UpTo(_)) || !reading.parcels.is_empty())
    }

    /// Writes how far the uplink is, together with gaps and without those under the
    /// numbers of `replaced`, in one transaction, without flushing it.
    pub(super) fn write_uplink(
        &mut self,
        uplink: UplinkPlace,
        gaps: &[(u64, Gap)],
        replaced: &[u64],
    ) -> Result<(), Fault> {
        let bytes = uplink.to_bytes();
        database::guarded(|| {
            let result = (&self.gaps, &self.meta).transaction(|(tree, meta)| {
                for to in replaced {
                    tree.remove(&to.to_be_bytes())?;
                }
                for (to, gap) in gaps {
                    tree.insert(&to.to_be_bytes(), gap.to_bytes())?;
                }
                meta.insert(UPLINK, bytes.as_slice())?;
                Ok::<(), ConflictableTransactionError<()>>(())
            });
            result.map_err(|error| fault_of(&error))
        })?;
        self.uplink = uplink;
        Ok(())
    }
}

impl Slice<'_> {
    fn take(&mut self, item: Item<'_>) -> ControlFlow<()> {
        if self.is_full() {
            return ControlFlow::Break(());
        }
        match item {
            Item::Entry(seq, entry) => {
                let log_id = logged::log_id(entry.json).unwrap_or_default();
                self.expect(logged::prev_seq(entry.json), log_id);
                if self.is_full() {
                    return ControlFlow::Break(());
                }
                self.settle();
                let device = logged::device(entry.json);
                self.hand_out(Parcel {
                    seq,
                    class: entry.kind.class(),
                    device,
                    is_of_site: entry.kind == Kind::Daily && device.is_none(),
                    json: entry.json.to_owned(),
                });
            }
            Item::Gap(to, gap) => {
                self.expect(gap.previous, &gap.log_id);
                if self.is_full() {
                    return ControlFlow::Break(());
                }
                match gap.told {
                    Some(json) => {
                        self.settle();
                        self.hand_out(parcel_of_gap(to, json));
                    }
                    None => self.add_gap(to, gap, false),
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Notes what is missing before the next parcel, if that names a number after
    /// the last one.
    fn expect(&mut self, previous: Option<u64>, log_id: &str) {
        let Some(to) = previous.filter(|previous| *previous > self.reading.last) else {
            return;
        };
        // The last one may have been of an older log.
        let is_first = to >= self.base_seq && self.reading.last < self.base_seq;
        let from = self.reading.last + 1;
        let from = if is_first { self.base_seq } else { from };
        let is_first = is_first || self.reading.last == 0;
        let gap = Gap {
            from,
            previous: (!is_first).then_some(self.reading.last),
            events: to - from + 1,
            at: self.now,
            log_id: log_id.to_owned(),
            told: None,
        };
        self.add_gap(to, gap, true);
    }

    fn add_gap(&mut self, to: u64, gap: Gap, is_outdated: bool) {
        self.reading.last = to;
        if let Some(pending) = &mut self.pending
            && gap.previous == Some(pending.to)
            && gap.log_id == pending.gap.log_id
        {
            self.replaced.push(pending.to);
            pending.to = to;
            pending.gap.events += gap.events;
            pending.gap.at = pending.gap.at.max(gap.at);
            pending.is_outdated |= is_outdated;
            pending.is_passed_over |= !is_outdated;
            return;
        }
        self.settle();
        self.pending = Some(Pending {
            to,
            gap,
            is_passed_over: !is_outdated,
            is_outdated,
        });
    }

    /// Hands out the gap that grew until now.
    fn settle(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let json = pending.envelope(self.voice);
        let gap = Gap {
            told: Some(json.clone()),
            ..pending.gap
        };
        self.told.push((pending.to, gap));
        self.hand_out(parcel_of_gap(pending.to, json));
    }

    fn hand_out(&mut self, parcel: Parcel) {
        self.reading.last = parcel.seq;
        self.bytes += parcel.json.len();
        self.reading.parcels.push(parcel);
    }

    fn is_full(&self) -> bool {
        let count = self.reading.parcels.len() + usize::from(self.pending.is_some());
        count >= self.reading.limit || self.bytes >= self.reading.bytes_max
    }
}

impl Pending {
    fn envelope(&self, voice: &Voice) -> String {
        let (from, to, events) = (self.gap.from, self.to, self.gap.events);
        let what = if from == to {
            format!("event {from}")
        } else {
            format!("{events} events with numbers from {from} to {to}")
        };
        // How many of those that were removed had been addressed is not known.
        let message = match (self.is_passed_over, self.is_outdated) {
            (true, false) => format!(
                "passed over, because more waited than uplink.outbox_max_bytes allows: {what}; \
                 raise it, or look why the uplink was down"
            ),
            (false, _) => format!(
                "not sent, because their time was up (history.events_retention_days) while the \
                 uplink was off: up to {what}"
            ),
            (true, true) => format!(
                "not sent, because more waited than uplink.outbox_max_bytes allows or their time \
                 was up while the uplink was off: up to {what}"
            ),
        };
        let failure = Failure {
            stage: Stage::Uplink,
            code: FailureCode::OutboxGap { from, to },
            message,
            retryable: false,
            failed_at: self.gap.at,
        };
        gap_envelope(failure, to, &self.gap, voice)
    }
}

/// What is sent under the number `to` in place of what is missing.
pub(super) fn gap_envelope(failure: Failure, to: u64, gap: &Gap, voice: &Voice) -> String {
    let event = Event {
        device: None,
        produced_at: gap.at,
        process_ms: 0,
        news: News::Failed(failure),
    };
    let seat = Seat {
        log_id: &gap.log_id,
        seq: to,
        previous: gap.previous,
        is_local: false,
    };
    envelope(&event, &seat, voice)
}

fn parcel_of_gap(seq: u64, json: String) -> Parcel {
    Parcel {
        seq,
        class: Kind::Failed.class(),
        device: None,
        is_of_site: false,
        json,
    }
}
