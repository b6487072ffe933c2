//! The end of what is past its retention.
//!
//! Floor 2. In small steps: between two of them others may commit.

use super::keeper::{Reach, Removal};
use super::months::Month;
use super::{Store, WriteError, failed};
use crate::domain::day::Day;
use crate::domain::instant::Wall;

impl Store {
    /// Removes what is past its retention: months of rows that ended before the
    /// month of `rows_from`, events produced before `events_from`, those of stage
    /// heartbeat before `heartbeat_from`, and what is remembered of announcements
    /// more than 40 days before the last one whose raw is gone.
    ///
    /// Events that wait for the uplink stay, where they are held for it
    /// ([`Store::hold_for_uplink`]).
    ///
    /// A month goes only where at least `months_after` later ones are there: a clock
    /// that is ahead makes all of them look old, but cannot make up for having lived.
    ///
    /// Rows of the month of `rows_from` stay, for a month goes as a whole. Raw goes
    /// by [`Store::remove_raw_day`]. After an error it goes on at the next call.
    pub fn prune(
        &self,
        rows_from: Day,
        months_after: usize,
        events_from: Wall,
        heartbeat_from: Wall,
    ) -> Result<(), WriteError> {
        self.months
            .lock()
            .remove_before(Month::of(rows_from), months_after)
            .map_err(|fault| failed("remove old summary rows", fault.into()))?;
        let (raw_days, now) = {
            let raw = self.raw.lock();
            (raw.days(), raw.now)
        };
        // What is asked for is not of the future, whenever this store was last used.
        let now = now.max(events_from).max(heartbeat_from);
        let raw_days = raw_days.map_err(|fault| failed("list the days of raw", fault.into()))?;
        let reach = Reach {
            events_from,
            heartbeat_from,
            raw_days: &raw_days,
        };
        let mut step = Some(Removal::FIRST);
        while let Some(next) = step {
            step = self
                .keeper
                .lock()
                .remove(next, &reach, now)
                .map_err(|fault| failed("remove old events", fault))?;
        }
        Ok(())
    }
}
