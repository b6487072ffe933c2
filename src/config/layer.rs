//! The layers, laid over each other: which value each key was given, and where.
//!
//! Floor 1. `config::load` calls [`gather`]; `check` takes what came of it.
//!
//! # Invariants
//!
//! - Every written key is either known and kept, or one fault.
//! - Of two values for one key the later layer's is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::fault::{nearest, shown};
use super::key::Key;
use super::settings::{ProbeRules, Settings};
use super::tables::{NOT_BUILT, PROCESS, RULES};
use super::{Environment, Faults, Request, environment, file, rule};

/// Most profiles: each is checked and kept whole.
const PROFILES_MAX: usize = 1_000;

/// What all layers together say.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Keys of the whole process, by dotted name.
    pub(super) process: BTreeMap<&'static str, Entry>,
    /// Keys of `[probe]` that hold for a device.
    pub(super) probe: Rules,
    /// The same keys in each `[profile.NAME]`.
    pub(super) profiles: BTreeMap<String, Rules>,
    /// Files read, in order.
    pub(super) files: Vec<PathBuf>,
    /// What is allowed but looks wrong.
    pub(super) warnings: Vec<String>,
    /// Keys whose value is a fault already, by dotted name.
    pub(super) bad: BTreeSet<String>,
    /// Whether a file could not be read, so that keys may be missing.
    pub(super) is_partial: bool,
}

/// Written values by name of the key, without section.
pub(super) type Rules = BTreeMap<&'static str, Entry>;

/// A written value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// As written.
    pub(super) value: Value,
    /// By whom.
    pub(super) source: Source,
}

/// Who wrote a value; the order is that of the layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Nobody: it is built in.
    #[default]
    BuiltIn,
    /// A folder's `default.toml`.
    BaseFile(PathBuf),
    /// `{env}.toml`, or the one file given.
    File(PathBuf),
    /// This environment variable.
    Variable(String),
    /// The command line.
    Flag,
}

