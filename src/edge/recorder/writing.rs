//! The recorder's writes, each on a blocking thread.
//!
//! Floor 3. `edge::recorder` starts one at a time and hears how it ended.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::board::Board;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::status::Liveness;
use crate::store::{Store, WriteError};

/// How long it is remembered that a device was watched once.
const TERMS_KEPT: Duration = Duration::from_hours(60 * 24);

/// What is to be written.
#[derive(Debug)]
pub(super) enum Work {
    /// These changes, in one step.
    Commit(Vec<Change>),
    /// The open frame of raw heartbeats. Where the store is full, days past this
    /// retention give way.
    Flush { raw_retention: Duration },
    /// All standings.
    Checkpoint(Vec<Liveness>),
    /// Where and how often the devices are watched.
    Roster { watched: Vec<Watched>, since: Wall },
    /// The last flush of all, whatever the limits say.
    Close,
}

/// Where and how often a device is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) device: DeviceId,
    pub(super) address: IpAddr,
    pub(super) period: Duration,
}

/// Which write it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// So many changes.
    Commit { changes: usize },
    /// The open frame.
    Flush,
    /// All standings.
    Checkpoint,
    /// Where the devices are watched.
    Roster,
    /// The last flush.
    Close,
}

/// Which write it was, and what it came to.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) deed: Deed,
    pub(super) result: Result<(), WriteError>,
    /// Raw days that had to go for it.
    pub(super) lost_days: Vec<Day>,
    /// What the store repaired meanwhile, one sentence each.
    pub(super) mended: Vec<String>,
}

/// Starts a write.
pub(super) fn begin(work: Work, store: &Arc<Store>, now: Wall) -> JoinHandle<Written> {
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || {
        let mut lost_days = Vec::new();
        let (deed, result) = match work {
            Work::Commit(group) => {
                let result = store.commit(&group, now).map(|_numbers| ());
                (
                    Deed::Commit {
                        changes: group.len(),
                    },
                    result,
                )
            }
            Work::Flush { raw_retention } => (
                Deed::Flush,
                flush(&store, now, raw_retention, &mut lost_days),
            ),
            Work::Checkpoint(standings) => (Deed::Checkpoint, store.checkpoint(&standings, now)),
            Work::Roster { watched, since } => {
                (Deed::Roster, keep_roster(&store, &watched, since, now))
            }
            Work::Close => (Deed::Close, store.close(now)),
        };
        // Here and not in the recorder: the store may be busy with a read.
        let mended = store.take_mended();
        Written {
            deed,
            result,
            lost_days,
            mended,
        }
    })
}

/// Remembers where these devices are watched, and since when and how often. A
/// device that is no longer named is not to be asked from then on.
fn keep_roster(
    store: &Store,
    roster: &[Watched],
    since: Wall,
    now: Wall,
) -> Result<(), WriteError> {
    let addresses: Vec<_> = roster.iter().map(|one| (one.device, one.address)).collect();
    store.remember_addresses(&addresses, now)?;
    let mut terms = store.terms().map_err(|unread| WriteError::Failed {
        deed: "note since when devices are watched",
        source: unread.source,
    })?;
    let periods: BTreeMap<DeviceId, Duration> =
        roster.iter().map(|one| (one.device, one.period)).collect();
    let mut is_news = false;
    for (device, terms) in &mut terms {
        if !periods.contains_key(device) {
            is_news |= terms.note(since, None);
        }
    }
    for (&device, &period) in &periods {
        is_news |= terms.entry(device).or_default().note(since, Some(period));
    }
    let before = terms.len();
    terms.retain(|_, terms| !terms.ended_before(now.minus(TERMS_KEPT)));
    if is_news || terms.len() < before {
        store.keep_terms(&terms, now)?;
    }
    Ok(())
}

