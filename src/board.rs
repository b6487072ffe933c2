//! Floor 2: the latest picture of the gateway, for readers.
//!
//! `edge` writes it, `web` reads it; they meet nowhere else. A reader holds the
//! lock only while it copies what it needs.
//!
//! # Invariants
//!
//! - A status stands here only after the disk has it, or while the store is
//!   reported as failing or the clock as not trusted.
//! - Readers change nothing: what they want goes through [`command`].

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::config::settings::ProbeRules;
use crate::domain::device::Device;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::domain::status::{Status, Track};
use crate::domain::trust::{Distrust, Step};
use crate::{ping, store};

pub mod command;
mod dating;
mod devices;
mod node;
mod rollup;
mod uplink;

pub use devices::Devices;
pub use rollup::{Progress, Rollup};
pub use uplink::{TrafficOfDay, Uplink, UplinkState};

/// Recent heartbeats kept per device for its small bar.
pub const RECENT_MAX: usize = 30;

/// The picture, shared between one writer and many readers.
#[derive(Debug, Default)]
pub struct Board {
    picture: RwLock<Picture>,
}

/// All that a page can show without asking the store.
#[derive(Debug, Default)]
pub struct Picture {
    /// Every device of the inventory, disabled ones too, by id.
    pub devices: Devices,
    /// The gateway itself.
    pub gateway: Gateway,
}

/// One device.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its inventory entry.
    pub device: Arc<Device>,
    /// The rules that hold for it.
    pub rules: Arc<ProbeRules>,
    /// Its standing.
    pub track: Track,
    /// Its last heartbeats, oldest first, at most [`RECENT_MAX`].
    pub recent: VecDeque<Sample>,
}

/// The gateway itself.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    /// Site id.
    pub site: String,
    /// Site name.
    pub site_name: String,
    /// Region.
    pub region: String,
    /// Node name.
    pub node: String,
    /// Number of this start of the store.
    pub boot: u32,
    /// Name of this start, unlike that of any other start or gateway.
    pub boot_id: String,
    /// When the process started.
    pub started_at: Wall,
    /// The clock's standing.
    pub clock: ClockState,
    /// What is simulated, in one sentence; `None` in a real run.
    pub simulated: Option<String>,
    /// A configuration's standing.
    pub config: ConfigState,
    /// The probe engine's.
    pub probe: ProbeState,
    /// The store's.
    pub store: StoreState,
    /// The daily summaries'.
    pub rollup: Rollup,
    /// The way upstream.
    pub uplink: Uplink,
    /// The last node heartbeat.
    pub pulse: Pulse,
}

/// Whether the time is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockState {
    /// Why the clock is not trusted; `None`: it is. While it is not, every time
    /// from this start counts from 1970 and nothing is written under a day.
    pub distrust: Option<Distrust>,
    /// When that last turned; `None`: as at the start.
    pub since: Option<Wall>,
    /// How often the clock was set since the start.
    pub steps: u64,
    /// How it was set last, and the word that tells what was seen.
    pub last_step: Option<(Step, &'static str)>,
}

/// What configuration is in force.
#[derive(Clone, Debug, Default)]
pub struct ConfigState {
    /// The files read, in order; empty on built-in defaults alone.
    pub paths: Vec<PathBuf>,
    /// The inventory file in force; `None` on the built-in devices.
    pub inventory: Option<PathBuf>,
    /// When it was taken into force.
    pub loaded_at: Wall,
    /// Why the newest configuration or inventory was refused, if it was.
    pub last_error: Option<String>,
    /// Inventory rows that were refused, one sentence each.
    pub refused_rows: Vec<String>,
    /// What is allowed but looks wrong, one sentence each.
    pub warnings: Vec<String>,
}

/// How probing goes.
#[derive(Clone, Debug, Default)]
pub struct ProbeState {
    /// The engine.
    pub facts: ping::Facts,
    /// Its counts since the start.
    pub counters: ping::Counters,
    /// 99th percentile of how late sends left in the last minute, in ms.
    pub lateness_p99_ms: Option<f64>,
    /// When the scheduler last turned.
    pub turned_at: Option<Wall>,
    /// Whether the first round has begun.
    pub has_begun: bool,
}

/// How keeping goes.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    /// Whether the store is open.
    pub is_open: bool,
    /// Its sizes.
    pub figures: store::Figures,
    /// Since when and why nothing can be kept, if so.
    pub failing: Option<Failing>,
    /// What was repaired at the start, one sentence each.
    pub mended: Vec<String>,
}

/// A failure that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Since when.
    pub since: Wall,
    /// Why, for people.
    pub reason: String,
}

/// What the node says of itself at each interval.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    /// When this was taken.
    pub at: Option<Wall>,
    /// Own address towards the uplink; `None` where there is no route.
    pub ip: Option<IpAddr>,
    /// Resident memory of the process in megabytes (10^6 bytes).
    pub memory_mb: f64,
    /// Live asynchronous tasks.
    pub tasks: usize,
    /// Seconds since the start.
    pub uptime_s: u64,
}

/// How many enabled devices stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Online.
    pub online: usize,
    /// Degraded.
    pub degraded: usize,
    /// Offline.
    pub offline: usize,
    /// Without a verdict.
    pub unknown: usize,
}

impl Board {
    /// The picture, for a short look.
    pub fn look(&self) -> RwLockReadGuard<'_, Picture> {
        // A reader that panicked has changed nothing, so poison means nothing.
        self.picture.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the picture; only `edge` calls this.
    pub fn draw<T>(&self, change: impl FnOnce(&mut Picture) -> T) -> T {
        change(&mut self.picture.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Picture {
    /// Counts over all enabled devices.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in self.devices.values().filter(|row| row.device.enabled) {
            match row.track.status {
                Status::Online => counts.online += 1,
                Status::Degraded => counts.degraded += 1,
                Status::Offline => counts.offline += 1,
                Status::Unknown => counts.unknown += 1,
            }
        }
        counts
    }
}

impl Row {
    /// Adds a heartbeat to the small bar.
    pub fn remember(&mut self, sample: Sample) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
    }
}
