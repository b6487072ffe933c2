//! The recorder's writes, each on a blocking thread.
//!
//! Floor 3. `edge::recorder` starts one at a time and hears how it ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::status::Liveness;
use crate::store::{Store, WriteError};

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
    /// Where the devices are watched.
    Roster(Vec<(DeviceId, IpAddr)>),
    /// The last flush of all, whatever the limits say.
    Close,
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
            Work::Roster(addresses) => (Deed::Roster, store.remember_addresses(&addresses, now)),
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

/// Flushes; a full store gives up its oldest days past their retention, one by
/// one, until it takes the frame. Newer days stay, and the frame waits.
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
        store.remove_raw_day(day)?;
        lost_days.push(day);
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
