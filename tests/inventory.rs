//! The inventory as people and spreadsheets write it.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test that cannot be set up has failed"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sitebeat::config::inventory::{self, DEVICES_MAX, Inventory, InventoryError, NOTES_MAX};
use sitebeat::config::settings::{ProbeRules, Settings};
use sitebeat::config::{self, Request};
use sitebeat::domain::device::Device;

const HEADER: &str = "device_id,address,name,profile,tags,parent,enabled\n";

/// Settings with the profiles `slow` and `fast` that name this file.
fn settings(file: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.inventory.file = file.into();
    settings.inventory.is_set = true;
    for name in ["slow", "fast"] {
        settings.profiles.insert(name.into(), ProbeRules::default());
    }
    settings
}

/// Reads a file of that name and content; sentences name it as `FILE`.
fn read_as(name: &str, content: &[u8]) -> Result<Inventory, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    let plain = |text: String| text.replace(path.to_str().unwrap(), "FILE");
    let read = inventory::read(&settings(&path)).map_err(|error| plain(error.to_string()))?;
    Ok(Inventory {
        refused: read.refused.into_iter().map(plain).collect(),
        warnings: read.warnings.into_iter().map(plain).collect(),
        ..read
    })
}

fn csv(content: impl AsRef<[u8]>) -> Inventory {
    read_as("devices.csv", content.as_ref()).unwrap()
}

/// These rows under the full header.
fn rows(rows: &str) -> Inventory {
    csv(format!("{HEADER}{rows}"))
}

fn ids(inventory: &Inventory) -> Vec<&str> {
    inventory
        .devices
        .iter()
        .map(|device| device.id.as_str())
        .collect()
}

fn device<'a>(inventory: &'a Inventory, id: &str) -> &'a Device {
    let mut devices = inventory.devices.iter();
    devices.find(|device| device.id.as_str() == id).unwrap()
}

fn assert_clean(inventory: &Inventory) {
    assert_eq!(inventory.refused, Vec::<String>::new());
    assert_eq!(inventory.warnings, Vec::<String>::new());
}

#[test]
fn a_full_row_becomes_a_device() {
    let read = rows("gw,10.0.0.1,,,,,\nd1, 10.0.0.7 ,\"Pump, north\",slow,a; b;;a,gw,no\n");
    assert_clean(&read);
    let d1 = device(&read, "d1");
    assert_eq!(d1.address.to_string(), "10.0.0.7");
    assert_eq!(d1.name, "Pump, north");
    assert_eq!(d1.profile.as_deref(), Some("slow"));
    assert_eq!(d1.tags, ["a", "b"]);
    assert_eq!(d1.parent.unwrap().as_str(), "gw");
    assert!(!d1.enabled);
    assert_eq!(device(&read, "gw").name, "gw");
    assert!(device(&read, "gw").enabled);
}

#[test]
fn only_the_first_two_columns_are_needed_in_any_order() {
    let read = csv("Address , enabled,device_id\n::1,,d1\n10.0.0.2,FALSE,d2\n");
    assert_clean(&read);
    assert_eq!(ids(&read), ["d1", "d2"]);
    assert!(!device(&read, "d2").enabled);
}

#[test]
fn spreadsheet_habits_are_understood() {
    for content in [
        "\u{feff}device_id,address\r\nd1,10.0.0.1\r\n\r\nd2,10.0.0.2",
        "\n# a comment\ndevice_id,address\nd1,10.0.0.1\n  # \"another\nd2,10.0.0.2\n\n",
        "device_id,address\rd1,10.0.0.1\rd2,10.0.0.2\r",
        "device_id,address,,\nd1,10.0.0.1,,\n,,,\nd2,10.0.0.2,,,,\n",
        "\"device_id\",\"address\"\n\"d1\", \"10.0.0.1\"\n d2 ,\t10.0.0.2\n",
    ] {
        let read = csv(content);
        assert_clean(&read);
        assert_eq!(ids(&read), ["d1", "d2"], "{content:?}");
    }
}

#[test]
fn quoted_cells_hold_quotes_commas_and_line_ends() {
    let read = rows("d1,10.0.0.1,\"a \"\"b\"\", c\nd\",,x\nd2,10.0.0.2,5\" pipe\n");
    assert_clean(&read);
    assert_eq!(device(&read, "d1").name, "a \"b\", cd");
    assert_eq!(device(&read, "d1").tags, ["x"]);
    assert_eq!(device(&read, "d2").name, "5\" pipe");
}

#[test]
fn a_quote_that_is_never_closed_costs_its_own_row() {
    let read = rows("d1,10.0.0.1,\"open\nd2,10.0.0.2,\"shut\"\nd3,10.0.0.3\nd4,10.0.0.4,\"open\n");
    assert_eq!(ids(&read), ["d2", "d3"]);
    assert_eq!(read.refused.len(), 2);
    assert!(
        read.refused[0].starts_with("FILE:2: "),
        "{:?}",
        read.refused
    );
    assert!(
        read.refused[1].starts_with("FILE:5: "),
        "{:?}",
        read.refused
    );
}

