//! The whole program's cost, side by side with fping where fping has one.
//!
//! `cargo bench --bench process -- PART [SECONDS]`, PART one of
//!
//! - `fping`: CPU per probe over 10,000 answering loopback addresses, as fast as
//!   the schedule allows and paced at 1,000 a second, fping in turn with it;
//! - `hour`: CPU per hour at 1,000 devices and the default minute, all alive and,
//!   in a second process at the same time, 200 of them silent;
//! - `memory`: peak resident memory at 1,000 and at 10,000 devices;
//! - `history`: memory after views of `/history` over five years of rows of 1,000
//!   devices, beside a process without any rows, and how long a view takes; SECONDS
//!   is how long after the views memory is looked at again;
//! - `page`: time to the first byte of the first page of 10,000 devices, and how
//!   late probes leave meanwhile.
//!
//! Needs root: it makes a network namespace of its own, where loopback answers
//! and a TUN device that nobody reads swallows everything. SECONDS is the length of a window.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot measure says so by ending"
)]

#[path = "../tests/support/process.rs"]
mod process;
#[path = "../tests/support/years.rs"]
mod years;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use process::{Launch, Program};
use sitebeat::clock::{Clock, SystemClock};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::instant::Wall;
use sitebeat::store::{Options, Store};

/// Clock ticks per second of `/proc/PID/stat` (proc(5); 100 on every Linux).
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let part = words.next().unwrap_or_else(|| "fping".into());
    let window = words.next().and_then(|text| text.parse().ok());
    let namespace = Namespace::make();
    match part.as_str() {
        "fping" => against_fping(&namespace, window.unwrap_or(30)),
        "hour" => hour(&namespace, window.unwrap_or(300)),
        "memory" => memory(&namespace, window.unwrap_or(120)),
        "history" => history(window.unwrap_or(45)),
        "page" => page(window.unwrap_or(90)),
        other => println!("unknown part {other}: fping, hour, memory, history or page"),
    }
}

/// Whole-process CPU per probe against `fping -c1`, which keeps nothing.
fn against_fping(namespace: &Namespace, window: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let addresses: Vec<String> = (0..10_000).map(live).collect();
    let list = folder.path().join("addresses");
    std::fs::write(&list, addresses.join("\n")).expect("a list");
    write_inventory(folder.path(), &addresses);
    // The least period there is, a short one and a calm one; fping alike.
    let paces = [
        ("as fast as the schedule allows", ["200", "150"], "0"),
        ("10,000 a second", ["1000", "900"], "0"),
        ("1,000 a second", ["10000", "900"], "1"),
    ];
    for (pace, times_ms, interval_ms) in paces {
        println!("10,000 loopback addresses, {pace}:");
        for round in 1..=3 {
            // One fping is over in a moment: several, before and after ours, see
            // the machine as ours does.
            let mut fpings: Vec<f64> = (0..2)
                .map(|_| fping(namespace, &list, interval_ms))
                .collect();
            let ours = probing(namespace, folder.path(), times_ms, window);
            fpings.extend((0..2).map(|_| fping(namespace, &list, interval_ms)));
            let fping = fpings.iter().sum::<f64>() / 4.0;
            println!(
                "  round {round}: sitebeat {ours:6.1} us/probe   fping {fping:6.1} us/probe   ratio {:.2}",
                ours / fping
            );
        }
    }
}

fn fping(namespace: &Namespace, list: &Path, interval_ms: &str) -> f64 {
    let before = children_cpu();
    let mut command = namespace.command("fping");
    command
        .args(["-c1", "-q", "-i", interval_ms, "-f"])
        .arg(list);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(
        status.expect("fping is installed").success(),
        "every address answers"
    );
    (children_cpu() - before) * 1e6 / 10_000.0
}

/// CPU per probe of a running program, after its start is over.
fn probing(namespace: &Namespace, folder: &Path, times_ms: [&str; 2], window: u64) -> f64 {
    let [period_ms, timeout_ms] = times_ms;
    let program = namespace
        .launch(folder, "bench")
        .set("probe.heartbeat_period_ms", period_ms)
        .set("probe.offline_timeout_ms", timeout_ms)
        .start();
    program.wait_for_log("watching");
    sleep(Duration::from_secs(8));
    let (cpu, sent) = (cpu(&program), packets_out(&program));
    sleep(Duration::from_secs(window));
    let (cpu, sent) = (self::cpu(&program) - cpu, packets_out(&program) - sent);
    assert_eq!(program.stop().code(), Some(0));
    cpu * 1e6 / sent
}

