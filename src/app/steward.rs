//! Takes a changed configuration or inventory into force while all runs on.
//!
//! Floor 4. Wakes on SIGHUP, on a command from the page and when the inventory
//! file changes. A reload validates first and swaps then; on a fault the old
//! stays, the fault is logged and shown on the page. The store is never touched.
//!
//! # Invariants
//!
//! - Files are read on a blocking thread, one reload at a time: a large or slow
//!   file delays no probe. Wishes that come meanwhile share the next reading.
//! - The inventory file is looked at on a blocking thread too.
//! - A change that comes during a reading is seen at the next look.
//! - A file that is gone or blank is no order to forget the devices, and a row that
//!   is refused is none to forget its device.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tracing::{info, warn};

use self::looks::{LOOK_EVERY, Watch};
use super::roster::watched_again;
use crate::board::command::{Command, NotRolledUp};
use crate::board::{Board, ConfigState};
use crate::clock::Clock;
use crate::config::inventory::{self, Fingerprint, Inventory};
use crate::config::settings::Settings;
use crate::config::{self, Loaded};
use crate::domain::device::Device;
use crate::edge::monitor::Order;
use crate::edge::recorder::Keeping;
use crate::edge::rollup;
use crate::edge::seats::Watched;
use crate::edge::uplink;
use crate::store::Store;
use crate::web;

mod looks;

/// Who is watched: the inventory file's devices, or a simulated fleet.
#[derive(Debug, Clone)]
pub enum Devices {
    /// Those of the inventory file.
    Inventory,
    /// These, whatever the file says.
    Fixed(Vec<Device>),
}

/// The links of the steward.
#[derive(Debug)]
pub struct Links {
    /// SIGHUP, listened to since before the files were first read.
    pub hangup: Option<Signal>,
    /// Wishes from the page.
    pub commands: mpsc::Receiver<Command>,
    /// To the monitor.
    pub orders: mpsc::Sender<Order>,
    /// Where faults are shown.
    pub board: Arc<Board>,
    /// Whose limits a reload sets.
    pub store: Arc<Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What the page follows.
    pub web: Arc<web::Shared>,
    /// How heartbeats are kept, to the recorder.
    pub keeping: watch::Sender<Keeping>,
    /// How days are summarised and kept, to the rollup.
    pub rollup_rules: watch::Sender<rollup::Rules>,
    /// Days that people want summarised, to the rollup.
    pub rollup_wishes: mpsc::Sender<rollup::Wish>,
    /// `node.heartbeat_interval_ms`, to the pulse.
    pub pulse_interval: watch::Sender<Duration>,
    /// `[uplink]`, to the uplink.
    pub uplink_rules: watch::Sender<uplink::Rules>,
}

/// The steward.
#[derive(Debug)]
pub struct Steward {
    links: Links,
    request: config::Request,
    settings: Settings,
    devices: Devices,
    /// Who is watched now, with the rules in force.
    roster: Vec<Watched>,
    /// The inventory file.
    watch: Watch,
    /// The reading under way, and who waits for its end.
    reading: Option<JoinHandle<Result<Next, String>>>,
    asked: Vec<Asker>,
    /// Who waits for the reading after it; `None`: there need not be one.
    again: Option<Vec<Asker>>,
}

/// Who is told how a reload ended.
type Asker = oneshot::Sender<Result<(), String>>;

/// A configuration that has been checked and not yet taken into force.
#[derive(Debug)]
struct Next {
    loaded: Loaded,
    inventory: Inventory,
    /// The inventory file before it was read.
    seen: Option<Fingerprint>,
}

impl Steward {
    /// A steward of what `settings` says, which `request` loaded, and of the
    /// devices on the board.
    #[must_use]
    pub fn new(
        links: Links,
        request: config::Request,
        settings: Settings,
        devices: Devices,
    ) -> Self {
        let seen = inventory::fingerprint(&settings.inventory.file);
        let roster = roster_on(&links.board);
        Self {
            roster,
            watch: Watch::new(seen, links.clock.mono()),
            links,
            request,
            settings,
            devices,
            reading: None,
            asked: Vec::new(),
            again: None,
        }
    }

