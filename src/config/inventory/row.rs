//! Rows of an inventory, admitted or refused one by one.
//!
//! Floor 1. `csv_rows` and `toml_rows` hand in what they read.
//!
//! # Invariants
//!
//! - The first of two rows with one id is the one that runs.
//! - A device that was there before goes only where the file says so: as long as
//!   its row is refused, or may be one whose id cannot be read, its old row stays.
//! - Nothing here grows beyond [`DEVICES_MAX`] and [`NOTES_MAX`], whatever the
//!   file holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::family::{self, Child, listed};
use super::{DEVICES_MAX, Inventory, NOTES_MAX};
use crate::config::fault::{nearest, shown};
use crate::config::rule;
use crate::config::settings::ProbeRules;
use crate::domain::device::{Device, DeviceId};

/// Longest tag in characters.
const TAG_CHARS_MAX: usize = 64;
/// Most tags of a device.
const TAGS_MAX: usize = 32;
/// Parts of the topics in place of a device: a device of that name would be
/// taken for the gateway or the site.
const RESERVED: [&str; 2] = ["_node", "_site"];

/// The columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    Address,
    Name,
    Profile,
    Tags,
    Parent,
    Enabled,
}

/// One row as written; empty where a cell is missing.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Where it begins, from 1.
    pub(super) line: usize,
    id: String,
    address: String,
    name: String,
    profile: String,
    tags: String,
    parent: String,
    enabled: String,
}

/// Takes rows in.
pub(super) struct Roll<'a> {
    path: &'a Path,
    profiles: &'a BTreeMap<String, ProbeRules>,
    /// The devices in force until now.
    before: BTreeMap<DeviceId, &'a Device>,
    devices: Vec<Device>,
    lines: BTreeMap<DeviceId, usize>,
    children: Vec<Child>,
    /// Of those in force, the first refused row of each: its line, and its place
    /// among the sentences.
    refused_of: BTreeMap<DeviceId, (usize, usize)>,
    /// The first refused row whose id cannot be read.
    unread_id: Option<usize>,
    refused: Notes,
    warnings: Notes,
}

/// Sentences, the first [`NOTES_MAX`] of them.
#[derive(Default)]
pub(super) struct Notes {
    list: Vec<String>,
    more: usize,
}

impl Column {
    pub(super) const ALL: [Self; 7] = [
        Self::Id,
        Self::Address,
        Self::Name,
        Self::Profile,
        Self::Tags,
        Self::Parent,
        Self::Enabled,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Id => "device_id",
            Self::Address => "address",
            Self::Name => "name",
            Self::Profile => "profile",
            Self::Tags => "tags",
            Self::Parent => "parent",
            Self::Enabled => "enabled",
        }
    }

    /// The column called `name`, in whatever case.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|column| column.word().eq_ignore_ascii_case(name))
    }
}

impl Row {
    pub(super) fn new(line: usize) -> Self {
        Self {
            line,
            ..Self::default()
        }
    }

    pub(super) fn set(&mut self, column: Column, cell: &str) {
        let place = match column {
            Column::Id => &mut self.id,
            Column::Address => &mut self.address,
            Column::Name => &mut self.name,
            Column::Profile => &mut self.profile,
            Column::Tags => &mut self.tags,
            Column::Parent => &mut self.parent,
            Column::Enabled => &mut self.enabled,
        };
        cell.trim().clone_into(place);
    }
}

impl<'a> Roll<'a> {
    pub(super) fn new(
        path: &'a Path,
        profiles: &'a BTreeMap<String, ProbeRules>,
        before: &'a [Arc<Device>],
    ) -> Self {
        Self {
            path,
            profiles,
            before: before.iter().map(|old| (old.id, &**old)).collect(),
            devices: Vec::new(),
            lines: BTreeMap::new(),
            children: Vec::new(),
            refused_of: BTreeMap::new(),
            unread_id: None,
            refused: Notes::default(),
            warnings: Notes::default(),
        }
    }

    /// The file's name, to begin a sentence with.
    pub(super) fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes a device of the row, or notes why not.
    pub(super) fn admit(&mut self, row: &Row) {
        match self.device(row) {
            Ok(device) => {
                let line = row.line;
                self.lines.insert(device.id, line);
                if !row.parent.is_empty() {
                    let (index, parent) = (self.devices.len(), row.parent.clone());
                    self.children.push(Child {
                        index,
                        parent,
                        line,
                    });
                }
                self.devices.push(device);
            }
            Err(why) => self.refuse(row, &why),
        }
    }

    /// Notes why a row gives no device.
    pub(super) fn refuse(&mut self, row: &Row, why: &str) {
        let (path, line) = (self.path.display(), row.line);
        match row.id.parse::<DeviceId>() {
            Ok(id) if self.before.contains_key(&id) => {
                let place = self.refused.list.len();
                self.refused_of.entry(id).or_insert((line, place));
            }
            Ok(_) => {}
            Err(_) => self.unread_id = self.unread_id.or(Some(line)),
        }
        let (id, address) = (shown(&row.id), shown(&row.address));
        self.refused.add(|| {
            format!("{path}:{line}: device_id {id:?}, address {address:?}: refused, {why}")
        });
    }

    /// Notes what looks wrong in a line.
    pub(super) fn warn(&mut self, line: usize, what: &str) {
        let path = self.path.display();
        self.warnings.add(|| format!("{path}:{line}: {what}"));
    }

    /// Notes a column or field that nobody reads.
    pub(super) fn warn_unknown(&mut self, line: usize, name: &str) {
        let known = nearest(name, Column::ALL.map(Column::word)).unwrap_or_default();
        let name = shown(name);
        self.warn(
            line,
            &format!("{name:?} is no column and is not read; the nearest one is {known}"),
        );
    }