#[test]
fn bad_rows_are_named_and_good_rows_run() {
    let mut content = format!("{HEADER}good,10.0.0.1\n").into_bytes();
    for row in [
        "a+b,10.0.0.2",
        "#,10.0.0.2",
        "a/b,10.0.0.2",
        "$SYS,10.0.0.2",
        ",10.0.0.2",
        "1234567890123456789012,10.0.0.2",
        "a\0b,10.0.0.2",
        "../x,10.0.0.2",
        "..,10.0.0.2",
        "\u{fc},10.0.0.2",
        "a%2Fb,10.0.0.2",
        "_node,10.0.0.2",
        "d3",
        "d4,gw.example.org",
        "d5,10.0.0.0/8",
        "d6,10.0.0.2:80",
        "d7,224.0.0.1",
        "d8,0.0.0.0",
        "d9,255.255.255.255",
        "d10,fe80::1%eth0",
        "d11,10.0.0.2,,slwo",
        "d12,10.0.0.2,,,,,maybe",
        "d13,10.0.0.2,a,,,,true,rest of the name",
        "good,10.0.0.9",
    ] {
        content.extend_from_slice(row.as_bytes());
        content.push(b'\n');
    }
    content
        .extend_from_slice(b"d\xe914,10.0.0.2\nd15,10.0.0.\xe9,\nlast,10.0.0.3,caf\xe9,,a;\xe9\n");
    let read = csv(content);
    assert_eq!(ids(&read), ["good", "last"]);
    assert_eq!(device(&read, "last").name, "caf\u{fffd}");
    assert_eq!(device(&read, "last").tags, ["a", "\u{fffd}"]);
    insta::assert_snapshot!([read.refused, read.warnings].concat().join("\n"));
}

#[test]
fn an_old_row_stays_while_its_new_one_is_refused_or_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("devices.csv");
    let before = rows("a,10.0.0.1\nb,10.0.0.2,Old,,,a\nc,10.0.0.3\n").devices;
    let before: Vec<_> = before.into_iter().map(Arc::new).collect();
    let again = |text: &str| {
        fs::write(&path, format!("{HEADER}{text}")).unwrap();
        inventory::read_again(&settings(&path), &before).unwrap()
    };
    let read = again("b,10.0.0\na,10.0.0.9\nnew,10.0.0\n");
    assert_eq!(ids(&read), ["a", "b"]);
    assert_eq!(device(&read, "a").address.to_string(), "10.0.0.9");
    assert_eq!(device(&read, "b").name, "Old");
    assert_eq!(device(&read, "b").parent.unwrap().as_str(), "a");
    let stays = |sentence: &String| sentence.ends_with("; the old row stays in force");
    assert!(stays(&read.refused[0]) && !stays(&read.refused[1]));
    // A good row of the same id counts, wherever it stands.
    let read = again("b,10.0.0\nb,10.0.0.8\na,10.0.0.1\nc,10.0.0.3\n");
    assert_eq!(device(&read, "b").address.to_string(), "10.0.0.8");
    assert!(!stays(&read.refused[0]) && read.warnings.is_empty());
    for unread in ["c c,10.0.0.3\n", "\"c,10.0.0.3\n", ",10.0.0.3\n"] {
        let read = again(&format!("b,10.0.0.2\n{unread}"));
        assert_eq!(ids(&read), ["b", "a", "c"], "{unread}");
        assert!(read.warnings[0].contains("names no a, c"), "{read:?}");
    }
    assert_eq!(ids(&again("b,10.0.0.2\n")), ["b"]);
}

#[test]
fn unknown_columns_are_named_with_the_nearest_one() {
    let read = csv("device_id,address,nmae,note\nd1,10.0.0.1,x,y\n");
    assert_eq!(ids(&read), ["d1"]);
    assert_eq!(read.warnings.len(), 2);
    assert!(read.warnings[0].contains("\"nmae\"") && read.warnings[0].ends_with("name"));
}

#[test]
fn a_file_without_the_needed_columns_is_refused_as_a_whole() {
    for content in [
        "d1,10.0.0.1\n",
        "device_id;address\nd1;10.0.0.1\n",
        "device_id,adress\nd1,10.0.0.1\n",
        "device_id,address,device_id\nd1,10.0.0.1,d2\n",
        "\"device_id,address\nd1,10.0.0.1\n",
    ] {
        let said = read_as("devices.csv", content.as_bytes()).unwrap_err();
        assert!(said.starts_with("FILE:1: "), "{said}");
    }
    let said = read_as("devices.csv", b"\xff\xfed\0").unwrap_err();
    assert!(said.contains("UTF-16"), "{said}");
}

