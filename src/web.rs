//! Floor 3: the pages and the API of a gateway.
//!
//! `app` builds [`Shared`], turns it into a [`router`] and hands that to
//! [`serve()`]. Pages and API read the same picture, [`crate::board`]; only
//! heartbeats, daily rows and events are asked of the store, away from the async
//! threads.
//!
//! # Invariants
//!
//! - Nothing here writes: what a person wants goes through [`Command`].
//! - A GET changes nothing; a changing route takes only POST.
//! - Everything a device, a file or a peer says is escaped where it is printed.
//! - The picture's lock is never held across an await or while text is rendered.

use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::{Semaphore, mpsc};

use crate::board::Board;
use crate::board::command::Command;
use crate::clock::Clock;
use crate::config::settings;
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::store::{EventPage, ReadError};

mod access;
mod api;
mod assets;
mod chart;
mod device;
mod entry;
mod events;
mod fault;
mod frame;
mod health;
mod history;
mod kind;
mod listing;
mod metrics;
mod node;
mod overview;
mod query;
mod reading;
mod serve;
mod strip;
mod text;
mod wish;

pub use reading::events_of;
pub use serve::serve;

/// Reads one device's heartbeats of one day, ascending; blocks.
pub type Heartbeats = Arc<dyn Fn(DeviceId, Day) -> Result<Vec<Sample>, ReadError> + Send + Sync>;

/// Reads the rows of the days from the first to the second, of all devices or
/// one, ascending by day and device, as long as the last says to go on; blocks.
pub type Summaries = Arc<
    dyn Fn(Day, Day, Option<DeviceId>, &mut dyn FnMut(&Summary) -> bool) -> Result<(), ReadError>
        + Send
        + Sync,
>;

/// Reads the newest so many events below a number, of all devices or one,
/// newest first; blocks. Of one device fewer may come than there are: then
/// [`EventPage::older`] says where to go on.
pub type Events =
    Arc<dyn Fn(Option<DeviceId>, Option<u64>, usize) -> Result<EventPage, ReadError> + Send + Sync>;

/// What the pages stand on; built by `app`.
pub struct Shared {
    /// The latest picture.
    pub board: Arc<Board>,
    /// Where a day's heartbeats come from; called on a blocking thread.
    pub heartbeats: Heartbeats,
    /// Where the daily rows come from; called on a blocking thread.
    pub summaries: Summaries,
    /// Where the event log comes from; called on a blocking thread.
    pub events: Events,
    /// Where wishes go.
    pub commands: mpsc::Sender<Command>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The settings in force; a reload swaps them, see [`Shared::put_in_force`].
    pub settings: RwLock<Arc<InForce>>,
}

/// The part of the settings that the pages follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// `[web]`
    pub web: settings::Web,
    /// `[node]`
    pub node: settings::Node,
    /// `[rollup]`
    pub rollup: settings::Rollup,
}

/// What every handler holds: what it was given, and what it made at the start.
struct Front {
    shared: Arc<Shared>,
    tickets: access::Tickets,
    /// Bounds the blocking reads that run at once.
    reads: Semaphore,
}

/// Blocking reads at once: a browser that asks for many days must not fill the
/// pool of blocking threads, which the store's own writes need.
const READS_AT_ONCE: usize = 4;

impl Shared {
    /// The settings in force now.
    #[must_use]
    pub fn in_force(&self) -> Arc<InForce> {
        let held = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held)
    }

    /// Swaps the settings; requests under way end on the old ones.
    pub fn put_in_force(&self, settings: InForce) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// All routes. Answers under `web.base_path` and without it, so that it does
/// not matter whether a proxy strips the prefix.
pub fn router(shared: Arc<Shared>) -> Router {
    let front = Arc::new(Front {
        shared,
        tickets: access::Tickets::new(),
        reads: Semaphore::new(READS_AT_ONCE),
    });
    let routes = Router::new()
        .route("/", get(overview::page))
        .route("/devices/{id}", get(device::page))
        .route("/devices/{id}/probe", post(device::ask))
        .route("/history", get(history::page))
        .route("/events", get(events::page))
        .route("/node", get(node::page))
        .route("/static/{name}", get(assets::asset))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .nest("/api/v1", api::routes())
        .with_state(Arc::clone(&front));
    // The prefix has to go before a route is chosen, and a layer of the router
    // itself would run after; so the routes are the inside of another router.
    Router::new()
        .fallback_service(routes)
        .layer(from_fn_with_state(front, entry::enter))
}