/// The standings that the board shows; those are durable.
pub(super) fn standings(board: &Board) -> Vec<Liveness> {
    let picture = board.look();
    let probed = picture
        .devices
        .values()
        .filter(|row| row.track.last_ping_at.is_some());
    probed
        .map(|row| Liveness {
            device: row.device.id,
            track: row.track,
        })
        .collect()
}

/// Where and how often the devices on the board are watched.
pub(super) fn watched(board: &Board) -> Vec<Watched> {
    let picture = board.look();
    let watched = picture.devices.values().filter(|row| row.device.enabled);
    watched
        .map(|row| Watched {
            device: row.device.id,
            address: row.device.address,
            period: row.rules.heartbeat_period,
        })
        .collect()
}

/// Flushes; a full store gives up its oldest days past their retention, one by
/// one, until it takes the frame; those without a summary are lost. Newer days stay, and the frame waits.
fn flush(
    store: &Store,
    now: Wall,
    raw_retention: Duration,
    lost_days: &mut Vec<Day>,
) -> Result<(), WriteError> {
    loop {
        let result = store.flush_raw(now);
        if !matches!(result, Err(WriteError::Full { .. })) {
            return result;
        }
        let days = store.raw_days().unwrap_or_default();
        let Some(day) = past_retention(&days, now, raw_retention) else {
            return result;
        };
        let is_summarised = store.final_days().is_ok_and(|days| days.contains(&day));
        store.remove_raw_day(day)?;
        if !is_summarised {
            lost_days.push(day);
        }
    }
}

/// The oldest day, if `raw_retention` has passed since its end.
fn past_retention(days: &[Day], now: Wall, raw_retention: Duration) -> Option<Day> {
    days.first()
        .copied()
        .filter(|day| day.end().plus(raw_retention) <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::{Occasion, Outcome, Sample};
    use crate::domain::status::Status;
    use crate::store::Options;

    const TWO_DAYS: Duration = Duration::from_hours(48);

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    #[test]
    fn retention_counts_from_the_days_end() {
        let days = [day("2026-03-12"), day("2026-03-13")];
        let at = |text| Wall::parse(text).unwrap();
        assert_eq!(
            past_retention(&days, at("2026-03-14T23:59:59.999Z"), TWO_DAYS),
            None
        );
        assert_eq!(
            past_retention(&days, at("2026-03-15T00:00:00Z"), TWO_DAYS),
            Some(days[0])
        );
        assert_eq!(
            past_retention(&[], at("2026-03-15T00:00:00Z"), TWO_DAYS),
            None
        );
    }

    #[test]
    fn a_full_store_gives_up_old_days_and_never_those_within_their_retention() {
        let home = tempfile::tempdir().unwrap();
        let options = Options {
            path: home.path().join("data"),
            site: "site-1".into(),
            node: "gateway".into(),
            max_bytes: u64::MAX,
            min_free_bytes: 0,
        };
        let days = ["2026-03-10", "2026-03-11", "2026-03-14", "2026-03-15"].map(day);
        let now = days[3].start().plus(Duration::from_hours(12));
        let store = Store::open(&options, now).unwrap().store;
        let sample = |day: Day| Sample {
            device: "D7".parse().unwrap(),
            at: day.start().plus(Duration::from_hours(1)),
            outcome: Outcome::Replied { rtt_us: 1_000 },
            occasion: Occasion::Scheduled,
            status: Status::Online,
        };
        for day in days {
            store.push_raw(&[sample(day)]);
            store.flush_raw(now).unwrap();
        }
        store.set_limits(1, 0);
        store.push_raw(&[sample(days[3])]);
        let mut lost = Vec::new();
        let result = flush(&store, now, TWO_DAYS, &mut lost);
        assert!(matches!(result, Err(WriteError::Full { .. })), "{result:?}");
        assert_eq!(lost, days[..2]);
        assert_eq!(store.raw_days().unwrap(), days[2..]);
        store.set_limits(u64::MAX, 0);
        flush(&store, now, TWO_DAYS, &mut lost).unwrap();
        assert_eq!(lost.len(), 2);
    }
}