#[test]
fn an_empty_file_watches_nothing_and_says_so() {
    for content in ["", "\n\n", "# nothing yet\n", HEADER, "\u{feff}"] {
        let read = csv(content);
        assert!(read.devices.is_empty());
        assert_eq!(read.warnings, ["FILE: holds no device: nothing is watched"]);
    }
}

#[test]
fn mapped_addresses_become_ipv4_and_shared_ones_are_told() {
    let read = rows("a,::ffff:10.0.0.1\nb,10.0.0.1\nc,10.0.0.1,,,,,false\nd,10.0.0.2\n");
    assert_eq!(device(&read, "a").address.to_string(), "10.0.0.1");
    assert_eq!(
        read.warnings,
        ["FILE: 10.0.0.1 is the address of a, b: each is probed for itself"]
    );
}

#[test]
fn parents_that_cannot_be_are_dropped_and_the_device_runs() {
    let read = rows(
        "a,10.0.0.1,,,,b\nb,10.0.0.2,,,,c\nc,10.0.0.3,,,,a\nself,10.0.0.4,,,,self\n\
         lost,10.0.0.5,,,,gone\nodd,10.0.0.6,,,,x/y\nchild,10.0.0.7,,,,a\n",
    );
    assert_eq!(read.devices.len(), 7);
    assert_eq!(read.refused, Vec::<String>::new());
    assert_eq!(device(&read, "child").parent.unwrap().as_str(), "a");
    for id in ["a", "b", "c", "self", "lost", "odd"] {
        assert_eq!(device(&read, id).parent, None, "{id}");
    }
    insta::assert_snapshot!(read.warnings.join("\n"));
}

#[test]
fn names_and_tags_are_one_visible_line_of_bounded_length() {
    let many: String = (0..40).map(|n| n.to_string() + ";").collect();
    let long = "x".repeat(200);
    let read = rows(&format!(
        "a,10.0.0.1,\"<b>\u{1b}[31m\u{202e}x\u{0}\",,{many}\nb,10.0.0.2,{long},,{long}\n"
    ));
    assert_eq!(device(&read, "a").name, "<b>[31mx");
    assert_eq!(device(&read, "a").tags.len(), 32);
    assert_eq!(device(&read, "b").name.len(), 128);
    assert_eq!(device(&read, "b").tags[0].len(), 64);
    assert_eq!(read.warnings.len(), 3, "{:?}", read.warnings);
}

#[test]
fn toml_rows_follow_the_same_rules() {
    let read = read_as(
        "devices.TOML",
        br#"
note = "mine"
[[device]]
device_id = "gw"
address = "::1"
enabled = false

[[device]]
device_id = "d1"
address = "10.0.0.1"
tags = ["a", "b"]
parent = "gw"
colour = "red"
[[device]]
device_id = "d2"
address = 5
[[device]]
device_id = "d3"
address = "host"
[[device]]
device_id = "d4"
address = "10.0.0.4"
tags = "x;y"
enabled = "yes"
"#,
    )
    .unwrap();
    assert_eq!(ids(&read), ["gw", "d1", "d4"]);
    assert!(!device(&read, "gw").enabled);
    assert_eq!(device(&read, "d1").tags, ["a", "b"]);
    assert_eq!(device(&read, "d4").tags, ["x", "y"]);
    insta::assert_snapshot!(format!(
        "{}\n{}",
        read.refused.join("\n"),
        read.warnings.join("\n")
    ));
    let said = read_as("devices.toml", b"[[device]]\ndevice_id = 'a").unwrap_err();
    assert!(said.starts_with("FILE:2:"), "{said}");
    let said = read_as("devices.toml", b"device = 5").unwrap_err();
    assert!(said.starts_with("FILE:1:"), "{said}");
    let said = read_as("devices.toml", b"# \xff").unwrap_err();
    assert!(said.contains("UTF-8"), "{said}");
}

#[test]
fn a_file_that_is_named_must_be_there_and_an_unnamed_one_need_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(&folder.path().join("devices.csv"));
    let refused = inventory::read(&settings);
    assert!(matches!(refused, Err(InventoryError::Unreadable { .. })));
    settings.inventory.is_set = false;
    let built_in = inventory::read(&settings).unwrap();
    assert_clean(&built_in);
    assert_eq!(built_in.file, None);
    let addresses: Vec<String> = built_in
        .devices
        .iter()
        .map(|d| d.address.to_string())
        .collect();
    assert_eq!(
        addresses,
        [
            "127.0.0.1",
            "127.0.0.2",
            "127.0.0.3",
            "127.0.0.4",
            "127.0.0.5"
        ]
    );
    assert_eq!(built_in.devices[4].id.as_str(), "loopback-5");
    fs::create_dir(&settings.inventory.file).unwrap();
    assert!(inventory::read(&settings).is_err());
    fs::remove_dir(&settings.inventory.file).unwrap();
    // A pipe without a writer must not hold the program up.
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&settings.inventory.file, mode).unwrap();
    assert!(inventory::read(&settings).is_err());
}

