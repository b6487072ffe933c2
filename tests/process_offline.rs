//! `export` and `rollup` of the real program on the store of a gateway that is
//! stopped: whose it is, what may be written, what is damaged. Needs root.
#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use process::{Launch, site_folder, wait_for};

#[path = "support/process.rs"]
mod process;

/// Who a service's data belongs to.
const OWNER: u32 = 64_987;
const AS_OWNER: [&str; 4] = [
    "setpriv",
    "--reuid=64987",
    "--regid=64987",
    "--clear-groups",
];

/// A store with heartbeats and events of D1, below a folder that only root may
/// pass, and named by a link, as systemd does it for a user of its own making.
fn stopped_gateway() -> tempfile::TempDir {
    let folder = site_folder(1);
    let program = Launch::new(folder.path(), &[])
        .set("store.path", "private/service/data")
        .start();
    program.wait_for_counts(|counts| counts["online"] == 1);
    assert_eq!(program.stop().code(), Some(0));
    symlink("private/service", folder.path().join("service")).unwrap();
    set_mode(&folder.path().join("private"), 0o700);
    folder
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        next += 1;
        if path.is_dir() && !path.is_symlink() {
            let entries = fs::read_dir(path).unwrap();
            all.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    all
}

/// Runs a command on `store` and tells code, output and log.
fn run(mut launch: Launch, arguments: &[&str]) -> (Option<i32>, String, String) {
    for argument in arguments {
        launch = launch.argument(argument);
    }
    let (status, stdout, log) = launch.run();
    assert!(!log.contains("panicked"), "{log}");
    (status.code(), stdout, log)
}

#[test]
fn root_works_on_a_store_as_its_owner_and_follows_no_link_of_his() {
    let folder = stopped_gateway();
    let store = folder.path().join("private/service/data");
    for path in files_below(store.parent().unwrap()) {
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    }
    let as_root = |arguments: &[&str]| {
        let launch = Launch::new(folder.path(), &[]).set("store.path", "service/data");
        run(launch, arguments)
    };
    let (code, out, log) = as_root(&["export", "raw", "--format", "jsonl"]);
    assert_eq!(code, Some(0), "{log}");
    assert!(out.contains("\"device_id\":\"D1\""), "{out}");
    let (code, _, log) = as_root(&["rollup"]);
    assert_eq!(code, Some(0), "{log}");
    for path in files_below(&store) {
        let owner = fs::symlink_metadata(&path).unwrap().uid();
        assert_eq!(owner, OWNER, "{}", path.display());
    }
    let victim = folder.path().join("victim");
    fs::write(&victim, "root's own\n").unwrap();
    set_mode(&victim, 0o600);
    for name in ["state/db", "LOCK", "FORMAT"] {
        let (path, aside) = (store.join(name), store.join("aside"));
        fs::rename(&path, &aside).unwrap();
        symlink(&victim, &path).unwrap();
        for command in [&["export", "events"][..], &["rollup"]] {
            let (code, out, log) = as_root(command);
            let kept = fs::read_to_string(&victim).unwrap_or_default();
            assert_eq!(kept, "root's own\n", "{name}: {command:?}");
            assert_eq!(fs::metadata(&victim).unwrap().uid(), 0, "{name}");
            assert!([Some(1), Some(3)].contains(&code), "{name}: {log}");
            assert!(log.contains("service/data"), "{name}: {log}");
            assert!(!(out + &log).contains("root's own"), "{name}");
        }
        fs::rename(&aside, &path).unwrap();
    }
    let (code, _, log) = as_root(&["export", "events"]);
    assert_eq!(code, Some(0), "all back in its place: {log}");
}

#[test]
fn root_does_not_work_where_others_may_plant_links() {
    let folder = stopped_gateway();
    let store = folder.path().join("private/service/data");
    let export = || {
        let launch = Launch::new(folder.path(), &["export", "events"]);
        run(launch.set("store.path", store.to_str().unwrap()), &[])
    };
    for mode in [0o777, 0o1777, 0o757] {
        set_mode(&store, mode);
        let (code, _, log) = export();
        assert_eq!(code, Some(3), "{mode:o}: {log}");
        assert!(log.contains("chmod go-w"), "{log}");
        assert!(log.contains(store.to_str().unwrap()), "{log}");
    }
    set_mode(&store, 0o755);
    assert_eq!(export().0, Some(0));
}

#[test]
fn a_copy_that_cannot_be_written_is_left_as_it_is_and_the_cure_works() {
    let folder = stopped_gateway();
    let store = folder.path().join("copy");
    fs::rename(folder.path().join("private/service/data"), &store).unwrap();
    for path in files_below(folder.path()) {
        let mode = fs::metadata(&path).unwrap().mode();
        set_mode(
            &path,
            (mode | 0o044 | (mode & 0o100) >> 2 | (mode & 0o100) >> 6 | 0o001) & 0o755,
        );
    }
    let before = files_below(&store);
    let refused = |launch: Launch| {
        let launch = launch.set("store.path", store.to_str().unwrap());
        let (code, _, log) = run(launch, &["export", "events"]);
        assert_eq!(code, Some(3), "{log}");
        for said in ["copy the folder", "SITEBEAT__STORE__PATH", "copy"] {
            assert!(log.contains(said), "{said}: {log}");
        }
        assert_eq!(files_below(&store), before);
    };
    refused(Launch::under(&AS_OWNER, folder.path(), &[]));
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let read_only = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        store.to_str().unwrap(),
    ];
    refused(Launch::under(&read_only, folder.path(), &[]));
    fs::remove_file(store.join("LOCK")).unwrap();
    let before = files_below(&store);
    let launch = Launch::under(&read_only, folder.path(), &["export", "events"]);
    let (code, _, log) = run(launch.set("store.path", store.to_str().unwrap()), &[]);
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("copy the folder"), "{log}");
    assert_eq!(files_below(&store), before);

    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(OWNER), Some(OWNER)).unwrap();
    let mine = home.path().join("mine");
    let copied = Command::new(AS_OWNER[0])
        .args(&AS_OWNER[1..])
        .args(["cp", "-r"])
        .args([&store, &mine])
        .status();
    assert!(copied.unwrap().success());
    let launch = Launch::under(&AS_OWNER, home.path(), &["export", "events"]);
    let launch = launch.variable("SITEBEAT__STORE__PATH", mine.to_str().unwrap());
    let (code, out, log) = run(launch, &[]);
    assert_eq!(code, Some(0), "{log}");
    assert!(out.contains("heartbeat.status.changed.v1"), "{out}");
}

