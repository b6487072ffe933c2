//! Who is watched: the seats of the monitor and how the roster changes them.
//!
//! Floor 3. `edge::monitor` owns it. A device keeps its seat while its id and
//! address stay; seats that were left are used again under a new generation.
//!
//! # Invariants
//!
//! - A roster change touches only devices that came, left, moved or changed
//!   their rules; everyone else keeps phase, standing and what is in flight.
//! - A disabled device has no seat.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::report::{Entry, Member};
use super::verdict::SendTrouble;
use crate::config::settings::ProbeRules;
use crate::domain::device::{Device, DeviceId};
use crate::domain::event::{Change, Event, News};
use crate::domain::instant::Wall;
use crate::domain::status::{Liveness, Track};
use crate::domain::trust::Offset;

/// A device of the inventory with the rules that hold for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The device.
    pub device: Arc<Device>,
    /// Its rules.
    pub rules: Arc<ProbeRules>,
}

/// One device being probed.
#[derive(Debug)]
pub struct Seat {
    /// The device.
    pub device: Arc<Device>,
    /// Its id and address, which are read for every probe: beside the standing
    /// they cost no further look into memory.
    pub id: DeviceId,
    /// See `id`.
    pub address: IpAddr,
    /// Its rules.
    pub rules: Arc<ProbeRules>,
    /// Its place in the roster in force.
    pub place: usize,
    /// Its standing.
    pub track: Track,
    /// Its run of unsent probes.
    pub trouble: SendTrouble,
    /// Whether a recheck is entered in the agenda.
    pub is_recheck_due: bool,
    /// Raised whenever entries and probes of this seat lose their meaning.
    pub generation: u32,
    is_taken: bool,
}

/// A standing from before the start.
#[derive(Clone, Copy, Debug, Default)]
struct Restored {
    track: Track,
    /// Where it was won; `None` where nobody remembers.
    address: Option<IpAddr>,
}

/// All seats.
#[derive(Debug, Default)]
pub struct Seats {
    all: Vec<Seat>,
    free: Vec<u32>,
    by_device: BTreeMap<DeviceId, u32>,
    /// Standings of devices that the store knows and no roster has named yet.
    restored: BTreeMap<DeviceId, Restored>,
}

/// What a roster change asks of the monitor.
#[derive(Debug, Default)]
pub struct Changed {
    /// Seats that need a place in the agenda: new, moved, or of another period.
    pub reseated: Vec<u32>,
    /// What to keep and tell, in order.
    pub entries: Vec<Entry>,
}

impl Seats {
    /// No seats yet; `standings` were found in the store, and `addresses` say
    /// where each device was watched then.
    #[must_use]
    pub fn with_restored(standings: &[Liveness], addresses: &BTreeMap<DeviceId, IpAddr>) -> Self {
        let restore = |known: &Liveness| {
            let address = addresses.get(&known.device).copied();
            let track = known.track;
            (known.device, Restored { track, address })
        };
        Self {
            restored: standings.iter().map(restore).collect(),
            ..Self::default()
        }
    }

    /// The seat numbered `index`, while `generation` is still its own.
    pub fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut Seat> {
        let seat = self.all.get_mut(usize::try_from(index).ok()?)?;
        (seat.is_taken && seat.generation == generation).then_some(seat)
    }

    /// Whether an entry for this seat and generation would still find it.
    #[must_use]
    pub fn has(&self, index: u32, generation: u32) -> bool {
        self.get(index)
            .is_some_and(|seat| seat.generation == generation)
    }

    /// The number and seat of a device.
    #[must_use]
    pub fn find(&self, device: DeviceId) -> Option<(u32, &Seat)> {
        let index = *self.by_device.get(&device)?;
        Some((index, self.all.get(usize::try_from(index).ok()?)?))
    }