    /// Runs until `stop` turns true.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let clock = &self.links.clock;
            let look_at = clock.wake_for(self.watch.look_at, LOOK_EVERY);
            tokio::select! {
                _ = stop.wait_for(|&stop| stop) => return,
                () = heard(&mut self.links.hangup) => {
                    info!("SIGHUP: reading configuration and inventory again");
                    self.reload(None);
                }
                ended = ended(&mut self.reading) => self.conclude(ended),
                command = self.links.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                () = tokio::time::sleep_until(look_at) => self.look_at_inventory(),
                found = self.watch.ended() => self.judge(found),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Probe { device, answer } => {
                if self
                    .links
                    .orders
                    .try_send(Order::Probe { device, answer })
                    .is_err()
                {
                    warn!(device.id = %device, "too many orders wait, a probe on demand was dropped");
                }
            }
            Command::Reload { answer } => self.reload(Some(answer)),
            Command::Rollup { day, answer } => self.wish(rollup::Wish { day, answer }),
        }
    }

    fn wish(&self, wish: rollup::Wish) {
        if let Err(TrySendError::Full(wish)) = self.links.rollup_wishes.try_send(wish) {
            let busy = NotRolledUp::Running { day: wish.day };
            if wish.answer.send(Err(busy)).is_err() {
                info!(day = %wish.day, "nobody waits for the summary asked for any more");
            }
        }
    }

    fn look_at_inventory(&mut self) {
        let file = self.settings.inventory.file.clone();
        let now = self.links.clock.mono();
        match self.devices {
            Devices::Fixed(_) => self.watch.rest(now),
            Devices::Inventory => self.watch.begin(now, move || inventory::fingerprint(&file)),
        }
    }

    fn judge(&mut self, found: Result<Option<Fingerprint>, JoinError>) {
        match found {
            Ok(found) if self.watch.judge(found) => {
                info!(file = %self.settings.inventory.file.display(), "the inventory has changed");
                self.reload(None);
            }
            Ok(_) => {}
            Err(broken) => warn!(error = %broken, "a look at the inventory broke off"),
        }
    }

    /// Reads everything anew, or once more where it is being read already: what
    /// was read by now may be the old.
    fn reload(&mut self, asker: Option<Asker>) {
        if self.reading.is_some() {
            self.again.get_or_insert_default().extend(asker);
            return;
        }
        self.asked.extend(asker);
        let request = self.request.clone();
        let is_fixed = matches!(self.devices, Devices::Fixed(_));
        let before = self.devices_of_the_file();
        self.reading = Some(tokio::task::spawn_blocking(move || {
            read(&request, is_fixed, &before)
        }));
    }

    /// The devices in force, as far as they come from rows that a slip could spoil:
    /// the built-in ones do not.
    fn devices_of_the_file(&self) -> Vec<Arc<Device>> {
        let picture = self.links.board.look();
        if picture.gateway.config.inventory.is_none() {
            return Vec::new();
        }
        let devices = self
            .roster
            .iter()
            .map(|watched| Arc::clone(&watched.device));
        devices.collect()
    }

    fn conclude(&mut self, ended: Result<Result<Next, String>, JoinError>) {
        self.reading = None;
        let next = ended.unwrap_or_else(|broken| Err(format!("the reading broke off: {broken}")));
        let result = next.and_then(|next| self.take(next));
        if let Err(fault) = &result {
            warn!(error = %fault, "the new configuration is refused, the old one stays");
            self.links.board.draw(|picture| {
                picture.gateway.config.last_error = Some(fault.clone());
            });
        }
        for asker in self.asked.drain(..) {
            if asker.send(result.clone()).is_err() {
                tracing::debug!("nobody waits for the end of the reload any more");
            }
        }
        if let Some(askers) = self.again.take() {
            self.reload(None);
            self.asked = askers;
        }
    }

    /// A file that is gone, or was emptied to be written anew, must not take the
    /// devices with it.
    fn must_hold_devices(&self, inventory: &Inventory) -> Result<(), String> {
        let before = self.links.board.look().gateway.config.inventory.clone();
        let is_fixed = matches!(self.devices, Devices::Fixed(_));
        match (before, &inventory.file) {
            (Some(before), None) if !is_fixed => Err(format!(
                "{} is gone: its devices stay; a restart takes the built-in ones",
                before.display()
            )),
            (_, Some(file)) if inventory.is_blank && !is_fixed => Err(format!(
                "{} is empty: the devices in force stay; to watch none, leave its header line \
                 device_id,address",
                file.display()
            )),
            _ => Ok(()),
        }
    }

    fn take(&mut self, next: Next) -> Result<(), String> {
        let Next {
            mut loaded,
            inventory,
            seen,
        } = next;
        self.must_hold_devices(&inventory)?;
        loaded.warnings.extend(keep_what_needs_a_restart(
            &self.settings,
            &mut loaded.settings,
        ));
        let settings = loaded.settings.clone();
        let devices = match &self.devices {
            Devices::Inventory => inventory.devices.clone(),
            Devices::Fixed(devices) => devices.clone(),
        };
        let roster = watched_again(devices, &settings, &self.roster);
        self.links
            .orders
            .try_send(Order::Roster(roster.clone()))
            .map_err(|_| "too many orders wait, try again".to_owned())?;
        self.roster = roster;
        self.links
            .store
            .set_limits(settings.store.max_bytes, settings.store.min_free_bytes);
        self.links.keeping.send_replace(keeping(&settings));
        self.links
            .rollup_rules
            .send_replace(rollup_rules(&settings));
        self.links
            .pulse_interval
            .send_replace(settings.node.heartbeat_interval);
        self.links
            .uplink_rules
            .send_replace(uplink_rules(&settings));
        self.links.web.put_in_force(in_force(&settings));
        self.watch.is_read(seen);
        self.settings = settings;
        let state = config_state(&loaded, &inventory, &*self.links.clock);
        for warning in state.warnings.iter().chain(&state.refused_rows) {
            warn!("{warning}");
        }
        info!(
            refused = state.refused_rows.len(),
            "configuration and inventory are in force"
        );
        self.links.board.draw(|picture| {
            picture
                .gateway
                .site_name
                .clone_from(&self.settings.site.name);
            picture
                .gateway
                .region
                .clone_from(&self.settings.site.region);
            picture.gateway.config = state;
        });
        Ok(())
    }
}

