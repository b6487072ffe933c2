//! The opening of a store, step by step.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use super::database::Fault;
use super::fair::Fair;
use super::keeper::Keeper;
use super::months::Months;
use super::raw::RawDays;
use super::recall::{self, Recalled};
use super::step::Voice;
use super::{Figures, Limits, OpenError, Opened, Options, Store, disk, folder, threads};
use crate::domain::instant::Wall;

pub(super) fn open(options: &Options, now: Wall) -> Result<Opened, OpenError> {
    let mut mended = Vec::new();
    match open_telling(options, now, &mut mended) {
        Ok(store) => Ok(Opened { mended, ..store }),
        Err(fault) => {
            // Nobody else will tell of it: the next start finds it mended.
            for what in mended {
                tracing::error!("{what}");
            }
            Err(fault)
        }
    }
}

/// Opens the store, and tells what was mended even where that fails.
fn open_telling(
    options: &Options,
    now: Wall,
    mended: &mut Vec<String>,
) -> Result<Opened, OpenError> {
    let path = &options.path;
    let written_before = disk::written_bytes().unwrap_or(0);
    let folder = folder::claim(path)?;
    mended.extend(folder.mended);
    let unusable = |part: &str| {
        let deed = format!("open {part} of the store {}", path.display());
        move |fault: Fault| match fault {
            // Its LOCK was removed, or the lock would have told.
            Fault::Locked => OpenError::Locked { path: path.clone() },
            fault @ (Fault::Io(_) | Fault::Damaged(_) | Fault::Closed) => OpenError::Unusable {
                deed,
                source: fault.into(),
            },
        }
    };
    let voice = Voice {
        site: options.site.clone(),
        node: options.node.clone(),
    };
    let mut keeper = threads::with_lazy_timers(|| Keeper::open(folder::state(path), voice, now))
        .map_err(unusable("the state"))?;
    mended.append(&mut keeper.mended);
    let mut raw = RawDays::open(folder::raw(path), now)
        .map_err(|error| unusable("the raw days")(error.into()))?;
    mended.append(&mut raw.mended);
    let mut months = Months::open(folder::daily(path), now)
        .map_err(|error| unusable("the summary rows")(error.into()))?;
    mended.append(&mut months.mended);
    folder::sync(path).map_err(|error| unusable("the folder")(error.into()))?;
    let found = take_stock(&mut keeper, &mut raw, now, folder.is_new, mended);
    mended.append(&mut keeper.mended);
    mended.append(&mut raw.mended);
    let (recalled, boot) = found.map_err(unusable("the state"))?;
    let addresses = keeper
        .database(now)
        .and_then(|state| state.addresses())
        .map_err(unusable("the state"))?;
    let figures = Figures {
        bytes: disk::bytes_below(path),
        free_bytes: disk::free_bytes(path).unwrap_or(u64::MAX),
        events: keeper.events_count().unwrap_or_default(),
        ..Figures::default()
    };
    let limits = Limits {
        max_bytes: options.max_bytes,
        min_free_bytes: options.min_free_bytes,
    };
    let mut store = assemble(path, (keeper, raw, months), folder.lock);
    (store.boot, store.written_before) = (boot, written_before);
    (store.limits, store.figures) = (Mutex::new(limits), Mutex::new(figures));
    Ok(Opened {
        store,
        boot,
        standings: recalled.standings,
        addresses,
        mended: Vec::new(),
    })
}

/// Opens what is there to read it: makes, mends and counts nothing.
pub(super) fn open_to_read(path: &Path) -> Result<Store, OpenError> {
    let lock = folder::claim_to_read(path)?;
    let voice = Voice {
        site: String::new(),
        node: String::new(),
    };
    let parts = (
        Keeper::to_read(folder::state(path), voice),
        RawDays::to_read(folder::raw(path)),
        Months::to_read(folder::daily(path)),
    );
    Ok(assemble(path, parts, lock))
}

fn assemble(path: &Path, (keeper, raw, months): (Keeper, RawDays, Months), lock: File) -> Store {
    Store {
        path: path.to_owned(),
        boot: 0,
        written_before: 0,
        limits: Mutex::new(Limits {
            max_bytes: u64::MAX,
            min_free_bytes: 0,
        }),
        figures: Mutex::default(),
        outbox: keeper.shown(),
        news: keeper.news(),
        keeper: Fair::new(keeper),
        raw: Fair::new(raw),
        months: Fair::new(months),
        frame: Mutex::default(),
        lock: Mutex::new(Some(lock)),
    }
}

/// Puts the standings together, makes sure that no event number is given out
/// twice, and counts this start.
fn take_stock(
    keeper: &mut Keeper,
    raw: &mut RawDays,
    now: Wall,
    is_new: bool,
    mended: &mut Vec<String>,
) -> Result<(Recalled, u32), Fault> {
    let state = keeper.database(now)?;
    let (steps, checkpoint) = (state.standings()?, state.checkpoint()?);
    let (next_seq, is_rebuilt) = (state.place().next_seq, state.place().is_rebuilt);
    let was_lost = state.was_empty() && !is_rebuilt && !is_new && !raw.days()?.is_empty();
    let mut trusts_raw = is_rebuilt || was_lost;
    let mut recalled = recall::recall(&steps, checkpoint.as_ref(), trusts_raw, raw, mended);
    if recalled.next_seq > next_seq && !trusts_raw {
        mended.push(format!(
            "the event log ends at number {}, but raw heartbeats tell of events up to {}: what \
             is missing is lost, and a new event log begins",
            next_seq.saturating_sub(1),
            recalled.next_seq.saturating_sub(1),
        ));
        trusts_raw = true;
        recalled = recall::recall(
            &steps,
            checkpoint.as_ref(),
            trusts_raw,
            raw,
            &mut Vec::new(),
        );
    }
    if was_lost {
        mended.push(
            "the state is gone though raw heartbeats are there: a new event log begins, verdicts \
             come from raw heartbeats"
                .into(),
        );
    }
    if trusts_raw {
        // No number that was ever given out is given out again.
        keeper.begin_log(recalled.next_seq.max(next_seq), now)?;
        keeper.restore(&recalled.standings, now)?;
    }
    let boot = keeper.database(now)?.count_boot(recalled.boot)?;
    Ok((recalled, boot))
}
