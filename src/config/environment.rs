//! Environment variables as a layer of the configuration.
//!
//! Floor 1. Called by `layer`. `SITEBEAT__SECTION__KEY` sets `section.key`,
//! `SITEBEAT__PROFILE__NAME__KEY` a key of a profile; values are TOML values,
//! plain texts need no quotes. `NODE_HEARTBEAT_INTERVAL` and
//! `NODE_HEARTBEAT_TTL` are accepted too, in seconds.
//!
//! # Invariants
//!
//! - Variables with a single underscore (`SITEBEAT_ENV`) are no keys and are
//!   left alone.
//! - The outcome does not depend on the order of the variables.

use std::time::Duration;

use toml::Value;

use super::Faults;
use super::fault::shown;
use super::layer::{Source, Written, place};

const PREFIX: &str = "SITEBEAT__";

/// Names given by the systems around, with the key each one sets.
const IN_SECONDS: [(&str, &str); 2] = [
    ("NODE_HEARTBEAT_INTERVAL", "heartbeat_interval_ms"),
    ("NODE_HEARTBEAT_TTL", "heartbeat_ttl_ms"),
];

/// Puts every variable of ours into `written`.
pub(super) fn gather(variables: &[(String, String)], written: &mut Written, faults: &mut Faults) {
    let mut sorted: Vec<_> = variables.iter().collect();
    sorted.sort_unstable();
    for (variable, key) in IN_SECONDS {
        let found = sorted.iter().find(|(name, _)| name == variable);
        if let Some((_, value)) = found {
            seconds(variable, key, value, written, faults);
        }
    }
    for (name, value) in sorted {
        if let Some(rest) = name.strip_prefix(PREFIX) {
            dotted(name, rest, value, written, faults);
        }
    }
}

fn seconds(variable: &str, key: &str, text: &str, written: &mut Written, faults: &mut Faults) {
    let millis = text
        .trim()
        .parse()
        .ok()
        .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
        .and_then(|duration| i64::try_from(duration.as_millis()).ok());
    let Some(millis) = millis else {
        written.bad.insert(format!("node.{key}"));
        faults.add(format!(
            "environment variable {variable}: {variable} = {} must be a number of seconds (it sets node.{key})",
            shown(text)
        ));
        return;
    };
    let source = Source::Variable(variable.into());
    written.put(&["node", key], Value::Integer(millis), &source, faults);
}

fn dotted(name: &str, rest: &str, value: &str, written: &mut Written, faults: &mut Faults) {
    let source = Source::Variable(name.into());
    let lower = rest.to_lowercase();
    let mut parts: Vec<&str> = lower.split("__").collect();
    let profile = match parts.as_slice() {
        ["profile", name, _] => Some(written.profile_named_like(name)),
        _ => None,
    };
    if let (Some(profile), Some(part)) = (&profile, parts.get_mut(1)) {
        *part = profile;
    }
    let value = place(&parts).map_or_else(
        || Value::String(value.to_owned()),
        |place| place.value_of(value),
    );
    // `process_variables` puts this mark where bytes were no text.
    if value.as_str().is_some_and(|text| text.contains('\u{fffd}')) {
        faults.add(format!("{source}: its value is not UTF-8"));
        return;
    }
    if let Some(key) = written.set_by_variable(&parts) {
        written.warnings.push(format!(
            "environment variable {key} is not used: {name} sets the same key"
        ));
    }
    written.put(&parts, value, &source, faults);
}
