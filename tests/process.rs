//! The program from outside: start, stop, reload, exit codes.
//!
//! Needs the right to send ICMP (root, or a group in `ping_group_range`).
#![cfg(test)]

#[path = "support/process.rs"]
mod process;

use std::net::TcpListener;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::{Launch, Program, site_folder, wait_for, wait_up_to, write_devices, write_inventory};

/// A gateway in `folder` with periods short enough to watch.
fn quick(folder: &std::path::Path) -> Launch {
    Launch::new(folder, &[])
        .set("probe.heartbeat_period_ms", "400")
        .set("probe.offline_timeout_ms", "100")
        .set("store.flush_every_ms", "500")
}

fn all_online(program: &Program, n: u64) {
    program.wait_for_counts(|counts| counts["online"] == n);
}

#[test]
fn without_arguments_and_files_it_pings_the_loopback_devices() {
    let folder = tempfile::tempdir().unwrap();
    let program = Launch::new(folder.path(), &[]).start();
    wait_up_to(Duration::from_secs(10), "five devices online", || {
        let devices = program.json("/api/v1/devices");
        (devices["counts"]["online"] == 5).then_some(())
    });
    assert!(program.get("/").body.contains("127.0.0.5"));
    assert!(folder.path().join("data/FORMAT").exists());
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_second_process_on_the_store_exits_3_and_harms_nothing() {
    let folder = site_folder(3);
    let first = quick(folder.path()).start();
    all_online(&first, 3);
    let (status, _, log) = quick(folder.path()).run();
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(
        log.contains("already running") && log.contains("data"),
        "{log}"
    );
    let sent = |program: &Program| program.json("/api/v1/node")["probe"]["sent"].as_u64();
    let before = sent(&first);
    wait_for("further probes", || (sent(&first) > before).then_some(()));
    all_online(&first, 3);
    assert_eq!(first.stop().code(), Some(0));
}

#[test]
fn a_restart_goes_on_where_a_stop_or_a_power_cut_left_it() {
    let folder = site_folder(4);
    let mut since = None;
    for round in 0..3 {
        let program = quick(folder.path()).start();
        all_online(&program, 4);
        let seen = program.json("/api/v1/devices/D1")["since"].clone();
        assert_eq!(*since.get_or_insert(seen.clone()), seen, "round {round}");
        wait_for("raw heartbeats on disk", || {
            program.json("/api/v1/node")["store"]["last_flush"]
                .as_str()
                .map(|_| ())
        });
        if round == 1 {
            program.kill();
        } else {
            assert_eq!(program.stop().code(), Some(0));
        }
    }
}

#[test]
fn a_clean_stop_keeps_every_heartbeat() {
    let folder = site_folder(2);
    let start = || {
        quick(folder.path())
            .set("store.flush_every_ms", "3600000")
            .start()
    };
    let samples = |program: &Program| {
        let heartbeats = program.json("/api/v1/devices/D1/heartbeats");
        heartbeats["samples"].as_array().unwrap().clone()
    };
    let program = start();
    all_online(&program, 2);
    let before = wait_for("some heartbeats", || {
        Some(samples(&program)).filter(|s| s.len() >= 5)
    });
    assert_eq!(program.stop().code(), Some(0));
    let program = start();
    all_online(&program, 2);
    let after = samples(&program);
    assert_eq!(after[..before.len()], before[..]);
}

#[test]
fn a_device_that_moved_while_the_program_was_down_is_judged_anew() {
    let folder = site_folder(2);
    let program = quick(folder.path()).start();
    all_online(&program, 2);
    let since = |program: &Program, id: &str| {
        let device = program.json(&format!("/api/v1/devices/{id}"));
        device["since"].as_str().map(str::to_owned)
    };
    let before = ["D1", "D2"].map(|id| since(&program, id));
    assert_eq!(program.stop().code(), Some(0));
    let moved = [("D1", "127.1.9.9"), ("D2", "127.1.0.2")]
        .map(|(id, address)| (id.to_owned(), address.to_owned()));
    write_devices(folder.path(), &moved);
    let program = quick(folder.path()).start();
    wait_for("a verdict of D1's own", || {
        since(&program, "D1").filter(|since| Some(since) != before[0].as_ref())
    });
    assert_eq!(since(&program, "D2"), before[1]);
}

#[test]
fn the_inventory_is_followed_and_a_broken_one_changes_nothing() {
    let folder = site_folder(2);
    let program = quick(folder.path()).start();
    all_online(&program, 2);
    write_inventory(folder.path(), 3);
    all_online(&program, 3);
    let bad_row = [
        ("D1", "127.1.0.1"),
        ("D 2", "127.1.0.2"),
        ("D3", "meter.local"),
    ]
    .map(|(id, address)| (id.to_owned(), address.to_owned()));
    write_devices(folder.path(), &bad_row);
    wait_for("the names of the refused rows", || {
        let page = program.get("/").body;
        (page.contains("D 2") && page.contains("meter.local")).then_some(())
    });
    all_online(&program, 3);
}

#[test]
fn hangup_takes_good_configuration_and_refuses_bad() {
    let folder = site_folder(1);
    let file = folder.path().join("config/default.toml");
    std::fs::write(&file, "[probe]\noffline_missed_count = 4\n").unwrap();
    let threshold = |program: &Program| {
        let device = program.json("/api/v1/devices/D1");
        device["thresholds"]["offline_missed_count"]["value"]
            .as_u64()
            .unwrap()
    };
    let program = quick(folder.path()).start();
    wait_for("the first threshold", || {
        (threshold(&program) == 4).then_some(())
    });
    std::fs::write(
        &file,
        "[probe]\noffline_missed_count = 6\n[site]\nid = \"other\"\n",
    )
    .unwrap();
    program.signal(Signal::SIGHUP);
    wait_for("the second threshold", || {
        (threshold(&program) == 6).then_some(())
    });
    assert!(
        program.log().contains("site.id"),
        "what needs a restart is named"
    );
    assert_eq!(program.json("/api/v1/devices")["site"], "site-1");
    let page = program.get("/").body;
    assert!(
        page.contains("<title>site-1: "),
        "the name follows the id in force"
    );
    std::fs::write(&file, "[probe]\noffline_missed_cuont = 7\n").unwrap();
    program.signal(Signal::SIGHUP);
    let error = wait_for("the fault on the node's page", || {
        program.json("/api/v1/node")["config"]["last_error"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(error.contains("offline_missed_cuont") && error.contains("offline_missed_count"));
    assert_eq!(threshold(&program), 6);
    assert!(program.get("/").body.contains("offline_missed_cuont"));
}

#[test]
fn a_log_that_nobody_reads_or_that_is_closed_stops_neither_probing_nor_the_stop() {
    let folder = site_folder(2);
    for is_closed in [false, true] {
        let (program, pipe) = quick(folder.path()).start_unread();
        let pipe = (!is_closed).then_some(pipe);
        let sent = || program.json("/api/v1/node")["probe"]["sent"].as_u64();
        // Each reload logs a line for each of these; a pipe holds 64 KiB.
        for round in 0..3 {
            let bad = (0..600).map(|n| (format!("bad {round} {n}"), "nowhere".to_owned()));
            let good = ("D1".to_owned(), format!("127.1.0.{}", 10 + round));
            write_devices(
                folder.path(),
                &bad.chain([good.clone()]).collect::<Vec<_>>(),
            );
            program.signal(Signal::SIGHUP);
            wait_for("the inventory in force", || {
                (program.json("/api/v1/devices/D1")["address"] == *good.1).then_some(())
            });
        }
        let before = sent();
        wait_for("further probes", || (sent() > before).then_some(()));
        assert_eq!(program.stop().code(), Some(0), "closed: {is_closed}");
        drop(pipe);
    }
}

#[test]
fn a_hangup_during_the_start_is_a_reload_and_no_end() {
    let folder = site_folder(2);
    let path = folder.path().join("config/devices.csv");
    let mut rows = std::fs::read_to_string(&path).unwrap();
    // So many that reading them takes a while.
    rows.push_str(&"\",\n".repeat(1 << 20));
    std::fs::write(&path, rows).unwrap();
    let program = quick(folder.path()).start();
    wait_for("a handler for SIGHUP", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).ok()?;
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught & 1 == 1).then_some(())
    });
    assert_eq!(program.log(), "", "nothing has been read yet");
    program.signal(Signal::SIGHUP);
    program.wait_for_log("SIGHUP");
    all_online(&program, 2);
}

#[test]
fn a_gone_or_blank_inventory_takes_no_device_with_it() {
    let folder = site_folder(3);
    let path = folder.path().join("config/devices.csv");
    let program = quick(folder.path()).start();
    all_online(&program, 3);
    let refused_with = |what: &str| {
        program.signal(Signal::SIGHUP);
        wait_for(what, || {
            let node = program.json("/api/v1/node");
            let error = node["config"]["last_error"].as_str()?.to_owned();
            error.contains(what).then_some(())
        });
        all_online(&program, 3);
    };
    std::fs::remove_file(&path).unwrap();
    refused_with("is gone");
    std::fs::write(&path, "\n").unwrap();
    refused_with("is empty");
    std::fs::write(&path, "device_id,address\n").unwrap();
    program.signal(Signal::SIGHUP);
    program.wait_for_counts(|counts| counts["online"] == 0);
}

#[test]
fn a_large_inventory_that_is_read_holds_up_no_probe_and_no_stop() {
    let folder = site_folder(2);
    let program = quick(folder.path()).start();
    all_online(&program, 2);
    // Nothing but quotes that are never closed takes longest.
    let rows = format!("device_id,address\n{}", "\",\n".repeat(16 << 20));
    std::fs::write(folder.path().join("config/devices.csv"), rows).unwrap();
    program.signal(Signal::SIGHUP);
    program.wait_for_log("SIGHUP");
    let sent = || program.json("/api/v1/node")["probe"]["sent"].as_u64();
    let before = sent().unwrap();
    wait_for("further probes", || {
        (sent() > Some(before + 8)).then_some(())
    });
    all_online(&program, 2);
    let is_over = program.log().contains("refused=");
    assert!(!is_over, "the file is too small to be still read");
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn faults_of_configuration_exit_2_all_at_once() {
    let folder = site_folder(1);
    let file = folder.path().join("config/default.toml");
    std::fs::write(
        &file,
        "[probe]\npayload_bytes = 9\nheartbeat_perod_ms = 1\n",
    )
    .unwrap();
    let (status, _, log) = quick(folder.path()).set("site.id", "a/b").run();
    assert_eq!(status.code(), Some(2));
    for named in [
        "payload_bytes",
        "heartbeat_perod_ms",
        "heartbeat_period_ms",
        "site.id",
        "a/b",
    ] {
        assert!(log.contains(named), "{named} in {log}");
    }
    assert!(!folder.path().join("data").exists(), "nothing was begun");
}

#[test]
fn a_port_that_is_taken_exits_1_and_is_named() {
    let folder = site_folder(1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, _, log) = quick(folder.path()).set("web.listen", &address).run();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains(&address), "{log}");
}

#[test]
fn without_privilege_it_exits_4_and_names_both_cures() {
    let folder = site_folder(1);
    // A new network namespace has its own ping_group_range, which lets nobody in.
    let wrapper = [
        "unshare",
        "--net",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ];
    let store = tempfile::tempdir_in("/tmp").unwrap();
    let (status, _, log) = Launch::under(&wrapper, folder.path(), &[])
        .set(
            "store.path",
            &store.path().join("data").display().to_string(),
        )
        .run();
    assert_eq!(status.code(), Some(4), "{log}");
    assert!(
        log.contains("CAP_NET_RAW") && log.contains("net.ipv4.ping_group_range"),
        "{log}"
    );
}

#[test]
fn check_says_one_line_each_and_fails_only_on_faults() {
    let folder = site_folder(2);
    let (status, out, _) = quick(folder.path()).run_check();
    assert_eq!(status.code(), Some(0), "{out}");
    for thing in ["config", "inventory", "icmp", "store", "broker", "redis"] {
        assert!(
            out.lines()
                .any(|line| line.starts_with("ok") && line.contains(thing)),
            "{out}"
        );
    }
    let (status, out, _) = quick(folder.path())
        .set("uplink.url", "mqtt://127.0.0.1:1")
        .run_check();
    assert_eq!(status.code(), Some(1));
    assert!(
        out.lines()
            .any(|line| line.starts_with("fail") && line.contains("127.0.0.1:1")),
        "{out}"
    );
    assert!(
        !folder.path().join("data").exists(),
        "a check makes nothing"
    );
}

#[test]
fn a_simulated_fleet_says_so_and_keeps_a_store_of_its_own() {
    let folder = site_folder(1);
    let program = Launch::new(
        folder.path(),
        &["simulate", "--devices", "40", "--seed", "7"],
    )
    .set("probe.heartbeat_period_ms", "1000")
    .set("probe.offline_timeout_ms", "900")
    .start();
    program.wait_for_counts(|counts| counts["online"].as_u64() > Some(5));
    for path in ["/", "/node"] {
        assert!(program.get(path).body.contains("simulated"), "{path}");
    }
    assert_eq!(program.json("/api/v1/devices")["total"], 40);
    assert!(folder.path().join("data-simulated/FORMAT").exists());
    assert!(!folder.path().join("data").exists());
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_simulated_fleet_needs_no_inventory_not_even_at_a_reload() {
    let folder = site_folder(0);
    let program = Launch::new(folder.path(), &["simulate", "--devices", "3"])
        .set("inventory.file", "nowhere.csv")
        .start();
    program.wait_for_log("watching");
    program.signal(Signal::SIGHUP);
    program.wait_for_log("configuration and inventory are in force");
    assert_eq!(program.json("/api/v1/devices")["total"], 3);
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_gateway_without_devices_is_ready() {
    let folder = site_folder(0);
    let program = quick(folder.path()).start();
    program.wait_for_log("watching devices=0");
    wait_for("readiness", || {
        (program.get("/readyz").status == 200).then_some(())
    });
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_turn_of_status_and_a_device_that_leaves_are_logged() {
    let folder = site_folder(2);
    let program = quick(folder.path()).start();
    program.wait_for_log("device is online device.id=D2 previous=\"unknown\"");
    write_inventory(folder.path(), 1);
    program.wait_for_log("device is no longer watched device.id=D2 reason=\"removed\"");
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn as_json_every_line_is_an_object_the_last_word_too() {
    let folder = site_folder(1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (key, value, code) in [
        ("web.listen", address.as_str(), 1),
        ("probe.heartbeat_period_ms", "0", 2),
    ] {
        let launch = quick(folder.path()).argument("--log-format=json");
        let (status, _, log) = launch.set(key, value).run();
        assert_eq!(status.code(), Some(code));
        let lines = log.lines().map(serde_json::from_str::<serde_json::Value>);
        let lines: Vec<_> = lines.map(|line| line.expect(&log)).collect();
        let last = lines.last().unwrap();
        assert_eq!(last["exit_code"], code, "{log}");
        assert!(last["message"].as_str().unwrap().contains(key), "{log}");
    }
}

#[test]
fn a_rust_log_that_cannot_be_read_is_named() {
    let folder = site_folder(1);
    let program = quick(folder.path())
        .variable("RUST_LOG", "sitebeat=loud")
        .start();
    program.wait_for_log("RUST_LOG = \"sitebeat=loud\" is not followed");
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn check_tells_what_is_missing_and_what_helps() {
    let folder = site_folder(1);
    let line = |key: &str, value: &str, start: &str| {
        let (_, out, _) = quick(folder.path()).set(key, value).run_check();
        let found = out.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {out}")).to_owned()
    };
    let icmp = line("probe.interface", "wwan77", "warn  icmp");
    assert!(
        icmp.contains("wwan77") && icmp.contains("probe.interface"),
        "{icmp}"
    );
    let (_, out, _) = quick(folder.path())
        .set("probe.interface", "wwan77")
        .run_check();
    let troubles = out.lines().filter(|line| line.starts_with("warn  icmp"));
    assert_eq!(troubles.count(), 1, "no device has an IPv6 address: {out}");
    let page = line("web.listen", "192.0.2.1:8080", "fail  page");
    assert!(page.contains("no such address"), "{page}");
    let store = line("store.path", "config/devices.csv", "fail  store");
    assert!(store.contains("check store.path"), "{store}");
    let empty = tempfile::tempdir().unwrap();
    let (status, out, _) = quick(empty.path()).run_check();
    assert_eq!(status.code(), Some(0), "{out}");
    assert!(
        out.contains("warn  inventory  the built-in devices"),
        "{out}"
    );
}

impl Launch {
    /// The same settings, but only checked.
    fn run_check(self) -> (std::process::ExitStatus, String, String) {
        self.argument("check").run()
    }
}