#[test]
fn damage_is_named_with_its_folder_and_the_cure() {
    let folder = stopped_gateway();
    let store = folder.path().join("private/service/data");
    let month = store.join("daily/2026-03");
    fs::create_dir_all(&month).unwrap();
    let day = fs::read_dir(store.join("raw")).unwrap().next().unwrap();
    let day = day.unwrap().path();
    for (what, part) in [
        ("daily", &month),
        ("raw", &day),
        ("events", &store.join("state")),
    ] {
        fs::write(part.join("conf"), vec![7; 300]).unwrap();
        let launch = Launch::new(folder.path(), &["export", what]);
        let launch = launch.set("store.path", "private/service/data");
        let (code, _, log) = run(launch, &[]);
        assert_eq!(code, Some(1), "{what}: {log}");
        let words = ["is damaged", "private/service/data", "start sitebeat"];
        for said in words {
            assert!(log.contains(said), "{what}: {said}: {log}");
        }
        let name = part.file_name().unwrap().to_str().unwrap();
        assert!(log.contains(name), "{what}: {name}: {log}");
        for noise in ["backtrace", "262143", "262142", "None"] {
            assert!(!log.contains(noise), "{what}: {noise}: {log}");
        }
    }
}

#[test]
fn a_rollup_with_nothing_due_says_so() {
    let folder = stopped_gateway();
    let launch = Launch::new(folder.path(), &["rollup"]);
    let (code, _, log) = run(launch.set("store.path", "service/data"), &[]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("no day summarised"), "{log}");
    assert!(log.contains("service/data"), "{log}");
    wait_for("the lock is free", || {
        let launch = Launch::new(folder.path(), &["export", "daily"]);
        let (code, ..) = run(launch.set("store.path", "service/data"), &[]);
        (code == Some(0)).then_some(())
    });
}
