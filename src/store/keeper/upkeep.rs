//! What the state database keeps beside changes of status: announcements, terms,
//! and the end of what is too old.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Keeper;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::terms::Terms;
use crate::store::database::Fault;
use crate::store::state::{Held, Rule};
use crate::store::step::Mark;
use crate::store::{EventPage, LoggedEvent};

/// How long marks stay that no raw day needs any more, before the last one.
const MARKS_STAY: Duration = Duration::from_hours(40 * 24);

/// One small step of a removal; the lock may be let go in between.
#[derive(Debug)]
pub(in crate::store) enum Removal {
    /// Of events, by this rule, from this number on.
    Events(Rule, Option<u64>),
    /// Of gaps that are acknowledged.
    Gaps,
    /// Of marks, from this key on.
    Marks(Vec<u8>),
}

/// How far a removal goes.
#[derive(Debug)]
pub(in crate::store) struct Reach<'a> {
    /// Events before this go.
    pub(in crate::store) events_from: Wall,
    /// Those about failed heartbeats before this go.
    pub(in crate::store) heartbeat_from: Wall,
    /// Days whose marks stay, because their raw is there.
    pub(in crate::store) raw_days: &'a [Day],
}

impl Removal {
    /// The first step.
    pub(in crate::store) const FIRST: Self = Self::Events(Rule::Old, None);
}

impl Keeper {
    /// Makes those announcements durable that say something else than what was
    /// told before of their row; tells how many.
    pub(in crate::store) fn announce(
        &mut self,
        changes: &[Change],
        now: Wall,
    ) -> Result<usize, Fault> {
        self.database(now)?;
        let claimed = self.claims(changes);
        let mut told = claimed.iter().flatten().count();
        self.unclaimed
            .retain(|(_, seq)| !claimed.contains(&Some(*seq)));
        let mut new: Vec<&Change> = Vec::new();
        let mut met: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (change, _) in changes
            .iter()
            .zip(&claimed)
            .filter(|(_, seq)| seq.is_none())
        {
            let Some(mark) = Mark::of(change) else {
                new.push(change);
                continue;
            };
            let before = match met.insert(mark.key(), mark.content) {
                Some(content) => Some(content),
                None => self.try_on(|database| database.told(&mark))?,
            };
            if before == Some(mark.content) {
                // A try that turned out durable, given again at another time.
                self.unclaimed
                    .retain(|(held, _)| Mark::of(held) != Some(mark));
            } else {
                new.push(change);
            }
        }
        if !new.is_empty() {
            self.write(&new, now)?;
            told += new.len();
        }
        Ok(told)
    }

    /// The days whose site was announced, ascending.
    pub(in crate::store) fn final_days(&mut self, now: Wall) -> Result<Vec<Day>, Fault> {
        self.database(now)?;
        self.try_on(|database| database.final_days())
    }

    /// The terms of all devices.
    pub(in crate::store) fn terms(
        &mut self,
        now: Wall,
    ) -> Result<BTreeMap<DeviceId, Terms>, Fault> {
        self.database(now)?;
        self.try_on(|database| database.terms())
    }

    /// Remembers the terms of all devices.
    pub(in crate::store) fn remember_terms(
        &mut self,
        terms: &BTreeMap<DeviceId, Terms>,
        now: Wall,
    ) -> Result<(), Fault> {
        self.database(now)?;
        self.try_on(|database| database.write_terms(terms))
    }

    /// The newest durable events below `before`, newest first.
    pub(in crate::store) fn events(
        &mut self,
        device: Option<DeviceId>,
        before: Option<u64>,
        (limit, scan_max): (usize, usize),
        now: Wall,
    ) -> Result<EventPage, Fault> {
        self.database(now)?;
        let before = before.unwrap_or(u64::MAX).min(self.durable_below);
        self.try_on(|database| database.events(device, before, limit, scan_max))
    }

    /// At most `limit` durable events with numbers above `after`, oldest first.
    pub(in crate::store) fn events_after(
        &mut self,
        after: u64,
        limit: usize,
        now: Wall,
    ) -> Result<Vec<LoggedEvent>, Fault> {
        self.database(now)?;
        let end = self.durable_below;
        let mut events = self.try_on(|database| database.events_after(after, limit))?;
        events.retain(|event| event.seq < end);
        Ok(events)
    }

    /// One step of a removal; tells the next one, if there is one.
    pub(in crate::store) fn remove(
        &mut self,
        step: Removal,
        reach: &Reach<'_>,
        now: Wall,
    ) -> Result<Option<Removal>, Fault> {
        self.database(now)?;
        let held = Held {
            for_uplink: self.forward.holds_for_uplink,
            // What is in doubt stays.
            end: self.durable_below,
            now,
        };
        let next = self.try_on(|database| match step {
            Removal::Events(rule, at) => {
                let from = match rule {
                    Rule::Old => reach.events_from,
                    Rule::FailedHeartbeats => reach.heartbeat_from,
                };
                let next = database.sweep((rule, at), from, &held)?;
                Ok(Some(match (next, rule) {
                    (Some(at), _) => Removal::Events(rule, Some(at)),
                    (None, Rule::Old) => Removal::Events(Rule::FailedHeartbeats, None),
                    (None, Rule::FailedHeartbeats) => Removal::Gaps,
                }))
            }
            Removal::Gaps => Ok(Some(if database.sweep_gaps()? {
                Removal::Gaps
            } else {
                Removal::Marks(Vec::new())
            })),
            Removal::Marks(from) => {
                let last = database.last_marked_day()?;
                let until = last.and_then(|last| Day::of(last.start().minus(MARKS_STAY)));
                let next = match until {
                    Some(until) => database.remove_marks(&from, until, reach.raw_days)?,
                    None => None,
                };
                if next.is_none() {
                    database.flush()?;
                }
                Ok(next.map(Removal::Marks))
            }
        })?;
        self.show();
        Ok(next)
    }
}