    /// The seat numbered `index`, if taken.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&Seat> {
        self.all
            .get(usize::try_from(index).ok()?)
            .filter(|seat| seat.is_taken)
    }

    /// Every taken seat.
    pub fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.all.iter().filter(|seat| seat.is_taken)
    }

    /// Dates what was judged before the clock was set.
    pub fn date(&mut self, offset: Offset) {
        for seat in self.all.iter_mut().filter(|seat| seat.is_taken) {
            offset.date_track(&mut seat.track);
        }
    }

    /// Takes the roster into force at `now`.
    pub fn change(&mut self, roster: &[Watched], now: Wall) -> Changed {
        let mut changed = Changed::default();
        let mut named = BTreeSet::new();
        for watched in roster {
            named.insert(watched.device.id);
            if watched.device.enabled {
                self.seat(watched, now, &mut changed);
            } else {
                self.dismiss(watched.device.id, "disabled", now, &mut changed);
            }
        }
        let gone = |device: &&DeviceId| !named.contains(*device);
        let left: BTreeSet<DeviceId> = self
            .by_device
            .keys()
            .chain(self.restored.keys())
            .filter(gone)
            .copied()
            .collect();
        for device in left {
            self.dismiss(device, "removed", now, &mut changed);
        }
        let mut members: Vec<Member> = roster.iter().map(|watched| self.member(watched)).collect();
        members.sort_by_key(|member| member.device.id);
        for (place, member) in members.iter().enumerate() {
            if let Some(seat) = self.seat_of(member.device.id) {
                seat.place = place;
            }
        }
        changed.entries.push(Entry::Roster(members));
        changed
    }

    fn seat_of(&mut self, device: DeviceId) -> Option<&mut Seat> {
        let index = *self.by_device.get(&device)?;
        self.all.get_mut(usize::try_from(index).ok()?)
    }

    fn member(&self, watched: &Watched) -> Member {
        let track = self
            .find(watched.device.id)
            .map(|(_, seat)| seat.track)
            .unwrap_or_default();
        Member {
            device: Arc::clone(&watched.device),
            rules: Arc::clone(&watched.rules),
            track,
        }
    }

    fn seat(&mut self, watched: &Watched, now: Wall, changed: &mut Changed) {
        let Some(&index) = self.by_device.get(&watched.device.id) else {
            return self.welcome(watched, now, changed);
        };
        let Some(seat) = self
            .all
            .get_mut(usize::try_from(index).unwrap_or(usize::MAX))
        else {
            return;
        };
        let has_moved = seat.address != watched.device.address;
        let has_new_period = seat.rules.heartbeat_period != watched.rules.heartbeat_period;
        seat.take(watched);
        if has_moved {
            changed
                .entries
                .extend(forget(seat, now).map(Box::new).map(Entry::Change));
        }
        if has_moved || has_new_period {
            seat.generation = seat.generation.wrapping_add(1);
            seat.is_recheck_due = false;
            changed.reseated.push(index);
        }
    }

    fn welcome(&mut self, watched: &Watched, now: Wall, changed: &mut Changed) {
        let Restored { track, address } =
            self.restored.remove(&watched.device.id).unwrap_or_default();
        let index = self.free.pop().unwrap_or_else(|| self.push_empty(watched));
        if let Some(seat) = self
            .all
            .get_mut(usize::try_from(index).unwrap_or(usize::MAX))
        {
            seat.take(watched);
            seat.track = track;
            seat.trouble = SendTrouble::default();
            seat.is_recheck_due = false;
            seat.is_taken = true;
            // Moved while the process was down.
            if address.is_some_and(|address| address != watched.device.address) {
                let told = forget(seat, now).map(Box::new);
                changed.entries.extend(told.map(Entry::Change));
            }
        }
        self.by_device.insert(watched.device.id, index);
        changed.reseated.push(index);
    }

    fn push_empty(&mut self, watched: &Watched) -> u32 {
        self.all.push(Seat {
            device: Arc::clone(&watched.device),
            id: watched.device.id,
            address: watched.device.address,
            rules: Arc::clone(&watched.rules),
            place: 0,
            track: Track::default(),
            trouble: SendTrouble::default(),
            is_recheck_due: false,
            generation: 0,
            is_taken: false,
        });
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    fn dismiss(&mut self, device: DeviceId, why: &'static str, now: Wall, changed: &mut Changed) {
        let was_restored = self.restored.remove(&device).is_some();
        let had_seat = self.by_device.remove(&device);
        if let Some(index) = had_seat
            && let Some(seat) = self
                .all
                .get_mut(usize::try_from(index).unwrap_or(usize::MAX))
        {
            seat.is_taken = false;
            seat.generation = seat.generation.wrapping_add(1);
            self.free.push(index);
        }
        if was_restored || had_seat.is_some() {
            let news = News::DeviceRemoved { reason: why };
            let event = Event {
                device: Some(device),
                produced_at: now,
                process_ms: 0,
                news,
            };
            let removal = Box::new(Change::Removal { device, event });
            changed.entries.push(Entry::Change(removal));
        }
    }
}

impl Seat {
    fn take(&mut self, watched: &Watched) {
        self.device = Arc::clone(&watched.device);
        self.id = watched.device.id;
        self.address = watched.device.address;
        self.rules = Arc::clone(&watched.rules);
    }
}

