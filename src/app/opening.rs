//! Opens what a gateway stands on: probe engine, store, listener, picture.
//!
//! Floor 4. `app::run` calls these in order before any task starts.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;

use tracing::{info, warn};

use super::exit::Failure;
use super::run::Plan;
use super::steward;
use crate::board::{Board, ClockState, Gateway};
use crate::clock::{self, Clock};
use crate::config::inventory;
use crate::config::settings::{EngineChoice, Settings};
use crate::domain::device::Device;
use crate::domain::instant::Wall;
use crate::domain::status::Liveness;
use crate::ping::fleet::Fleet;
use crate::ping::surge::Surge;
use crate::ping::{self, Probe};
use crate::store::{self, Store};

/// A simulated fleet.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Its seed.
    pub seed: u64,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// Names the time up to which a clock is not trusted, in place of the build's day.
pub const PLAUSIBLE_AFTER: &str = "SITEBEAT_PLAUSIBLE_AFTER";

/// Times up to this cannot be true.
pub(super) fn plausible_after(variables: &[(String, String)]) -> Result<Wall, Failure> {
    let set = variables.iter().find(|(name, _)| name == PLAUSIBLE_AFTER);
    match set.map(|(_, value)| value.as_str()) {
        None | Some("") => Ok(clock::built_on()),
        Some(text) => Wall::parse(text).ok_or_else(|| {
            Failure::Usage(format!(
                "{PLAUSIBLE_AFTER} = {text:?} must be a time like 2026-03-12T00:00:00Z"
            ))
        }),
    }
}

/// The newest time that the store knows of.
pub(super) fn newest_kept(standings: &[Liveness]) -> Option<Wall> {
    let times = |known: &Liveness| known.track.last_ping_at.max(known.track.updated_at);
    standings.iter().filter_map(times).max()
}

pub(super) fn open_probe(plan: &Plan, clock: &Arc<dyn Clock>) -> Result<Box<dyn Probe>, Failure> {
    if let Some(simulation) = &plan.simulation {
        let devices: Vec<_> = simulation
            .devices
            .iter()
            .map(|device| (device.id, device.address))
            .collect();
        return Ok(Box::new(Fleet::new(
            simulation.seed,
            &devices,
            Arc::clone(clock),
        )));
    }
    Ok(open_engine(&plan.loaded.settings, clock)?)
}

/// Opens the engine that the settings choose. Must run inside a runtime.
pub fn open_engine(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Probe>, ping::OpenError> {
    let sockets = &settings.sockets;
    let options = ping::Options {
        engine: sockets.engine,
        socket: sockets.socket,
        source: sockets.source,
        interface: sockets.interface.clone(),
    };
    let is_batch = match sockets.engine {
        EngineChoice::Auto => cfg!(target_os = "linux"),
        EngineChoice::Batch => true,
        EngineChoice::Surge => false,
    };
    if is_batch {
        open_batch(&options, clock)
    } else {
        Ok(Box::new(Surge::open(&options, Arc::clone(clock))?))
    }
}

#[cfg(target_os = "linux")]
fn open_batch(
    options: &ping::Options,
    clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Probe>, ping::OpenError> {
    Ok(Box::new(ping::batch::Batch::open(
        options,
        Arc::clone(clock),
    )?))
}

#[cfg(not(target_os = "linux"))]
fn open_batch(
    _options: &ping::Options,
    _clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Probe>, ping::OpenError> {
    Err(ping::OpenError::Unsupported(
        "probe.engine = \"batch\" needs Linux: choose \"surge\" or \"auto\"".to_owned(),
    ))
}

pub(super) fn open_store(
    settings: &Settings,
    clock: &dyn Clock,
) -> Result<store::Opened, store::OpenError> {
    let options = store::Options {
        path: settings.store.path.clone(),
        site: settings.site.id.clone(),
        node: settings.node.name.clone(),
        max_bytes: settings.store.max_bytes,
        min_free_bytes: settings.store.min_free_bytes,
    };
    let opened = Store::open(&options, clock.wall())?;
    Ok(opened)
}

/// What helps against a fault of listening.
pub(super) fn listen_cure(fault: &std::io::Error) -> &'static str {
    let kind = fault.kind();
    if kind == ErrorKind::AddrInUse {
        "choose another port, or stop what uses this one"
    } else if kind == ErrorKind::AddrNotAvailable {
        "this machine has no such address: choose one of its own, 127.0.0.1, or 0.0.0.0 for all"
    } else if kind == ErrorKind::PermissionDenied {
        "ports below 1024 take CAP_NET_BIND_SERVICE: choose one from 1024"
    } else {
        "choose another address or port"
    }
}

pub(super) fn listen(settings: &Settings) -> Result<TcpListener, Failure> {
    let address = settings.web.listen;
    let listener = TcpListener::bind(address).map_err(|fault| {
        let cure = listen_cure(&fault);
        Failure::Running(format!(
            "cannot listen on web.listen = {address}: {fault}; {cure}"
        ))
    })?;
    listener
        .set_nonblocking(true)
        .map_err(|fault| Failure::Running(format!("cannot set up {address}: {fault}")))?;
    Ok(listener)
}

pub(super) fn draw_start(
    board: &Board,
    plan: &Plan,
    opened: &store::Opened,
    probe: &dyn Probe,
    clock: &dyn Clock,
) {
    let settings = &plan.loaded.settings;
    let config = steward::config_state(&plan.loaded, &plan.inventory, clock);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        site.id = settings.site.id,
        node.name = settings.node.name,
        config = steward::sources(&plan.loaded.files),
        inventory = plan.devices_from(),
        store = %settings.store.path.display(),
        "starting",
    );
    for warning in config.warnings.iter().chain(&config.refused_rows) {
        warn!("{warning}");
    }
    let facts = probe.facts();
    info!(engine = facts.engine, socket = facts.socket, "probing");
    for limit in &facts.limits {
        info!("{limit}");
    }
    if let Some(distrust) = clock.distrust() {
        warn!(
            reason = distrust.sentence(),
            "nothing is written until the clock is trusted"
        );
    }
    board.draw(|picture| {
        picture.gateway = Gateway {
            site: settings.site.id.clone(),
            site_name: settings.site.name.clone(),
            region: settings.site.region.clone(),
            node: settings.node.name.clone(),
            boot: opened.boot,
            boot_id: boot_id(opened.boot),
            started_at: clock.wall(),
            clock: ClockState {
                distrust: clock.distrust(),
                ..ClockState::default()
            },
            simulated: plan.simulation.as_ref().map(Simulation::sentence),
            config,
            ..Gateway::default()
        };
        picture.gateway.probe.facts = facts;
        picture.gateway.store.is_open = true;
        picture.gateway.store.figures = opened.store.figures();
        picture.gateway.store.mended.clone_from(&opened.mended);
    });
}

/// A name of this start that no other gateway shares, not even one with a copy
/// of the store: the hasher's keys come from the system's randomness.
fn boot_id(boot: u32) -> String {
    let random = RandomState::new().hash_one(boot);
    format!("{boot}-{:08x}", random >> 32)
}

impl Plan {
    /// Where the devices come from, for the log.
    fn devices_from(&self) -> String {
        match (&self.simulation, &self.inventory.file) {
            (Some(simulation), _) => simulation.sentence(),
            (None, Some(file)) => file.display().to_string(),
            (None, None) => inventory::BUILT_IN.to_owned(),
        }
    }
}

impl Simulation {
    fn sentence(&self) -> String {
        let Self { seed, devices } = self;
        format!(
            "{} simulated devices from seed {seed}: no network is probed.",
            devices.len()
        )
    }
}
