//! From what is written to what holds: every rule, all faults together.
//!
//! Floor 1. `config::load` calls [`settings`] once, with all layers gathered.
//!
//! # Invariants
//!
//! - A rule between two keys is checked only where both could be read, so that
//!   one mistake is one fault.
//! - A value that nobody set follows its rule here (`site.name` is the id, the
//!   leave threshold is the enter threshold), never later.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Value;

use super::fault::shown;
use super::key::{Key, Shape};
use super::layer::{Entry, Source, Written};
use super::settings::{Secret, Settings};
use super::tables::PROCESS;
use super::{Faults, file, rule};

mod pair;
mod probe;
mod warn;

use pair::Pairs;

/// Longest file that holds a secret.
const SECRET_BYTES_MAX: u64 = 16 << 10;

/// The settings that `written` stands for. Where faults were added they are
/// not to be used.
pub(super) fn settings(written: &mut Written, host_name: &str, faults: &mut Faults) -> Settings {
    let mut bad = std::mem::take(&mut written.bad);
    let mut settings = Settings::default();
    for key in PROCESS {
        if let Some(entry) = written.process.get(key.name)
            && let Err(fault) = take(key, key.name, entry, &mut settings)
        {
            faults.add(fault);
            bad.insert(key.name.to_owned());
        }
    }
    secrets(written, &mut settings, faults);
    probe::rules(written, &mut settings, &mut bad, faults);
    derive(written, host_name, &mut settings);
    if !written.is_partial {
        between_keys(written, &settings, &bad, faults);
    }
    let warnings = warn::about(&settings, written);
    written.warnings.extend(warnings);
    settings
}

/// Takes one written value, or says what is wrong with it.
fn take<T>(key: &Key<T>, dotted: &str, entry: &Entry, target: &mut T) -> Result<(), String> {
    if key.is_unset_by(&entry.value) {
        return Ok(());
    }
    key.take(&entry.value, target).map_err(|rule| {
        let (source, value) = (&entry.source, key.show(&entry.value));
        format!("{source}: {dotted} = {value} {rule}")
    })
}

/// Reads the secrets that stand in files.
fn secrets(written: &Written, settings: &mut Settings, faults: &mut Faults) {
    for key in PROCESS {
        let Shape::Secret(rule, set) = key.shape else {
            continue;
        };
        let file_key = format!("{}_file", key.name);
        let Some(entry) = written.process.get(file_key.as_str()) else {
            continue;
        };
        let Some(path) = entry.value.as_str().filter(|path| !path.is_empty()) else {
            continue;
        };
        let source = &entry.source;
        if let Some(plain) = written.process.get(key.name) {
            faults.add(format!(
                "{source}: {file_key} = {} cannot stand beside {} ({}): set one of them",
                shown(path),
                key.name,
                plain.source
            ));
            continue;
        }
        match secret_in(Path::new(path), rule) {
            Ok(secret) => set(settings, secret),
            Err(why) => faults.add(format!("{source}: {file_key} = {} {why}", shown(path))),
        }
    }
}

fn secret_in(path: &Path, rule: fn(&str) -> Result<(), String>) -> Result<Secret, String> {
    let bytes =
        file::bytes(path, SECRET_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"))?;
    let text = file::text(&bytes).map_err(|_| "must hold text in UTF-8")?;
    let secret = text.trim_end_matches(['\n', '\r']);
    rule(secret).map_err(|rule| format!("holds a secret that {rule}"))?;
    Ok(Secret::new(secret.to_owned()))
}

/// Fills in what follows from other values.
fn derive(written: &mut Written, host_name: &str, settings: &mut Settings) {
    if !is_set(written, "site.name") {
        settings.site.name.clone_from(&settings.site.id);
    }
    if !is_set(written, "node.name") {
        settings.node.name = rule::name_from_host(host_name);
        if settings.node.name != host_name {
            written.warnings.push(format!(
                "node.name is not set and the host name {:?} is no name for a node: it is called {:?}",
                shown(host_name),
                settings.node.name
            ));
        }
    }
    if settings.central.mqtt_url.is_none() {
        settings.central.mqtt_url.clone_from(&settings.uplink.url);
    }
}

fn is_set(written: &Written, key: &str) -> bool {
    let entry = written.process.get(key);
    entry.is_some_and(|entry| entry.value != Value::String(String::new()))
}

fn between_keys(
    written: &Written,
    settings: &Settings,
    bad: &BTreeSet<String>,
    faults: &mut Faults,
) {
    let mut pairs = Pairs {
        written,
        bad,
        profile: None,
        faults,
    };
    pairs.heartbeats_of_the_node(&settings.node);
    pairs.rollup(&settings.rollup);
    pairs.probe(&settings.probe);
    for (name, rules) in &settings.profiles {
        pairs.profile = Some(name);
        pairs.probe(rules);
    }
    pairs.profile = None;
    pairs.needs("uplink.password", "uplink.username");
    pairs.needs("uplink.password_file", "uplink.username");
    pairs.needs("uplink.client_cert_file", "uplink.client_key_file");
    pairs.needs("uplink.client_key_file", "uplink.client_cert_file");
}

/// Where a key's value comes from.
fn source_of(entry: Option<&Entry>) -> &Source {
    entry.map_or(&Source::BuiltIn, |entry| &entry.source)
}
