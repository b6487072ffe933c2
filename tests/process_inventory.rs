//! The real program while its inventory is edited: a slip of the pen costs nobody
//! the watch of a device.
#![cfg(test)]

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;

use process::{Launch, Program, site_folder, wait_for};

#[path = "support/process.rs"]
mod process;

/// Puts an inventory in force that these bytes are.
fn reload(program: &Program, folder: &Path, text: &[u8]) {
    let path = folder.join("config/devices.csv");
    let draft = path.with_extension("new");
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, &path).unwrap();
    let loaded_at = |program: &Program| node(program)["loaded_at"].clone();
    let before = loaded_at(program);
    program.signal(Signal::SIGHUP);
    wait_for("the reload", || {
        (loaded_at(program) != before).then_some(())
    });
}

fn node(program: &Program) -> Value {
    program.json("/api/v1/node")["config"].clone()
}

fn ids(program: &Program) -> Vec<String> {
    let devices = program.json("/api/v1/devices")["devices"].clone();
    let of = |one: &Value| one["device_id"].as_str().unwrap().to_owned();
    devices.as_array().unwrap().iter().map(of).collect()
}

fn removals(program: &Program) -> Vec<String> {
    let events = program.json("/api/v1/events?limit=500")["events"].clone();
    let is_removal = |event: &&Value| event["event"] == "heartbeat.device.removed.v1";
    let removed = events.as_array().unwrap().iter().filter(is_removal);
    removed
        .map(|event| event["context"]["device_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_watched_device_whose_row_is_refused_stays_until_the_row_is_right_or_gone() {
    let folder = site_folder(0);
    let configuration = folder.path().join("config/default.toml");
    let profile = |name: &str| {
        let text = format!("[profile.{name}]\noffline_missed_count = 7\n");
        fs::write(&configuration, text).unwrap();
    };
    profile("slow");
    let good = "device_id,address,name,profile\nD1,127.1.0.1,Pump,\nD2,127.1.0.2,Valve,slow\n\
                D3,127.1.0.3,Meter,\n";
    fs::write(folder.path().join("config/devices.csv"), good).unwrap();
    let program = Launch::new(folder.path(), &[])
        .set("probe.heartbeat_period_ms", "400")
        .set("probe.offline_timeout_ms", "200")
        .start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    let change = |text: &[u8]| reload(&program, folder.path(), text);
    let all = ["D1", "D2", "D3"];
    let threshold = || {
        let device = program.json("/api/v1/devices/D2");
        device["thresholds"]["offline_missed_count"]["value"].clone()
    };

    // Saved as Latin-1, with a typo in an address, and a profile by another name.
    profile("slower");
    change(
        b"device_id,address,name,profile\nD1,127.1.0.1,Pump s\xfcd,\nD2,127.1.0.2,Valve,slow\n\
          D3,127.1.0.3x,Meter,\nD4,127.1.0.4x,New,\n",
    );
    assert_eq!(ids(&program), all);
    let pump = program.json("/api/v1/devices/D1");
    assert_eq!(pump["name"], "Pump s\u{fffd}d");
    assert_eq!(threshold(), 7);
    let seen = |id: &str| program.json(&format!("/api/v1/devices/{id}"))["last_seen"].clone();
    for id in all {
        let before = seen(id);
        wait_for("a further reply", || (seen(id) != before).then_some(()));
    }
    let page = program.get("/node").body;
    for said in ["slower", "127.1.0.3x", "the old row stays", "not UTF-8"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    // Again, for the rules of the profile that is gone must outlive two reloads.
    change(
        b"device_id,address,name,profile\nD1,127.1.0.1,Pump,\nD2,127.1.0.2,Valve,slow\n\
          D\xfc3,127.1.0.3,Meter,\n",
    );
    assert_eq!(ids(&program), all);
    assert_eq!(threshold(), 7);
    assert!(program.get("/node").body.contains("the file names no D3"));
    assert_eq!(removals(&program), Vec::<String>::new());

    change(b"device_id,address,name,profile\nD1,127.1.0.1,Pump,\nD2,127.1.0.9,Valve,slower\n");
    wait_for("D3 to go", || (ids(&program) == all[..2]).then_some(()));
    wait_for("its event", || (removals(&program) == ["D3"]).then_some(()));
    wait_for("the row that is right again", || {
        (program.json("/api/v1/devices/D2")["address"] == "127.1.0.9").then_some(())
    });
    assert_eq!(program.stop().code(), Some(0));
    // At a start there is no old row.
    let bad = "device_id,address\nD1,127.1.0.1x\nD2,127.1.0.2\n";
    fs::write(folder.path().join("config/devices.csv"), bad).unwrap();
    let program = Launch::new(folder.path(), &[]).start();
    program.wait_for_counts(|counts| counts["online"] == 1);
    assert_eq!(ids(&program), ["D2"]);
    assert_eq!(program.stop().code(), Some(0));
}
