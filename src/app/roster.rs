//! From inventory and settings to what the monitor watches, and to the picture
//! of it before the first report.
//!
//! Floor 4. Devices of one profile share one set of rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::board::Devices;
use crate::config::settings::{ProbeRules, Settings};
use crate::domain::device::{Device, DeviceId};
use crate::domain::status::{Liveness, Track};
use crate::edge::report::Member;
use crate::edge::seats::Watched;

/// Every device with the rules that hold for it.
#[must_use]
pub fn watched(devices: Vec<Device>, settings: &Settings) -> Vec<Watched> {
    watched_again(devices, settings, &[])
}

/// [`watched`] in place of `before`. A device whose old row stays may name a profile
/// that is gone from the settings: it keeps the rules that this profile had.
#[must_use]
pub fn watched_again(
    devices: Vec<Device>,
    settings: &Settings,
    before: &[Watched],
) -> Vec<Watched> {
    let is_gone = |profile: &str| !settings.profiles.contains_key(profile);
    let mut shared: BTreeMap<Option<String>, Arc<ProbeRules>> = before
        .iter()
        .filter(|old| old.device.profile.as_deref().is_some_and(is_gone))
        .map(|old| (old.device.profile.clone(), Arc::clone(&old.rules)))
        .collect();
    let watch = |device: Device| {
        let rules = shared
            .entry(device.profile.clone())
            .or_insert_with(|| Arc::new(settings.rules_for(device.profile.as_deref()).clone()));
        Watched {
            rules: Arc::clone(rules),
            device: Arc::new(device),
        }
    };
    devices.into_iter().map(watch).collect()
}

/// The board's rows at the start: a page asked before the first report must show
/// the standings of before the restart, not an empty site.
#[must_use]
pub fn rows_at_start(roster: &[Watched], standings: &[Liveness]) -> Devices {
    let known: BTreeMap<DeviceId, Track> = standings
        .iter()
        .map(|known| (known.device, known.track))
        .collect();
    let row = |watched: &Watched| {
        let known = known.get(&watched.device.id);
        let track = known.filter(|_| watched.device.enabled).copied();
        Member {
            device: Arc::clone(&watched.device),
            rules: Arc::clone(&watched.rules),
            track: track.unwrap_or_default(),
        }
        .row(None)
    };
    roster.iter().map(row).collect()
}
