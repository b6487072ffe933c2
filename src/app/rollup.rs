//! `sitebeat rollup`: summarises days of a store that no process runs on.
//!
//! Floor 4. The same work as that of a running gateway, asked for by hand.

use tracing::{info, warn};

use super::exit::Failure;
use super::offline::enter;
use super::opening::open_store;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Request};
use crate::domain::day::Day;
use crate::edge::rollup::plan::by_hand;
use crate::edge::rollup::work::summarise;
use crate::fault::chain;
use crate::store::ReadError;

/// Summarises `day`, or every day that is over and whose raw is there.
///
/// # Errors
///
/// Faults of configuration, a store in use or not usable, a day that cannot be
/// summarised.
pub(super) fn rollup(request: &Request, day: Option<Day>) -> Result<(), Failure> {
    let mut settings = config::load(request)
        .map_err(|faults| Failure::Usage(faults.to_string()))?
        .settings;
    let path = settings.store.path.display().to_string();
    let entered = enter(&settings.store.path, "rollup")?;
    // A store that is not there must not be made, only to find it empty.
    drop(entered.read()?);
    settings.store.path.clone_from(&entered.path);
    let clock = SystemClock::new();
    let opened = open_store(&settings, &clock).map_err(|fault| entered.told(fault))?;
    for mended in &opened.mended {
        warn!("{}", entered.in_words(mended));
    }
    let store = opened.store;
    let unread = |fault: ReadError| Failure::Running(chain(&fault));
    let kept = store.raw_days().map_err(unread)?;
    if let Some(day) = day
        && !kept.contains(&day)
    {
        return Err(Failure::Running(format!(
            "no heartbeats of {day} are kept in {path}: there is nothing to summarise"
        )));
    }
    let mut summarised = 0;
    let wanted = |one: &Day| day.is_none_or(|day| *one == day);
    for one in kept.into_iter().filter(wanted) {
        let Some(job) = by_hand(one, clock.wall(), &settings.rollup) else {
            if day.is_some() {
                return Err(Failure::Running(format!(
                    "{one} is not over yet, it ends at {}",
                    one.end()
                )));
            }
            continue;
        };
        let done = summarise(&store, job, clock.wall())
            .map_err(|fault| Failure::Running(chain(&fault)))?;
        info!(day = %one, rows = done.rows.changed, unchanged = done.rows.kept, "day summarised");
        summarised += 1;
    }
    if summarised == 0 {
        info!(
            store = path,
            "no day summarised: no heartbeats of a day that is over are kept here"
        );
    }
    store
        .close(clock.wall())
        .map_err(|fault| Failure::Running(chain(&fault)))
}