fn roster_on(board: &Board) -> Vec<Watched> {
    let picture = board.look();
    let rows = picture.devices.values();
    rows.map(|row| Watched {
        device: Arc::clone(&row.device),
        rules: Arc::clone(&row.rules),
    })
    .collect()
}

/// Loads configuration and, where it counts, inventory. Blocks.
fn read(request: &config::Request, is_fixed: bool, before: &[Arc<Device>]) -> Result<Next, String> {
    let said = |faults: config::Faults| faults.to_string();
    let loaded = config::load(request);
    if is_fixed {
        return Ok(Next {
            loaded: loaded.map_err(said)?,
            inventory: Inventory::default(),
            seen: None,
        });
    }
    // Taken before: a change during the reading is then a change yet to come.
    let seen = loaded.map_or(None, |now| {
        inventory::fingerprint(&now.settings.inventory.file)
    });
    let (loaded, inventory) = config::reload_with_inventory(request, before).map_err(said)?;
    Ok(Next {
        loaded,
        inventory,
        seen,
    })
}

async fn ended(
    reading: &mut Option<JoinHandle<Result<Next, String>>>,
) -> Result<Result<Next, String>, JoinError> {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

/// The part of the settings that the pages follow.
#[must_use]
pub fn in_force(settings: &Settings) -> web::InForce {
    web::InForce {
        web: settings.web.clone(),
        node: settings.node.clone(),
        rollup: settings.rollup.clone(),
    }
}

/// How days are summarised and kept under these settings.
#[must_use]
pub fn rollup_rules(settings: &Settings) -> rollup::Rules {
    rollup::Rules {
        rollup: settings.rollup.clone(),
        history: settings.history,
        raw_retention: settings.store.raw_retention,
    }
}

/// How events go upstream.
#[must_use]
pub fn uplink_rules(settings: &Settings) -> uplink::Rules {
    uplink::Rules {
        uplink: settings.uplink.clone(),
        heartbeat_ttl: settings.node.heartbeat_ttl,
    }
}

/// How heartbeats are kept.
#[must_use]
pub const fn keeping(settings: &Settings) -> Keeping {
    Keeping {
        flush_every: settings.store.flush_every,
        raw_retention: settings.store.raw_retention,
    }
}

/// What the page says about the configuration now in force.
#[must_use]
pub fn config_state(loaded: &Loaded, inventory: &Inventory, clock: &dyn Clock) -> ConfigState {
    ConfigState {
        paths: loaded.files.clone(),
        inventory: inventory.file.clone(),
        loaded_at: clock.wall(),
        last_error: None,
        refused_rows: inventory.refused.clone(),
        warnings: loaded
            .warnings
            .iter()
            .chain(&inventory.warnings)
            .cloned()
            .collect(),
    }
}

/// Puts back what a running process cannot change, one sentence for each.
fn keep_what_needs_a_restart(old: &Settings, new: &mut Settings) -> Vec<String> {
    let mut kept = Vec::new();
    let mut keep = |key: &str, is_same: bool| {
        if !is_same {
            kept.push(format!(
                "{key} has changed: that needs a restart, the old value stays"
            ));
        }
    };
    keep("site.id", old.site.id == new.site.id);
    keep("node.name", old.node.name == new.node.name);
    keep("store.path", old.store.path == new.store.path);
    keep("web.listen", old.web.listen == new.web.listen);
    keep("probe.socket", old.sockets.socket == new.sockets.socket);
    keep("probe.engine", old.sockets.engine == new.sockets.engine);
    keep(
        "probe.interface",
        old.sockets.interface == new.sockets.interface,
    );
    keep("probe.source", old.sockets.source == new.sockets.source);
    if new.site.id != old.site.id && new.site.name == new.site.id {
        // It follows the id, which stays.
        new.site.name.clone_from(&old.site.name);
    }
    new.site.id.clone_from(&old.site.id);
    new.node.name.clone_from(&old.node.name);
    new.store.path.clone_from(&old.store.path);
    new.web.listen = old.web.listen;
    new.sockets.clone_from(&old.sockets);
    kept
}

/// The paths that a configuration came from, for the log.
#[must_use]
pub fn sources(files: &[PathBuf]) -> String {
    if files.is_empty() {
        return "built-in defaults".to_owned();
    }
    files
        .iter()
        .map(|file| file.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
