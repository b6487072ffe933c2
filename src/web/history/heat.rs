//! Devices by days: how much of each day a device was online.
//!
//! Floor 3. [`Heat`] takes the rows in as they are read, on the blocking thread;
//! a cell takes four bytes, because the worst devices can be told from the rest
//! only after all rows of all devices.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use fnv::FnvHasher;

use crate::board::Picture;
use crate::domain::daily::{Figures, Summary};
use crate::domain::day::Day;
use crate::domain::device::{Device, DeviceId};
use crate::web::listing::{contains, fits};
use crate::web::query::Wanted;
use crate::web::strip::place;

/// Parts of a whole: two decimals of a percentage.
pub(super) const WHOLE: u16 = 10_000;

/// A day of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// There is no row.
    Absent,
    /// There is one, of nothing observed.
    Unobserved,
    /// Share online, rounded down.
    Online {
        /// Of [`WHOLE`].
        share: u16,
        /// Coverage, of [`WHOLE`].
        coverage: u16,
    },
}

/// A device's days.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Whose.
    pub(super) id: DeviceId,
    /// Its inventory entry; `None`: it is not in the inventory any more.
    pub(super) device: Option<Arc<Device>>,
    /// Over all days.
    pub(super) sum: Sum,
    /// One per day.
    pub(super) cells: Vec<Cell>,
}

/// Heartbeats of more than one day or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    online: u64,
    counted: u64,
    observed: u64,
    expected: u64,
}

/// All lines.
#[derive(Debug)]
pub(super) struct Heat {
    from: Day,
    wanted: Wanted,
    lines: Vec<Line>,
    /// The line of each device; `None`: it is not shown.
    places: HashMap<DeviceId, Option<usize>, BuildHasherDefault<FnvHasher>>,
    /// Everything that is shown, by day.
    days: Vec<Sum>,
}

impl Heat {
    /// The devices of the inventory that are `wanted`, without a row yet.
    pub(super) fn of(picture: &Picture, wanted: &Wanted, from: Day, count: usize) -> Self {
        let mut heat = Self {
            from,
            wanted: wanted.clone(),
            lines: Vec::new(),
            places: HashMap::default(),
            days: vec![Sum::default(); count],
        };
        for row in picture.devices.values() {
            let device = &row.device;
            if fits(device, wanted) {
                heat.add(device.id, Some(Arc::clone(device)));
            } else {
                heat.places.insert(device.id, None);
            }
        }
        heat
    }

    /// Takes a row in.
    pub(super) fn take(&mut self, row: &Summary) {
        let known = self.places.get(&row.device).copied();
        let line = known.unwrap_or_else(|| self.meet(row.device));
        let line = line.and_then(|line| self.lines.get_mut(line));
        let day = place(row.day, self.from);
        let (Some(line), Some(day)) = (line, day) else {
            return;
        };
        if let Some(cell) = line.cells.get_mut(day) {
            *cell = Cell::of(&row.figures);
            line.sum.add(&row.figures);
        }
        if let Some(sum) = self.days.get_mut(day) {
            sum.add(&row.figures);
        }
    }

    /// Lines, the worst first and what is unknown last, and everything by day.
    /// A device that is not watched any more stands here only with a row.
    pub(super) fn ranked(self) -> (Vec<Line>, Vec<Sum>) {
        let mut lines = self.lines;
        lines.retain(|line| {
            let is_watched = line.device.as_ref().is_some_and(|device| device.enabled);
            is_watched || line.cells.iter().any(|cell| *cell != Cell::Absent)
        });
        lines.sort_unstable_by(|a, b| a.sum.compare(&b.sum).then_with(|| a.id.cmp(&b.id)));
        (lines, self.days)
    }

    /// A row of a device that the inventory does not know: it had a name and
    /// tags once, but nobody kept them.
    fn meet(&mut self, id: DeviceId) -> Option<usize> {
        let text = self.wanted.text.as_ref();
        let is_wanted =
            self.wanted.tag.is_none() && text.is_none_or(|text| contains(id.as_str(), text));
        if is_wanted {
            return Some(self.add(id, None));
        }
        self.places.insert(id, None);
        None
    }

    fn add(&mut self, id: DeviceId, device: Option<Arc<Device>>) -> usize {
        let line = self.lines.len();
        self.lines.push(Line {
            id,
            device,
            sum: Sum::default(),
            cells: vec![Cell::Absent; self.days.len()],
        });
        self.places.insert(id, Some(line));
        line
    }
}

impl Cell {
    fn of(figures: &Figures) -> Self {
        let mut sum = Sum::default();
        sum.add(figures);
        sum.cell()
    }
}

impl Sum {
    fn add(&mut self, figures: &Figures) {
        self.online += u64::from(figures.online);
        self.counted +=
            u64::from(figures.online) + u64::from(figures.degraded) + u64::from(figures.offline);
        self.observed += u64::from(figures.observed());
        self.expected += u64::from(figures.expected);
    }

    /// Both together.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            online: self.online + other.online,
            counted: self.counted + other.counted,
            observed: self.observed + other.observed,
            expected: self.expected + other.expected,
        }
    }

    /// The sum as a cell; nothing expected and nothing observed is no row.
    pub(super) fn cell(self) -> Cell {
        match share(self.online, self.counted) {
            Some(online) => Cell::Online {
                share: online,
                coverage: share(self.observed, self.expected).unwrap_or(0),
            },
            None if self == Self::default() => Cell::Absent,
            None => Cell::Unobserved,
        }
    }

    /// The smaller share online comes first, no share last.
    fn compare(&self, other: &Self) -> Ordering {
        match (self.counted, other.counted) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            (own, others) => (self.online * others).cmp(&(other.online * own)),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<u16> {
    let share = (part * u64::from(WHOLE)).checked_div(whole)?;
    // A clock that was set back lives through an hour twice.
    Some(u16::try_from(share).map_or(WHOLE, |share| share.min(WHOLE)))
}