#[test]
fn a_file_beyond_its_bounds_is_refused_or_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("devices.csv");
    let file = fs::File::create(&path).unwrap();
    file.set_len(inventory::FILE_BYTES_MAX + 1).unwrap();
    assert!(inventory::read(&settings(&path)).is_err());

    let row = |n: usize| format!("d{n},10.{}.{}.{}\n", n >> 16, (n >> 8) & 255, n & 255);
    let text: String = (0..DEVICES_MAX + 2_000).map(row).collect();
    let read = rows(&text);
    assert_eq!(read.devices.len(), DEVICES_MAX);
    assert_eq!(read.refused.len(), NOTES_MAX + 1);
    assert_eq!(read.refused[NOTES_MAX], "and 1000 more rows are refused");
}

#[test]
fn the_fingerprint_changes_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("devices.csv");
    assert_eq!(inventory::fingerprint(&path), None);
    fs::write(&path, "a").unwrap();
    let first = inventory::fingerprint(&path);
    assert!(first.is_some());
    assert_eq!(inventory::fingerprint(&path), first);
    fs::write(&path, "ab").unwrap();
    let second = inventory::fingerprint(&path);
    assert_ne!(second, first);
    // Editors write a new file and rename it: same length, another file.
    let other = folder.path().join("new");
    fs::write(&other, "cd").unwrap();
    fs::rename(&other, &path).unwrap();
    assert_ne!(inventory::fingerprint(&path), second);
}

#[test]
fn the_shipped_inventory_is_clean_and_holds_loopback_devices() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let loaded = config::load(&Request {
        path: Some(shipped.clone()),
        host_name: "gw".into(),
        ..Request::default()
    });
    let mut settings = loaded.unwrap().settings;
    settings.inventory.file = shipped.join("devices.csv");
    let read = inventory::read(&settings).unwrap();
    assert_clean(&read);
    assert!(read.devices.len() > 4);
    assert!(
        read.devices
            .iter()
            .all(|device| device.address.is_loopback())
    );
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    /// What every reading must keep, whatever the file holds.
    fn assert_sound(name: &str, content: &[u8]) {
        let Ok(read) = read_as(name, content) else {
            return;
        };
        let mut seen = std::collections::BTreeMap::new();
        for device in &read.devices {
            assert_eq!(seen.insert(device.id, device.parent), None);
            assert!(!device.name.is_empty());
            assert!(!device.name.chars().any(char::is_control));
            let address = device.address;
            assert!(!address.is_multicast() && !address.is_unspecified());
        }
        for start in seen.keys() {
            let mut at = Some(*start);
            for _ in 0..=seen.len() {
                at = at.and_then(|id| *seen.get(&id).unwrap());
            }
            assert_eq!(at, None, "parents of {start} go in a circle");
        }
        for sentence in read.refused.iter().chain(&read.warnings) {
            assert!(!sentence.contains('\n'), "{sentence:?}");
            assert!(sentence.starts_with("FILE"), "{sentence:?}");
        }
    }

    fn cell() -> impl Strategy<Value = String> {
        prop_oneof![
            "[abc]",
            "10\\.0\\.0\\.[0-9]",
            "\\PC{0,30}",
            "[\",;#\n\r ]{0,4}",
            "(true|no|slow|slwo|::1)",
            Just(String::new()),
        ]
    }

    proptest! {
        #[test]
        fn random_bytes_never_break_the_reader(content in prop::collection::vec(any::<u8>(), 0..400)) {
            assert_sound("x.csv", &content);
            assert_sound("x.toml", &content);
        }

        #[test]
        fn random_rows_are_admitted_or_refused(
            rows in prop::collection::vec(prop::collection::vec(cell(), 0..9), 0..30)
        ) {
            let rows: Vec<String> = rows.iter().map(|cells| cells.join(",")).collect();
            assert_sound("x.csv", format!("{HEADER}{}", rows.join("\n")).as_bytes());
        }

        #[test]
        fn random_tables_are_admitted_or_refused(
            rows in prop::collection::vec(
                prop::collection::vec(("(device_id|address|name|tags|parent|enabled|x)", cell()), 0..6),
                0..10,
            )
        ) {
            let mut text = String::new();
            for row in rows {
                text += "[[device]]\n";
                for (key, value) in std::collections::BTreeMap::from_iter(row) {
                    text += &[&key, " = ", &toml::Value::String(value).to_string(), "\n"].concat();
                }
            }
            assert_sound("x.toml", text.as_bytes());
        }
    }
}
