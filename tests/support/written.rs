//! Configurations written for a test, and loaded.

use std::fs;
use std::path::Path;

use sitebeat::config::settings::Settings;
use sitebeat::config::{self, Loaded, Request};
use tempfile::TempDir;

/// A folder with these files in it.
pub(crate) fn folder(files: &[(&str, impl AsRef<[u8]>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

pub(crate) fn request(path: &Path) -> Request {
    Request {
        path: Some(path.into()),
        host_name: "gw".into(),
        ..Request::default()
    }
}

/// Loads one file with this text.
pub(crate) fn load(text: &str) -> Result<Loaded, String> {
    load_with(text, &[])
}

/// Loads one file with this text, with these environment variables. Faults name
/// the file as `FILE`.
pub(crate) fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let folder = folder(&[("x.toml", text)]);
    let path = folder.path().join("x.toml");
    let request = Request {
        variables: owned(variables),
        ..request(&path)
    };
    config::load(&request)
        .map_err(|faults| faults.to_string().replace(path.to_str().unwrap(), "FILE"))
}

pub(crate) fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(own).collect()
}

pub(crate) fn settings(text: &str) -> Settings {
    load(text).unwrap().settings
}

pub(crate) fn faults(text: &str) -> String {
    load(text).unwrap_err()
}