/// A device asked at another address is unknown again; its history stays.
fn forget(seat: &mut Seat, now: Wall) -> Option<Change> {
    let missed_count = seat.track.missed_count;
    let last_seen = seat.track.last_seen;
    seat.trouble = SendTrouble::default();
    let turn = seat.track.forget(now)?;
    let device = seat.id;
    let news = News::StatusChanged {
        previous: turn.from,
        current: turn.to,
        missed_count,
        last_seen,
    };
    Some(Change::Standing {
        liveness: Liveness {
            device,
            track: seat.track,
        },
        event: Event {
            device: Some(device),
            produced_at: now,
            process_ms: 0,
            news,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::status::Status;

    const NOW: Wall = Wall::from_millis(1_000_000);

    fn watched(id: &str, address: &str, enabled: bool) -> Watched {
        let device = Device {
            id: id.parse().unwrap(),
            address: address.parse().unwrap(),
            name: id.to_owned(),
            profile: None,
            tags: Vec::new(),
            parent: None,
            enabled,
        };
        Watched {
            device: Arc::new(device),
            rules: Arc::new(ProbeRules::default()),
        }
    }

    fn online() -> Track {
        Track {
            status: Status::Online,
            since: Some(NOW),
            ..Track::default()
        }
    }

    /// What a roster change tells, one word each.
    fn told(changed: &Changed) -> Vec<String> {
        let word = |entry: &Entry| match entry {
            Entry::Beat(_) | Entry::Times(_) | Entry::Late { .. } => {
                unreachable!("a roster brings none")
            }
            Entry::Roster(members) => format!("roster of {}", members.len()),
            Entry::Change(change) => {
                let event = change.event();
                let device = event.device.unwrap();
                match event.news {
                    News::DeviceRemoved { reason } => format!("{device} {reason}"),
                    News::StatusChanged { .. }
                    | News::Failed(_)
                    | News::DaySummarised(_)
                    | News::SiteSummarised(_)
                    | News::ClockStepped { .. } => format!("{device} changed"),
                }
            }
        };
        changed.entries.iter().map(word).collect()
    }

    #[test]
    fn others_are_untouched_when_one_comes_and_one_leaves() {
        let mut seats = Seats::default();
        let (a, b, c) = (
            watched("a", "127.0.0.1", true),
            watched("b", "127.0.0.2", true),
            watched("c", "127.0.0.3", true),
        );
        let first = seats.change(&[a.clone(), b.clone()], NOW);
        assert_eq!(first.reseated, [0, 1]);
        let (index, generation) = seats
            .find(a.device.id)
            .map(|(i, seat)| (i, seat.generation))
            .unwrap();
        seats.get_mut(index, generation).unwrap().track = online();

        let second = seats.change(&[a.clone(), c.clone()], NOW);
        assert_eq!(told(&second), ["b removed", "roster of 2"]);
        assert_eq!(seats.get_mut(index, generation).unwrap().track, online());
        // Entries of the one that left find nobody, also after its seat is used again.
        assert!(seats.get_mut(1, 0).is_none());
        let third = seats.change(&[a, b, c], NOW);
        assert!(third.reseated.len() == 1 && seats.get_mut(1, 0).is_none());
    }

    #[test]
    fn a_moved_device_is_unknown_again_and_its_old_probes_are_void() {
        let mut seats = Seats::default();
        seats.change(&[watched("a", "127.0.0.1", true)], NOW);
        seats.get_mut(0, 0).unwrap().track = online();
        let changed = seats.change(&[watched("a", "127.0.0.9", true)], NOW);
        assert_eq!(told(&changed), ["a changed", "roster of 1"]);
        assert_eq!(changed.reseated, [0]);
        assert!(seats.get_mut(0, 0).is_none());
        assert_eq!(seats.get(0).unwrap().track.status, Status::Unknown);
    }

    #[test]
    fn a_renamed_device_keeps_everything() {
        let mut seats = Seats::default();
        seats.change(&[watched("a", "127.0.0.1", true)], NOW);
        seats.get_mut(0, 0).unwrap().track = online();
        let mut renamed = watched("a", "127.0.0.1", true);
        Arc::make_mut(&mut renamed.device).name = "Pump".into();
        let changed = seats.change(&[renamed], NOW);
        assert!(changed.reseated.is_empty());
        assert_eq!(seats.get_mut(0, 0).unwrap().device.name, "Pump");
        assert_eq!(seats.get_mut(0, 0).unwrap().track, online());
    }

    #[test]
    fn restored_standings_go_on_or_are_told_as_removed() {
        let restored = ["a", "b", "c"].map(|id| Liveness {
            device: id.parse().unwrap(),
            track: online(),
        });
        let mut seats = Seats::with_restored(&restored, &BTreeMap::new());
        let roster = [
            watched("a", "127.0.0.1", true),
            watched("b", "127.0.0.2", false),
        ];
        let changed = seats.change(&roster, NOW);
        assert_eq!(told(&changed), ["b disabled", "c removed", "roster of 2"]);
        assert_eq!(seats.get(0).unwrap().track, online());
        assert_eq!(told(&seats.change(&roster, NOW)), ["roster of 2"]);
    }

    #[test]
    fn a_device_that_moved_while_the_process_was_down_is_unknown_again() {
        let restored = ["a", "b", "c"].map(|id| Liveness {
            device: id.parse().unwrap(),
            track: online(),
        });
        let before = [("a", "127.0.0.1"), ("b", "127.0.0.2")]
            .map(|(id, address)| (id.parse().unwrap(), address.parse().unwrap()));
        let mut seats = Seats::with_restored(&restored, &BTreeMap::from(before));
        let roster = [("a", "127.0.0.1"), ("b", "127.0.0.9"), ("c", "127.0.0.3")]
            .map(|(id, address)| watched(id, address, true));
        // Nobody remembers where c was: then it goes on.
        assert_eq!(
            told(&seats.change(&roster, NOW)),
            ["b changed", "roster of 3"]
        );
        let status = |index| seats.get(index).unwrap().track.status;
        assert_eq!(
            [0, 1, 2].map(status),
            [Status::Online, Status::Unknown, Status::Online]
        );
    }
}
