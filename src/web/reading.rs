//! What is asked of the store, on blocking threads: a day's heartbeats, daily
//! rows, the event log.
//!
//! Floor 3. Pages and API call this; at most [`super::READS_AT_ONCE`] reads run
//! at once, the others wait their turn. A store that cannot be read is a state
//! that passes, like a full disk: 503, with the reason, and of heartbeats with
//! what memory holds of the day.

use std::sync::Arc;

use super::Front;
use super::api::Samples;
use super::fault::Fault;
use super::kind::Kind;
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::store::{EventPage, ReadError, Store};
use crate::wire::record::logged;

/// Looks into the log for one request, of at most 20,000 entries each: what is
/// asked of a device with few events must not read the whole log.
const LOOKS_MAX: usize = 5;

/// The same bound where a kind is asked for, of whoever: so many slices of so many
/// entries, each of which is in memory at a time.
const SLICES_MAX: usize = 100;
const SLICE: usize = 1_000;

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first day.
    pub(super) from: Day,
    /// The last day, too.
    pub(super) to: Day,
    /// Whose; `None`: everyone's.
    pub(super) device: Option<DeviceId>,
}

/// What `shape` makes of the heartbeats of `device` on `day`, ascending. It runs
/// on the blocking thread too. A fault holds those still in memory.
pub(super) async fn heartbeats<T: Send + 'static>(
    front: &Front,
    device: DeviceId,
    day: Day,
    shape: impl FnOnce(Vec<Sample>) -> T + Send + 'static,
) -> Result<T, Fault> {
    let what = format!("The heartbeats of {device} on {day}");
    let read = Arc::clone(&front.shared.heartbeats);
    let done = blocking(front, &what, move || read(device, day).map(shape)).await?;
    done.map_err(|error| {
        let reason = told(&what, &error);
        let detail = format!(
            "{what} that are on disk cannot be read now: {reason}. What follows is only what is \
             still in memory; try again when the store is well."
        );
        let mut fault = Fault::unavailable(detail);
        fault.samples = Some(Box::new(Samples(error.in_memory)));
        fault
    })
}

/// Folds the rows of `span`, ascending by day and device, into `start`; `take`
/// says whether to go on. All of it runs on the blocking thread.
pub(super) async fn summaries<T: Send + 'static>(
    front: &Front,
    span: Span,
    start: T,
    mut take: impl FnMut(&mut T, &Summary) -> bool + Send + 'static,
) -> Result<T, Fault> {
    let read = Arc::clone(&front.shared.summaries);
    let fold = move || {
        let mut made = start;
        let mut each = |row: &Summary| take(&mut made, row);
        read(span.from, span.to, span.device, &mut each)?;
        Ok(made)
    };
    let what = format!("The summaries of {} to {}", span.from, span.to);
    let done = blocking(front, &what, fold).await?;
    done.map_err(|error| unread(&what, &error))
}

/// The rows of `span`, which has few days of one device.
pub(super) async fn rows(front: &Front, span: Span) -> Result<Vec<Summary>, Fault> {
    let take = |rows: &mut Vec<Summary>, row: &Summary| {
        rows.push(*row);
        true
    };
    summaries(front, span, Vec::new(), take).await
}

/// Which events are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sought {
    /// Whose; `None`: everyone's and the gateway's.
    pub(super) device: Option<DeviceId>,
    /// Of which kind; `None`: of all.
    pub(super) kind: Option<Kind>,
    /// Below this number; `None`: from the newest on.
    pub(super) before: Option<u64>,
    /// So many at most.
    pub(super) limit: usize,
}

/// What `shape` makes of the newest events that are sought, newest first.
pub(super) async fn events<T: Send + 'static>(
    front: &Front,
    sought: Sought,
    shape: impl FnOnce(EventPage) -> T + Send + 'static,
) -> Result<T, Fault> {
    let read = Arc::clone(&front.shared.events);
    let work = move || {
        let page = match sought.kind {
            Some(kind) => of_kind(&*read, sought, kind)?,
            None => read(sought.device, sought.before, sought.limit)?,
        };
        Ok(shape(page))
    };
    let what = "The events";
    let done = blocking(front, what, work).await?;
    done.map_err(|error| unread(what, &error))
}

/// Events of one kind: as many as are among 100,000 entries of the log.
fn of_kind(
    read: &dyn Fn(Option<DeviceId>, Option<u64>, usize) -> Result<EventPage, ReadError>,
    sought: Sought,
    kind: Kind,
) -> Result<EventPage, ReadError> {
    let needle = sought.device.as_ref().map(logged::needle_of);
    let is_sought =
        |json: &str| kind.is_of(json) && needle.as_ref().is_none_or(|needle| json.contains(needle));
    let mut found = EventPage {
        older: sought.before,
        ..EventPage::default()
    };
    for _ in 0..SLICES_MAX {
        let slice = read(None, found.older, SLICE)?;
        let is_last = slice.events.len() < SLICE;
        found.older = slice.events.last().map(|event| event.seq);
        for event in slice.events {
            if found.events.len() >= sought.limit {
                return Ok(found);
            }
            if is_sought(&event.json) {
                // A full page goes on below the last of its own.
                if found.events.len() + 1 == sought.limit {
                    found.older = Some(event.seq);
                }
                found.events.push(event);
            }
        }
        if is_last {
            found.older = None;
        }
        if is_last || found.events.len() >= sought.limit {
            break;
        }
    }
    Ok(found)
}

/// The newest `limit` events below `before`, newest first, of all devices or one:
/// of one, as many as are among 100,000 entries of the log.
///
/// # Errors
///
/// [`ReadError`] where the log cannot be read.
pub fn events_of(
    store: &Store,
    device: Option<DeviceId>,
    before: Option<u64>,
    limit: usize,
) -> Result<EventPage, ReadError> {
    let mut found = store.events_page(device, before, limit)?;
    for _ in 1..LOOKS_MAX {
        let missing = limit.saturating_sub(found.events.len());
        if missing == 0 || found.older.is_none() {
            break;
        }
        let page = store.events_page(device, found.older, missing)?;
        found.events.extend(page.events);
        found.older = page.older;
    }
    Ok(found)
}

async fn blocking<T: Send + 'static>(
    front: &Front,
    what: &str,
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<Result<T, ReadError>, Fault> {
    let broke_off = || {
        Fault::unavailable(format!(
            "{what} cannot be read now: the reading broke off; the log says why."
        ))
    };
    let _turn = front.reads.acquire().await.map_err(|_| broke_off())?;
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(subject = what, %error, "a reading broke off");
        broke_off()
    })
}

fn unread(what: &str, error: &ReadError) -> Fault {
    let reason = told(what, error);
    Fault::unavailable(format!(
        "{what} cannot be read now: {reason}. Try again when the store is well."
    ))
}

/// Logs the fault; the reason is what the asker may know.
fn told(what: &str, error: &ReadError) -> String {
    let reason = error.reason();
    tracing::warn!(subject = what, %error, cause = reason, "the store cannot be read");
    reason
}