/// Where a key belongs.
pub(super) enum Place {
    /// To the whole process.
    Process(&'static Key<Settings>),
    /// To `[probe]`, or to a profile.
    Rule(&'static Key<ProbeRules>),
}

/// Reads all layers.
pub(super) fn gather(request: &Request, default_folder: &Path, faults: &mut Faults) -> Written {
    let mut written = Written::default();
    let path = request.path.as_deref();
    let layers = file::layers(path, request.env, default_folder, faults);
    let env = request.env;
    if env != Environment::Dev && layers.iter().all(|layer| layer.is_base) {
        let warning = format!("{env} is asked for, but there is no {env}.toml: other layers hold");
        written.warnings.push(warning);
    }
    for layer in layers {
        match file::table(&layer.path) {
            Ok(table) => {
                let source = if layer.is_base {
                    Source::BaseFile(layer.path.clone())
                } else {
                    Source::File(layer.path.clone())
                };
                for (section, value) in &table {
                    written.put_section(&[section], value, &source, faults);
                }
                written.files.push(layer.path);
            }
            Err(fault) => {
                faults.add(fault);
                written.is_partial = true;
            }
        }
    }
    environment::gather(&request.variables, &mut written, faults);
    for (key, value) in &request.flags {
        let parts: Vec<&str> = key.split('.').collect();
        written.put(&parts, value.clone(), &Source::Flag, faults);
    }
    written
}

/// Where the key with these parts belongs, if it is known.
pub(super) fn place(parts: &[&str]) -> Option<Place> {
    let rule = |name: &str| RULES.iter().find(|key| key.name == name).map(Place::Rule);
    let process = |dotted: &str| {
        let key = PROCESS.iter().find(|key| key.name == dotted);
        key.map(Place::Process)
    };
    match parts {
        ["profile", _, name] => rule(name),
        ["probe", name] => rule(name).or_else(|| process(&parts.join("."))),
        _ => process(&parts.join(".")),
    }
}

/// Every key by its dotted name.
pub(super) fn names() -> impl Iterator<Item = String> {
    let process = PROCESS.iter().map(|key| key.name.to_owned());
    process.chain(RULES.iter().map(|key| format!("probe.{}", key.name)))
}

impl Place {
    /// The value that the text of an environment variable stands for.
    pub(super) fn value_of(&self, text: &str) -> Value {
        match self {
            Self::Process(key) => key.value_of(text),
            Self::Rule(key) => key.value_of(text),
        }
    }
}

impl Written {
    /// Keeps what stands in a section, down to its keys.
    fn put_section(&mut self, parts: &[&str], value: &Value, source: &Source, faults: &mut Faults) {
        let holds_keys = match parts {
            [section] => !is_not_built(section),
            ["profile", _] => true,
            _ => false,
        };
        match value.as_table() {
            Some(keys) if holds_keys && !keys.is_empty() => {
                for (key, value) in keys {
                    let parts = [parts, &[key.as_str()]].concat();
                    self.put_section(&parts, value, source, faults);
                }
            }
            _ => self.put(parts, value.clone(), source, faults),
        }
    }

    /// Keeps one written value, or adds why it cannot be kept.
    pub(super) fn put(
        &mut self,
        parts: &[&str],
        value: Value,
        source: &Source,
        faults: &mut Faults,
    ) {
        let is_empty_table = value.as_table().is_some_and(Table::is_empty);
        match parts {
            [section, ..] if is_not_built(section) => faults.add(format!(
                "{source}: {section} is not built in this version: remove the section"
            )),
            ["profile", name] if is_empty_table => {
                self.profile(name, source, faults);
            }
            ["profile", name] => faults.add(format!(
                "{source}: profile.{0} must be a section, [profile.{0}]",
                shown(name)
            )),
            [section] if is_section(section) => {
                if !is_empty_table {
                    let name = if *section == "profile" { ".NAME" } else { "" };
                    let header = format!("[{section}{name}]");
                    faults.add(format!("{source}: {section} must be a section, {header}"));
                }
            }
            ["profile", name, key] if is_for_the_process(key) => faults.add(format!(
                "{source}: profile.{}.{key} cannot be set: it holds for the whole process, set probe.{key}",
                shown(name)
            )),
            _ => self.keep(parts, value, source, faults),
        }
    }

    fn keep(&mut self, parts: &[&str], value: Value, source: &Source, faults: &mut Faults) {
        let entry = Entry {
            value,
            source: source.clone(),
        };
        match (place(parts), parts) {
            (Some(Place::Process(key)), _) => {
                self.process.insert(key.name, entry);
            }
            (Some(Place::Rule(key)), ["profile", name, _]) => {
                if let Some(rules) = self.profile(name, source, faults) {
                    rules.insert(key.name, entry);
                }
            }
            (Some(Place::Rule(key)), _) => {
                self.probe.insert(key.name, entry);
            }
            (None, _) => faults.add_with(|| unknown(parts, source)),
        }
    }

    /// The profile of that name, made where it is new.
    fn profile(&mut self, name: &str, source: &Source, faults: &mut Faults) -> Option<&mut Rules> {
        if let Err(rule) = rule::name(name) {
            faults.add(format!("{source}: profile name {:?} {rule}", shown(name)));
            return None;
        }
        if self.profiles.len() >= PROFILES_MAX && !self.profiles.contains_key(name) {
            faults.add(format!(
                "{source}: profile.{name} is one too many, at most {PROFILES_MAX} are allowed"
            ));
            return None;
        }
        Some(self.profiles.entry(name.to_owned()).or_default())
    }

    /// The profile that a variable means by `lower`: shells allow neither `-`
    /// nor `.` in names, and ours are in capitals.
    pub(super) fn profile_named_like(&self, lower: &str) -> String {
        let plain = |name: &str| name.to_lowercase().replace(['-', '.'], "_");
        let exact = self.profiles.keys().find(|name| *name == lower);
        let alike = || {
            let lower = plain(lower);
            self.profiles.keys().find(|name| plain(name) == lower)
        };
        exact
            .or_else(alike)
            .map_or(lower, String::as_str)
            .to_owned()
    }

    /// The variable that has set this key already.
    pub(super) fn set_by_variable(&self, parts: &[&str]) -> Option<String> {
        let entry = match (place(parts)?, parts) {
            (Place::Process(key), _) => self.process.get(key.name),
            (Place::Rule(key), ["profile", name, _]) => self.profiles.get(*name)?.get(key.name),
            (Place::Rule(key), _) => self.probe.get(key.name),
        };
        match &entry?.source {
            Source::Variable(name) => Some(name.clone()),
            Source::BuiltIn | Source::BaseFile(_) | Source::File(_) | Source::Flag => None,
        }
    }
}

fn is_not_built(section: &str) -> bool {
    NOT_BUILT.contains(&section)
}

/// Whether the key is one of `[probe]` that a profile cannot change.
fn is_for_the_process(key: &str) -> bool {
    PROCESS
        .iter()
        .any(|process| process.name.strip_prefix("probe.") == Some(key))
}

fn is_section(name: &str) -> bool {
    name == "profile" || name == "probe" || {
        let mut sections = PROCESS.iter().filter_map(|key| key.name.split('.').next());
        sections.any(|section| section == name)
    }
}

/// Says that a key is not known, without its value, which may be a secret.
fn unknown(parts: &[&str], source: &Source) -> String {
    let dotted = parts.join(".");
    let guess = if let ["profile", name, key] = parts {
        nearest(key, RULES.iter().map(|key| key.name))
            .map(|key| format!("profile.{}.{key}", shown(name)))
    } else {
        let names: Vec<String> = names().collect();
        nearest(&dotted, names.iter().map(String::as_str)).map(str::to_owned)
    };
    format!(
        "{source}: {} is not a key; the nearest one is {}",
        shown(&dotted),
        guess.unwrap_or_default()
    )
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::BaseFile(path) | Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {}", shown(name)),
            Self::Flag => f.write_str("command line"),
        }
    }
}