fn hour(namespace: &Namespace, window: u64) {
    let (alive, mixed) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    write_inventory(alive.path(), &(0..1_000).map(live).collect::<Vec<_>>());
    let is_dead = |n: u32| n.is_multiple_of(5);
    let address = |n| if is_dead(n) { dead(n) } else { live(n) };
    write_inventory(mixed.path(), &(0..1_000).map(address).collect::<Vec<_>>());
    let programs = [
        namespace.launch(alive.path(), "a").start(),
        namespace.launch(mixed.path(), "b").start(),
    ];
    // The dead ones are offline after three minutes; before that each is news.
    let settle = 200;
    println!("1,000 devices a minute, settling for {settle} s, then {window} s ...");
    sleep(Duration::from_secs(settle));
    let before: Vec<f64> = programs.iter().map(cpu).collect();
    let written: Vec<u64> = programs.iter().map(written_bytes).collect();
    sleep(Duration::from_secs(window));
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds and bytes of one window are small"
    )]
    let per_hour = 3_600.0 / window as f64;
    let mut costs = Vec::new();
    for (n, what) in ["all alive", "200 silent"].into_iter().enumerate() {
        let cpu_per_hour = (cpu(&programs[n]) - before[n]) * per_hour;
        let bytes = written_bytes(&programs[n]) - written[n];
        costs.push(cpu_per_hour);
        println!(
            "  {what:10}: {cpu_per_hour:.2} CPU s per hour, {bytes} bytes written, peak {} kB",
            peak_kb(&programs[n])
        );
    }
    println!(
        "  ratio of 200 silent to all alive: {:.2}",
        costs[1] / costs[0]
    );
}

fn memory(namespace: &Namespace, window: u64) {
    for n in [1_000, 10_000] {
        let folder = tempfile::tempdir().expect("a folder");
        write_inventory(folder.path(), &(0..n).map(live).collect::<Vec<_>>());
        let program = namespace.launch(folder.path(), "memory").start();
        sleep(Duration::from_secs(window));
        println!("{n} devices for {window} s: peak {} kB", peak_kb(&program));
        assert_eq!(program.stop().code(), Some(0));
    }
}

fn history(window: u64) {
    let [with, without] = [(); 2].map(|()| tempfile::tempdir_in("target").expect("a folder"));
    for folder in [&with, &without] {
        write_inventory(folder.path(), &(0..1_000).map(live).collect::<Vec<_>>());
    }
    let clock = SystemClock::new();
    keep_years(with.path(), clock.wall());
    let programs = [&with, &without].map(|folder| Launch::new(folder.path(), &[]).start());
    let tell = |when: &str| {
        let [with, without] = [&programs[0], &programs[1]].map(resident_kb);
        let more = with.cast_signed() - without.cast_signed();
        println!("  {when:24}: {with} kB with history, {without} kB without, {more} kB more");
    };
    println!("1,000 devices, five years of rows:");
    sleep(Duration::from_secs(20));
    tell("before any view");
    let views = ["days=30", "days=90", "device=D7&days=90"];
    let mut longest = [Duration::ZERO; 3];
    for program in &programs {
        for _ in 0..4 {
            for (view, longest) in views.iter().zip(&mut longest) {
                let start = clock.mono();
                let answer = program.get(&format!("/history?{view}"));
                *longest = clock.mono().since(start).max(*longest);
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        }
    }
    tell("after twelve views");
    sleep(Duration::from_secs(window));
    tell(&format!("{window} s later"));
    for (view, longest) in views.iter().zip(longest) {
        println!("  longest view of /history?{view}: {longest:.1?}");
    }
    for program in programs {
        assert_eq!(program.stop().code(), Some(0));
    }
}

/// A store with five years of rows up to yesterday.
fn keep_years(folder: &Path, now: Wall) {
    let options = Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 8 << 30,
        min_free_bytes: 0,
    };
    let store = Store::open(&options, now).expect("open the store").store;
    let fleet: Vec<DeviceId> = (0..1_000)
        .map(|n| format!("D{n}").parse().expect("an id"))
        .collect();
    let yesterday = Day::of(now).expect("a day of the calendar").previous();
    years::keep_days(&store, &fleet, (yesterday, 5 * 365));
    store.close(now).expect("close the store");
}

