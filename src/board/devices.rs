//! The devices on the board, sorted by id.
//!
//! Floor 2. A sorted list rather than a tree: it changes only with the roster,
//! while every heartbeat looks its row up. Whoever knows a row's place from the
//! roster finds it there at once; everyone else by its id.

use super::Row;
use crate::domain::device::DeviceId;

/// Rows by id.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Ascending by id, each once.
    rows: Vec<Row>,
}

impl Devices {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Every row, ascending by id.
    pub fn values(&self) -> std::slice::Iter<'_, Row> {
        self.rows.iter()
    }

    /// Every row, ascending by id, to change it; ids must stay.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, Row> {
        self.rows.iter_mut()
    }

    /// The row of a device.
    #[must_use]
    pub fn get(&self, device: &DeviceId) -> Option<&Row> {
        self.rows.get(self.place(device).ok()?)
    }

    /// The row of a device, to change it; its id must stay.
    pub fn get_mut(&mut self, device: &DeviceId) -> Option<&mut Row> {
        let place = self.place(device).ok()?;
        self.rows.get_mut(place)
    }

    /// The row of a device that should stand at `place`, wherever it stands.
    pub fn get_near(&mut self, place: usize, device: &DeviceId) -> Option<&mut Row> {
        let is_there = self
            .rows
            .get(place)
            .is_some_and(|row| row.device.id == *device);
        if is_there {
            self.rows.get_mut(place)
        } else {
            self.get_mut(device)
        }
    }

    /// Puts a row in, in place of one of the same id.
    pub fn put(&mut self, row: Row) {
        match self.place(&row.device.id) {
            Ok(place) => {
                if let Some(old) = self.rows.get_mut(place) {
                    *old = row;
                }
            }
            Err(place) => self.rows.insert(place, row),
        }
    }

    fn place(&self, device: &DeviceId) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| row.device.id.cmp(device))
    }
}

impl IntoIterator for Devices {
    type Item = Row;
    type IntoIter = std::vec::IntoIter<Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl FromIterator<Row> for Devices {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Self {
        let mut rows: Vec<Row> = rows.into_iter().collect();
        rows.sort_by_key(|row| row.device.id);
        rows.dedup_by_key(|row| row.device.id);
        Self { rows }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::domain::device::Device;
    use crate::domain::status::Track;

    fn row(id: &str) -> Row {
        let device = Device {
            id: id.parse().unwrap(),
            address: "127.0.0.1".parse().unwrap(),
            name: id.to_owned(),
            profile: None,
            tags: Vec::new(),
            parent: None,
            enabled: true,
        };
        Row {
            device: Arc::new(device),
            rules: Arc::default(),
            track: Track::default(),
            recent: VecDeque::new(),
        }
    }

    fn ids(devices: &Devices) -> Vec<&str> {
        devices.values().map(|row| row.device.id.as_str()).collect()
    }

    #[test]
    fn rows_stand_sorted_and_are_found_by_id() {
        let mut devices: Devices = ["c", "a", "b", "a"].map(row).into_iter().collect();
        assert_eq!(ids(&devices), ["a", "b", "c"]);
        devices.put(row("aa"));
        devices.put(row("c"));
        assert_eq!(ids(&devices), ["a", "aa", "b", "c"]);
        assert!(devices.get(&"b".parse().unwrap()).is_some());
        assert!(devices.get(&"x".parse().unwrap()).is_none());
    }

    #[test]
    fn a_wrong_place_still_finds_the_row() {
        let mut devices: Devices = ["a", "b", "c"].map(row).into_iter().collect();
        for place in [0, 1, 2, 3, usize::MAX] {
            let found = devices.get_near(place, &"b".parse().unwrap()).unwrap();
            assert_eq!(found.device.id.as_str(), "b");
        }
        assert!(devices.get_near(0, &"x".parse().unwrap()).is_none());
    }
}
