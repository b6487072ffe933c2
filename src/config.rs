//! Floor 1: settings and inventory, from their written form to their checked form.
//!
//! `app` calls [`load`] at the start and at each reload, then
//! [`inventory::read`] with what came of it. [`settings`] holds what the rest of
//! the program sees: plain values, checked, immutable.
//!
//! The written form is layered, later wins: built-in defaults, `default.toml`,
//! `{env}.toml`, environment variables, command line. One table of keys (`key`)
//! drives parsing, faults, nearest names and the tests of the shipped files.
//!
//! # Invariants
//!
//! - [`load`] returns settings only if every rule holds; otherwise all faults at
//!   once, each with its place, key, value and what is allowed.
//! - The value of a secret is in no fault, warning or debug output.
//! - No text or bytes from outside make this room panic.
//! - Nothing is looked up, sent or written.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub mod fault;
pub mod inventory;
pub mod settings;

mod check;
mod environment;
mod file;
mod key;
mod layer;
mod rule;
mod tables;
mod url;

pub use fault::Faults;
use inventory::Inventory;
use settings::Settings;

use crate::domain::device::Device;

/// Where the configuration is to be taken from.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A file, or a folder that holds `default.toml` and `{env}.toml`. `None`:
    /// the folder `config` where it is found, else built-in defaults alone.
    pub path: Option<PathBuf>,
    /// Which `{env}.toml` is read.
    pub env: Environment,
    /// The variables of the process, see [`process_variables`].
    pub variables: Vec<(String, String)>,
    /// What the node is called unless `node.name` is set.
    pub host_name: String,
    /// Keys set on the command line, dotted (`store.path`), with their values.
    pub flags: Vec<(String, toml::Value)>,
}

/// The environments a configuration folder distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// On a desk.
    #[default]
    Dev,
    /// Before production.
    Stage,
    /// On site.
    Prod,
}

/// A configuration in force.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked settings.
    pub settings: Settings,
    /// The files read, in order; empty on built-in defaults alone.
    pub files: Vec<PathBuf>,
    /// What is allowed but looks wrong, one sentence each.
    pub warnings: Vec<String>,
}

/// The folder that is used without being asked for, where it is found.
const DEFAULT_FOLDER: &str = "config";

impl Environment {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Dev, Self::Stage, Self::Prod];

    /// As it is written: `dev`, `stage`, `prod`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Stage => "stage",
            Self::Prod => "prod",
        }
    }

    /// The environment written `word`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|env| env.word() == word)
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Reads all layers and checks every rule.
///
/// # Errors
///
/// All faults at once, in the order of the layers and keys.
pub fn load(request: &Request) -> Result<Loaded, Faults> {
    load_beside(request, Path::new(DEFAULT_FOLDER))
}

/// [`load`] together with the inventory that the settings name.
///
/// # Errors
///
/// All faults of both at once, those of the inventory last.
pub fn load_with_inventory(request: &Request) -> Result<(Loaded, Inventory), Faults> {
    reload_with_inventory(request, &[])
}

/// [`load_with_inventory`] while devices are watched: [`inventory::read_again`]
/// says what becomes of those whose rows are refused.
///
/// # Errors
///
/// As [`load_with_inventory`].
pub fn reload_with_inventory(
    request: &Request,
    watched: &[Arc<Device>],
) -> Result<(Loaded, Inventory), Faults> {
    let (loaded, mut faults) = gather(request, Path::new(DEFAULT_FOLDER));
    // Also where the settings have faults: whoever mends them wants to know all.
    let inventory = inventory::read_again(&loaded.settings, watched);
    match inventory {
        Ok(inventory) if faults.is_empty() => return Ok((loaded, inventory)),
        Ok(_) => {}
        Err(fault) => faults.add(match fault.source() {
            Some(source) => format!("{fault}: {source}"),
            None => fault.to_string(),
        }),
    }
    Err(faults)
}

/// Like [`load`], with the folder that is used where no path is given.
fn load_beside(request: &Request, default_folder: &Path) -> Result<Loaded, Faults> {
    let (loaded, faults) = gather(request, default_folder);
    if faults.is_empty() {
        Ok(loaded)
    } else {
        Err(faults)
    }
}

/// What the layers say and what is wrong with it; a faulty value leaves its
/// default.
fn gather(request: &Request, default_folder: &Path) -> (Loaded, Faults) {
    let mut faults = Faults::default();
    let mut written = layer::gather(request, default_folder, &mut faults);
    let settings = check::settings(&mut written, &request.host_name, &mut faults);
    let loaded = Loaded {
        settings,
        files: written.files,
        warnings: written.warnings,
    };
    (loaded, faults)
}

/// The variables of this process. A variable of ours that is not UTF-8 is
/// handed on with its stray bytes replaced, so that [`load`] can name it.
#[must_use]
pub fn process_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| {
            let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect()
}

/// Every key, dotted, keys of `[probe]` last. A profile takes those of
/// [`settings::ProbeRules`] too, as `profile.NAME.KEY`.
#[must_use]
pub fn key_names() -> Vec<String> {
    layer::names().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_that_is_not_there_is_named_beside_other_faults() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        let one_bad = "[inventory]\nfile = \"/nowhere/devices.csv\"\n";
        let bad = format!("{one_bad}[store]\nmax_bytes = -1\n[probe]\nofline = 1\n");
        for (written, count) in [(one_bad, 1), (&bad, 3)] {
            std::fs::write(&file, written).unwrap();
            let request = Request {
                path: Some(file.clone()),
                ..Request::default()
            };
            let faults = load_with_inventory(&request).unwrap_err();
            assert_eq!(faults.iter().count(), count, "{faults}");
            let last = faults.iter().last().unwrap();
            let said = "cannot read inventory.file /nowhere/devices.csv: No such file";
            assert!(last.starts_with(said), "{last}");
        }
    }

    fn load_in(folder: &Path, env: Environment) -> Loaded {
        let request = Request {
            env,
            host_name: "gw".into(),
            ..Request::default()
        };
        load_beside(&request, folder).unwrap()
    }

    #[test]
    fn the_default_folder_holds_where_it_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("config");
        let built_in = load_in(&absent, Environment::Dev);
        assert_eq!(built_in.files, Vec::<PathBuf>::new());
        assert_eq!(built_in.warnings, Vec::<String>::new());
        assert_eq!(built_in.settings.probe, settings::ProbeRules::default());

        let file = folder.path().join("dev.toml");
        std::fs::write(&file, "[probe]\nheartbeat_period_ms = 7000").unwrap();
        let found = load_in(folder.path(), Environment::Dev);
        assert_eq!(found.files, [file]);
        assert_eq!(found.settings.probe.heartbeat_period.as_secs(), 7);
        assert_eq!(load_in(folder.path(), Environment::Prod).warnings.len(), 1);
    }

    #[test]
    fn every_environment_is_read_as_it_is_written() {
        for env in Environment::ALL {
            assert_eq!(Environment::parse(env.word()), Some(env));
        }
        assert_eq!(Environment::parse("Dev"), None);
    }

    #[test]
    fn no_key_stands_in_two_tables() {
        let mut names = key_names();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