fn page(window: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    write_inventory(folder.path(), &(0..10_000).map(live).collect::<Vec<_>>());
    let program = Launch::new(folder.path(), &[]).start();
    let address = program.address();
    println!("10,000 devices a minute, one page after the other for {window} s ...");
    let clock = SystemClock::new();
    let (start, mut waits) = (clock.mono(), Vec::new());
    while clock.mono().since(start) < Duration::from_secs(window) {
        waits.push(first_byte(address, &clock));
        sleep(Duration::from_millis(10));
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    let late = program.json("/api/v1/node")["probe"]["lateness_p99_ms"].clone();
    println!(
        "  first byte of {} pages: p50 {:?}, p99 {:?}, longest {:?}; probes late p99 {late} ms",
        waits.len(),
        at(50),
        at(99),
        at(100)
    );
    assert_eq!(program.stop().code(), Some(0));
}

fn first_byte(address: SocketAddr, clock: &SystemClock) -> Duration {
    let start = clock.mono();
    let mut stream = TcpStream::connect(address).expect("the page listens");
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("the page reads");
    stream.read_exact(&mut [0]).expect("the page answers");
    let waited = clock.mono().since(start);
    let rest = stream.read_to_end(&mut Vec::new()).expect("the rest");
    assert!(rest > 10_000, "a whole page");
    waited
}

fn live(n: u32) -> String {
    let [_, _, high, low] = n.to_be_bytes();
    format!("127.1.{high}.{low}")
}

/// Routed to the TUN device, which swallows it.
fn dead(n: u32) -> String {
    let [_, _, high, low] = n.to_be_bytes();
    format!("10.99.{high}.{low}")
}

fn write_inventory(folder: &Path, addresses: &[String]) {
    let mut text = String::from("device_id,address\n");
    for (n, address) in addresses.iter().enumerate() {
        writeln!(text, "D{n},{address}").expect("text grows");
    }
    std::fs::create_dir_all(folder.join("config")).expect("a folder");
    std::fs::write(folder.join("config/devices.csv"), text).expect("an inventory");
}

/// CPU seconds of a process so far, fields 14 and 15 of `/proc/PID/stat`.
fn cpu(program: &Program) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.pid())).expect("it runs");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let field = |n: usize| -> f64 {
        after_name
            .split_whitespace()
            .nth(n - 3)
            .expect("a field")
            .parse()
            .expect("a number")
    };
    (field(14) + field(15)) / TICKS_PER_SECOND
}

fn children_cpu() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
        .expect("the kernel keeps it");
    let seconds = |time: nix::sys::time::TimeVal| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "CPU times of a benchmark are small"
        )]
        let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds
    };
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Echo requests sent in the program's namespace (`OutEchos` of
/// `/proc/PID/net/snmp`, RFC 4293).
fn packets_out(program: &Program) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/net/snmp", program.pid())).expect("snmp");
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names
        .split(' ')
        .position(|name| name == "OutEchos")
        .expect("OutEchos");
    values
        .split(' ')
        .nth(at)
        .expect("a value")
        .parse()
        .expect("a number")
}

fn status_line(program: &Program, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", program.pid())).expect("it runs");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line");
    let number = line.split_whitespace().next().expect("a number");
    number.parse().expect("a number")
}

fn written_bytes(program: &Program) -> u64 {
    status_line(program, "io", "write_bytes:")
}

fn resident_kb(program: &Program) -> u64 {
    status_line(program, "status", "VmRSS:")
}

fn peak_kb(program: &Program) -> u64 {
    status_line(program, "status", "VmHWM:")
}

/// A network namespace with loopback and a device that swallows, removed at the end.
struct Namespace {
    name: String,
}

impl Namespace {
    fn make() -> Self {
        let name = format!("sitebeat-bench-{}", std::process::id());
        let made = Self { name: name.clone() };
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        ip(&[
            "netns", "exec", &name, "ip", "tuntap", "add", "dev", "swallow", "mode", "tun",
        ]);
        ip(&[
            "-n",
            &name,
            "addr",
            "add",
            "10.99.255.254/16",
            "dev",
            "swallow",
        ]);
        ip(&["-n", &name, "link", "set", "swallow", "up"]);
        made
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// The program in the namespace, with its store in its folder.
    fn launch(&self, folder: &Path, store: &str) -> Launch {
        let wrapper = ["ip", "netns", "exec", &self.name];
        Launch::under(&wrapper, folder, &[]).set("store.path", store)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip")
        .args(arguments)
        .status()
        .expect("iproute2 is installed");
    assert!(status.success(), "ip {}: run as root", arguments.join(" "));
}
