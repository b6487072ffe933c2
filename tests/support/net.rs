//! Network namespaces for tests: nothing a test does to the network is seen
//! outside, and nothing outside disturbs it.
//!
//! `Net::new()` makes a named namespace with `lo` up and DGRAM ICMP allowed to
//! everybody. Code of the test runs inside with [`Net::run`] (on a thread of
//! its own: sockets belong to the namespace of the thread that opens them), a
//! whole program with [`Net::command`]. The namespace goes with the value;
//! those that a killed run left behind go with the next `Net::new()`.
//!
//! Needs root. Without it the tests fail and say so: a test that quietly
//! skips itself proves nothing.

#![allow(
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    reason = "test code: each binary uses its part, and may panic"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps its handles.
const HANDLES: &str = "/var/run/netns";
const PREFIX: &str = "sitebeat-test";

/// A network namespace of this test.
#[derive(Debug)]
pub(crate) struct Net {
    name: String,
}

impl Net {
    /// Makes one.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_left_behind();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{count}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let net = Self { name };
        net.ip("link set lo up");
        net.set("net/ipv4/ping_group_range", "0 2147483647");
        net
    }

    /// Its name, as `ip netns exec` wants it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread inside; a panic there is one here.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread inside, for good.
    pub(crate) fn enter(&self) {
        let handle = fs::File::open(Path::new(HANDLES).join(&self.name)).expect("namespace handle");
        setns(handle, CloneFlags::CLONE_NEWNET).expect("enter the namespace: needs root");
    }

    /// A command that will run inside: `net.command(env!("CARGO_BIN_EXE_sitebeat"))`.
    /// Signals to the child reach the program: `ip` becomes it.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip ARGUMENTS` inside.
    pub(crate) fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        run("ip", &all);
    }

    /// Gives an interface an address and waits until it receives under it: over
    /// IPv6 the kernel adds the route a little after the address.
    pub(crate) fn add_address(&self, interface: &str, address: &str) {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.ip(&format!("addr add {address} dev {interface} {nodad}"));
        let (host, _) = address.split_once('/').expect("ADDRESS/BITS");
        let family = if host.contains(':') { "-6" } else { "-4" };
        let list = [
            "-n", &self.name, family, "route", "show", "table", "local", host,
        ];
        for _ in 0..2_000 {
            if !run("ip", &list).is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{host} has no local route after 10 s");
    }

    /// Sets a sysctl inside, named as under `/proc/sys`.
    pub(crate) fn set(&self, sysctl: &str, value: &str) {
        let path = Path::new("/proc/sys").join(sysctl);
        self.run(|| fs::write(&path, value))
            .unwrap_or_else(|fault| panic!("set {sysctl} = {value} (needs root): {fault}"));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A failure leaves it to the next run, which removes it.
        drop(
            Command::new("ip")
                .args(["netns", "del", &self.name])
                .output(),
        );
    }
}

/// Runs a program to its end and returns what it prints; its failure is the
/// test's, with its words.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|fault| panic!("run {program}: {fault}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {} (these tests need root): {said}",
        arguments.join(" ")
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Open ICMP sockets of the calling thread's namespace, by its own list: other
/// tests of this process open and close files at the same time.
pub(crate) fn icmp_sockets() -> usize {
    let lists = ["raw", "raw6", "icmp", "icmp6"];
    let read = |list| fs::read_to_string(format!("/proc/thread-self/net/{list}"));
    let lines = |list| read(list).expect("a list of sockets").lines().count() - 1;
    lists.into_iter().map(lines).sum()
}

fn remove_left_behind() {
    for entry in fs::read_dir(HANDLES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').nth(1));
        let is_orphan = owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if is_orphan {
            drop(Command::new("ip").args(["netns", "del", &name]).output());
        }
    }
}
