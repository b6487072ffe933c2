//! A store that is only read, while no program runs on it.
//!
//! Floor 2. The export opens it. Nothing new is made where nothing is, no start is
//! counted, no log begun, nothing moved aside: what is damaged is an error, and the
//! next start of the program mends it. sled itself may rewrite its files as it
//! opens them.

use super::daily::DeviceDay;
use super::{EventPage, LoggedEvent, ReadError, Store, folder};
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;

/// The store, locked as long as this lives; see [`Store::open_to_read`].
#[derive(Debug)]
pub struct Reader(pub(super) Store);

impl Reader {
    /// As [`Store::raw_days`].
    pub fn raw_days(&self) -> Result<Vec<Day>, ReadError> {
        self.0.raw_days()
    }

    /// As [`Store::read_day`].
    pub fn read_day(
        &self,
        day: Day,
        each: &mut dyn FnMut(Vec<DeviceDay>),
    ) -> Result<(), ReadError> {
        self.0.read_day(day, each)
    }

    /// As [`Store::summaries`].
    pub fn summaries(
        &self,
        from: Day,
        to: Day,
        device: Option<DeviceId>,
        each: &mut dyn FnMut(&Summary) -> bool,
    ) -> Result<(), ReadError> {
        self.0.summaries(from, to, device, each)
    }

    /// As [`Store::events_after`].
    pub fn events_after(&self, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, ReadError> {
        if !folder::state(&self.0.path).exists() {
            return Ok(Vec::new());
        }
        self.0.events_after(after, limit)
    }

    /// As [`Store::events_page`].
    pub fn events_page(
        &self,
        device: Option<DeviceId>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<EventPage, ReadError> {
        if !folder::state(&self.0.path).exists() {
            return Ok(EventPage::default());
        }
        self.0.events_page(device, before, limit)
    }
}
