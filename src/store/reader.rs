//! A store that is only read, while no program runs on it.
//!
//! Floor 2. The export opens it. Nothing new is made where nothing is, no start is
//! counted, no log begun, nothing moved aside: what is damaged is an error, and the
//! next start of the program mends it. sled itself may rewrite its files as it
//! opens them.

use std::path::{Path, PathBuf};

use super::daily::DeviceDay;
use super::database::Fault;
use super::{EventPage, LoggedEvent, ReadError, Store, folder};
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;

/// The store, locked as long as this lives; see [`Store::open_to_read`].
#[derive(Debug)]
pub struct Reader {
    store: Store,
    /// What errors call its folder.
    name: PathBuf,
}

impl Reader {
    pub(super) fn new(store: Store) -> Self {
        let name = store.path.clone();
        Self { store, name }
    }

    /// The same, with a folder that errors call by this name.
    #[must_use]
    pub fn known_as(self, name: &Path) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// An error that says where the trouble is and what helps: nothing is mended here.
    fn told(&self, fault: ReadError, part: impl FnOnce(&Path) -> PathBuf) -> ReadError {
        let source = match fault.source.downcast_ref() {
            Some(Fault::Damaged(what)) => format!(
                "{} is damaged ({what}): start sitebeat on the store, which mends it or moves it \
                 aside, stop it and try again",
                part(&self.name).display()
            ),
            Some(denied) if denied.is_denial() => format!(
                "{} has files that this user may not write, and the database writes as it opens: \
                 give all files of the store to one user",
                part(&self.name).display()
            ),
            _ => return fault,
        };
        ReadError {
            source: source.into(),
            ..fault
        }
    }

    /// As [`Store::raw_days`].
    pub fn raw_days(&self) -> Result<Vec<Day>, ReadError> {
        self.store.raw_days()
    }

    /// As [`Store::read_day`].
    pub fn read_day(
        &self,
        day: Day,
        each: &mut dyn FnMut(Vec<DeviceDay>),
    ) -> Result<(), ReadError> {
        let read = self.store.read_day(day, each);
        read.map_err(|fault| self.told(fault, |name| folder::raw(name).join(day.to_string())))
    }

    /// As [`Store::summaries`].
    pub fn summaries(
        &self,
        from: Day,
        to: Day,
        device: Option<DeviceId>,
        each: &mut dyn FnMut(&Summary) -> bool,
    ) -> Result<(), ReadError> {
        let read = self.store.summaries(from, to, device, each);
        read.map_err(|fault| self.told(fault, folder::daily))
    }

    /// As [`Store::events_after`].
    pub fn events_after(&self, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, ReadError> {
        if !folder::state(&self.store.path).exists() {
            return Ok(Vec::new());
        }
        let read = self.store.events_after(after, limit);
        read.map_err(|fault| self.told(fault, folder::state))
    }

    /// As [`Store::events_page`].
    pub fn events_page(
        &self,
        device: Option<DeviceId>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<EventPage, ReadError> {
        if !folder::state(&self.store.path).exists() {
            return Ok(EventPage::default());
        }
        let read = self.store.events_page(device, before, limit);
        read.map_err(|fault| self.told(fault, folder::state))
    }
}
