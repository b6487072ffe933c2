//! `[probe]` and the profiles laid over it.
//!
//! Floor 1. Part of `config::check`.
//!
//! # Invariants
//!
//! - Every profile is whole: what it does not set it has from `[probe]`.
//! - `origins` names every key that is not at its built-in default.

use std::collections::BTreeSet;

use super::take;
use crate::config::Faults;
use crate::config::layer::{Entry, Rules, Source, Written};
use crate::config::settings::{Origin, ProbeRules, Settings, ThresholdValue};
use crate::config::tables::RULES;

const ENTER: &str = "degraded_rtt_ms";
const LEAVE: &str = "degraded_leave_rtt_ms";

/// Takes `[probe]` and all profiles.
pub(super) fn rules(
    written: &Written,
    settings: &mut Settings,
    bad: &mut BTreeSet<String>,
    faults: &mut Faults,
) {
    let mut probe = ProbeRules::default();
    lay(&written.probe, None, &mut probe, &mut |dotted, fault| {
        faults.add(fault);
        bad.insert(dotted);
    });
    if !written.probe.contains_key(LEAVE) {
        follow_enter(&mut probe);
    }
    for (name, own) in &written.profiles {
        let mut rules = probe.clone();
        lay(own, Some(name), &mut rules, &mut |dotted, fault| {
            faults.add(fault);
            bad.insert(dotted);
        });
        if !own.contains_key(LEAVE) && !written.probe.contains_key(LEAVE) {
            follow_enter(&mut rules);
        }
        settings.profiles.insert(name.clone(), rules);
    }
    settings.probe = probe;
}

/// Lays written values over `rules`.
fn lay(
    own: &Rules,
    profile: Option<&str>,
    rules: &mut ProbeRules,
    refuse: &mut dyn FnMut(String, String),
) {
    for key in RULES {
        let Some(entry) = own.get(key.name) else {
            continue;
        };
        let section = profile.map_or_else(|| "probe".into(), |name| format!("profile.{name}"));
        let dotted = format!("{section}.{}", key.name);
        match take(key, &dotted, entry, rules) {
            Ok(()) => note_origin(key.name, entry, profile, rules),
            Err(fault) => refuse(dotted, fault),
        }
    }
}

/// Writes down where a value comes from. A `default.toml` that repeats the
/// built-in value, as the shipped one does, changes nothing and is no origin.
fn note_origin(key: &'static str, entry: &Entry, profile: Option<&str>, rules: &mut ProbeRules) {
    let origin = match (&entry.source, profile) {
        (_, Some(name)) => Origin::Profile(name.into()),
        (Source::BaseFile(_), None) if is_built_in(key, rules) => return,
        (Source::Variable(_), None) => Origin::Env,
        (Source::BuiltIn | Source::BaseFile(_) | Source::File(_) | Source::Flag, None) => {
            Origin::Config
        }
    };
    rules.origins.insert(key, origin);
}

fn is_built_in(key: &str, rules: &ProbeRules) -> bool {
    value(key, rules) == value(key, &ProbeRules::default())
}

fn value(key: &str, rules: &ProbeRules) -> Option<ThresholdValue> {
    let mut thresholds = rules.thresholds().into_iter();
    thresholds
        .find(|threshold| threshold.key == key)
        .map(|threshold| threshold.value)
}

/// The leave threshold that nobody set is the enter threshold.
fn follow_enter(rules: &mut ProbeRules) {
    rules.status.degraded_leave_rtt_us = rules.status.degraded_rtt_us;
    match rules.origins.get(ENTER).cloned() {
        Some(origin) => rules.origins.insert(LEAVE, origin),
        None => rules.origins.remove(LEAVE),
    };
}