    /// All rows are in: checks what holds between them.
    pub(super) fn close(mut self, has_interface: bool) -> Inventory {
        self.hold_old_rows();
        family::adopt(
            &mut self.devices,
            &self.children,
            self.path,
            &mut self.warnings,
        );
        family::share(&self.devices, self.path, &mut self.warnings);
        if !has_interface {
            family::zones(&self.devices, self.path, &mut self.warnings);
        }
        if self.devices.is_empty() {
            let path = self.path.display();
            self.warnings
                .add(|| format!("{path}: holds no device: nothing is watched"));
        }
        Inventory {
            devices: self.devices,
            refused: self.refused.close("rows are refused"),
            warnings: self.warnings.close("warnings are not listed"),
            file: Some(self.path.into()),
            is_blank: false,
        }
    }

    /// Puts devices whose rows are refused back as they were: a slip of the pen
    /// must not end the watch of a device and its history.
    fn hold_old_rows(&mut self) {
        let mut unseen = Vec::new();
        for (id, &old) in &self.before {
            if self.lines.contains_key(id) || self.devices.len() >= DEVICES_MAX {
                continue;
            }
            let line = match (self.refused_of.get(id), self.unread_id) {
                (Some(&(line, place)), _) => {
                    if let Some(sentence) = self.refused.list.get_mut(place) {
                        sentence.push_str("; the old row stays in force");
                    }
                    line
                }
                (None, Some(line)) => {
                    unseen.push(*id);
                    line
                }
                (None, None) => continue,
            };
            self.children.extend(old.parent.map(|parent| Child {
                index: self.devices.len(),
                parent: parent.to_string(),
                line,
            }));
            self.devices.push(Device {
                parent: None,
                ..old.clone()
            });
        }
        if let (Some(line), false) = (self.unread_id, unseen.is_empty()) {
            let ids = listed(unseen.into_iter());
            self.warn(
                line,
                &format!(
                    "the device_id of a refused row cannot be read, and the file names no {ids}: \
                     it may be meant, so the old row stays in force until every device_id can be read"
                ),
            );
        }
    }

    fn device(&mut self, row: &Row) -> Result<Device, String> {
        let id: DeviceId = row.id.parse().map_err(|why| format!("device_id {why}"))?;
        if RESERVED.contains(&id.as_str()) {
            return Err("device_id is a word of the topics: choose another".into());
        }
        if let Some(line) = self.lines.get(&id) {
            return Err(format!("device_id is that of line {line} already"));
        }
        let address = rule::host_address(&row.address).map_err(|why| format!("address {why}"))?;
        let profile = self.profile(&row.profile)?;
        let enabled = enabled(&row.enabled)?;
        if self.devices.len() >= DEVICES_MAX {
            return Err(format!(
                "there are {DEVICES_MAX} devices already, the most allowed"
            ));
        }
        Ok(Device {
            id,
            address,
            name: self.name(row, id),
            profile,
            tags: self.tags(row, id),
            parent: None,
            enabled,
        })
    }

    fn profile(&self, name: &str) -> Result<Option<String>, String> {
        if name.is_empty() {
            return Ok(None);
        }
        if self.profiles.contains_key(name) {
            return Ok(Some(name.into()));
        }
        let known = self.profiles.keys().map(String::as_str);
        let guess = nearest(name, known).map_or_else(
            || "there are none in the configuration".to_owned(),
            |guess| format!("the nearest one is {guess:?}"),
        );
        Err(format!(
            "profile {:?} is no [profile.NAME]; {guess}",
            shown(name)
        ))
    }

    fn name(&mut self, row: &Row, id: DeviceId) -> String {
        let name = visible(&row.name);
        if name.is_empty() {
            return id.to_string();
        }
        let (name, is_cut) = cut(&name, rule::LABEL_CHARS_MAX);
        if is_cut {
            let most = rule::LABEL_CHARS_MAX;
            let what = format!("device {id}: name is cut to {most} characters");
            self.warn(row.line, &what);
        }
        name
    }

    fn tags(&mut self, row: &Row, id: DeviceId) -> Vec<String> {
        let mut tags: Vec<String> = Vec::new();
        for tag in row.tags.split(';') {
            let (tag, is_cut) = cut(&visible(tag), TAG_CHARS_MAX);
            if tag.is_empty() || tags.contains(&tag) {
                continue;
            }
            if tags.len() >= TAGS_MAX {
                let what = format!("device {id}: tags beyond the first {TAGS_MAX} are not read");
                self.warn(row.line, &what);
                break;
            }
            if is_cut {
                let what = format!("device {id}: tag {tag:?} is cut to {TAG_CHARS_MAX} characters");
                self.warn(row.line, &what);
            }
            tags.push(tag);
        }
        tags
    }
}

impl Notes {
    pub(super) fn add(&mut self, sentence: impl FnOnce() -> String) {
        if self.list.len() < NOTES_MAX {
            self.list.push(sentence());
        } else {
            self.more += 1;
        }
    }

    fn close(mut self, what: &str) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more {what}", self.more));
        }
        self.list
    }
}

fn enabled(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "" | "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(format!(
            "enabled {:?} must be true or false (1 or 0, yes or no)",
            shown(text)
        )),
    }
}

/// The text without what shows nothing and changes what is shown.
fn visible(text: &str) -> String {
    let kept: String = text.chars().filter(|&c| !rule::is_invisible(c)).collect();
    kept.trim().to_owned()
}

fn cut(text: &str, most: usize) -> (String, bool) {
    let kept: String = text.chars().take(most).collect();
    let is_cut = kept.len() < text.len();
    (kept, is_cut)
}
