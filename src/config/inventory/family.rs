//! What holds between devices: parents, and addresses they share.
//!
//! Floor 1. `row::Roll` calls these when all rows are in.
//!
//! # Invariants
//!
//! - A parent that cannot be is dropped with a warning; the device runs.
//! - After [`adopt`] following parents ends at a device without one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use super::row::Notes;
use crate::config::fault::shown;
use crate::domain::device::{Device, DeviceId};

/// Most ids listed in one sentence.
const LISTED_MAX: usize = 5;

/// A device that names a parent.
pub(super) struct Child {
    /// Its place among the devices.
    pub(super) index: usize,
    /// What stands in its row.
    pub(super) parent: String,
    /// Where.
    pub(super) line: usize,
}

/// Sets the parents.
pub(super) fn adopt(devices: &mut [Device], children: &[Child], path: &Path, warnings: &mut Notes) {
    let places: BTreeMap<DeviceId, usize> = devices
        .iter()
        .enumerate()
        .map(|(index, device)| (device.id, index))
        .collect();
    for child in children {
        let Some(device) = devices.get_mut(child.index) else {
            continue;
        };
        let parent = child.parent.parse().ok();
        match parent.filter(|id| places.contains_key(id)) {
            Some(parent) if parent != device.id => device.parent = Some(parent),
            found => {
                let why = if found.is_some() {
                    "is the device itself"
                } else {
                    "is no device of this file"
                };
                let (id, line, parent) = (device.id, child.line, shown(&child.parent));
                warnings.add(|| {
                    let path = path.display();
                    format!("{path}:{line}: device {id}: parent {parent:?} {why}; it runs without a parent")
                });
            }
        }
    }
    for circle in circles(devices, &places) {
        for &index in &circle {
            if let Some(device) = devices.get_mut(index) {
                device.parent = None;
            }
        }
        let ids = circle.iter().filter_map(|&index| devices.get(index));
        let ids = listed(ids.map(|device| device.id));
        warnings.add(|| {
            let path = path.display();
            format!("{path}: parents go in a circle: {ids}; they run without a parent")
        });
    }
}

/// Groups of devices each of which is its own ancestor.
fn circles(devices: &[Device], places: &BTreeMap<DeviceId, usize>) -> Vec<Vec<usize>> {
    let above = |index: usize| {
        let parent = devices.get(index)?.parent?;
        places.get(&parent).copied()
    };
    let mut circles = Vec::new();
    // In which walk each device was first met.
    let mut met_in: Vec<Option<usize>> = vec![None; devices.len()];
    for start in 0..devices.len() {
        let mut walk = Vec::new();
        let mut next = Some(start);
        while let Some(index) = next {
            let Some(met) = met_in.get_mut(index) else {
                break;
            };
            match met {
                None => {
                    *met = Some(start);
                    walk.push(index);
                    next = above(index);
                }
                Some(walk_of) => {
                    if *walk_of == start {
                        let circle = walk.iter().skip_while(|&&place| place != index);
                        circles.push(circle.copied().collect());
                    }
                    break;
                }
            }
        }
    }
    circles
}

/// Warns of addresses that more than one probed device has.
pub(super) fn share(devices: &[Device], path: &Path, warnings: &mut Notes) {
    let mut at: BTreeMap<IpAddr, Vec<DeviceId>> = BTreeMap::new();
    for device in devices.iter().filter(|device| device.enabled) {
        at.entry(device.address).or_default().push(device.id);
    }
    for (address, ids) in at.iter().filter(|(_, ids)| ids.len() > 1) {
        warnings.add(|| {
            let ids = listed(ids.iter().copied());
            let path = path.display();
            format!("{path}: {address} is the address of {ids}: each is probed for itself")
        });
    }
}

/// Warns of addresses that hold on one link only.
pub(super) fn zones(devices: &[Device], path: &Path, warnings: &mut Notes) {
    let is_on_a_link = |device: &&Device| match device.address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let ids: Vec<DeviceId> = devices
        .iter()
        .filter(is_on_a_link)
        .map(|device| device.id)
        .collect();
    if !ids.is_empty() {
        warnings.add(|| {
            let ids = listed(ids.iter().copied());
            let path = path.display();
            format!("{path}: {ids}: link-local addresses need probe.interface to be reached")
        });
    }
}

/// The first ids of a sentence, and how many more there are.
pub(super) fn listed(ids: impl Iterator<Item = DeviceId>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let first: Vec<&str> = ids.iter().take(LISTED_MAX).map(String::as_str).collect();
    let more = ids.len() - first.len();
    if more == 0 {
        first.join(", ")
    } else {
        format!("{} and {more} more", first.join(", "))
    }
}
