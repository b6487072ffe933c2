//! `sitebeat check`: whether a start would work, one line each.
//!
//! Floor 4. Looks without touching: the store is not opened, nothing is sent to
//! a device. Every line that is not `ok` ends with the cure.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::exit::Failure;
use super::opening::{listen_cure, open_engine, plausible_after};
use super::steward::sources;
use crate::clock::{Clock, SystemClock};
use crate::config::inventory;
use crate::config::settings::Settings;
use crate::config::{self, Loaded, Request};
use crate::domain::device::Device;
use crate::domain::size::Bytes;
use crate::fault::chain;
use crate::ping::packet::Family;
use crate::ping::{self, Trouble};
use crate::store::inspect::{self, Standing};

/// How long a broker may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the answer.
#[derive(Debug)]
struct Line {
    verdict: Verdict,
    thing: &'static str,
    text: String,
}

/// Checks everything and writes one line each to `out`.
pub fn check(request: &Request, out: &mut dyn Write) -> Result<(), Failure> {
    let mut lines = Vec::new();
    match config::load(request) {
        Ok(loaded) => check_loaded(&loaded, &mut lines),
        Err(faults) => {
            // The inventory may be bad too, and would else be the next surprise.
            let faults = config::load_with_inventory(request).err().unwrap_or(faults);
            lines.extend(
                faults
                    .to_string()
                    .lines()
                    .map(|fault| Line::new(Verdict::Fail, "config", fault)),
            );
        }
    }
    lines.extend(check_clock(&request.variables));
    for line in &lines {
        writeln!(out, "{line}")
            .map_err(|fault| Failure::Running(format!("cannot print: {fault}")))?;
    }
    let failed = lines
        .iter()
        .filter(|line| line.verdict == Verdict::Fail)
        .count();
    if failed > 0 {
        return Err(Failure::Running(format!(
            "{failed} of {} checks failed",
            lines.len()
        )));
    }
    Ok(())
}

fn check_loaded(loaded: &Loaded, lines: &mut Vec<Line>) {
    let settings = &loaded.settings;
    lines.push(Line::new(Verdict::Ok, "config", sources(&loaded.files)));
    lines.extend(
        loaded
            .warnings
            .iter()
            .map(|text| Line::new(Verdict::Warn, "config", text)),
    );
    let devices = check_inventory(settings, lines);
    check_icmp(settings, &devices, lines);
    lines.push(check_store(settings));
    lines.push(check_listen(settings));
    lines.push(check_broker(settings));
    lines.push(Line::new(Verdict::Ok, "redis", "not used on a gateway"));
}

/// Only what is wrong with the clock: a right one is no setting of ours.
fn check_clock(variables: &[(String, String)]) -> Option<Line> {
    let after = match plausible_after(variables) {
        Ok(after) => after,
        Err(fault) => return Some(Line::new(Verdict::Fail, "clock", chain(&fault))),
    };
    let now = SystemClock::new().wall();
    (now <= after).then(|| {
        let text = format!(
            "shows {now}, and nothing is written up to {after}: set it, or have it synchronised"
        );
        Line::new(Verdict::Warn, "clock", text)
    })
}

/// Tells the devices too.
fn check_inventory(settings: &Settings, lines: &mut Vec<Line>) -> Vec<Device> {
    let inventory = match inventory::read(settings) {
        Ok(inventory) => inventory,
        Err(fault) => {
            lines.push(Line::new(Verdict::Fail, "inventory", chain(&fault)));
            return Vec::new();
        }
    };
    let enabled = inventory
        .devices
        .iter()
        .filter(|device| device.enabled)
        .count();
    lines.push(if let Some(file) = &inventory.file {
        let (file, count) = (file.display(), inventory.devices.len());
        let text = format!("{file}: {count} devices, {enabled} enabled");
        Line::new(Verdict::Ok, "inventory", text)
    } else {
        let text = format!(
            "{} are watched, as there is no config/devices.csv here: set inventory.file",
            inventory::BUILT_IN
        );
        Line::new(Verdict::Warn, "inventory", text)
    });
    // Refused rows do not keep the good ones from running, so they only warn.
    let warned = inventory.refused.iter().chain(&inventory.warnings);
    lines.extend(warned.map(|text| Line::new(Verdict::Warn, "inventory", text)));
    inventory.devices
}

fn check_icmp(settings: &Settings, devices: &[Device], lines: &mut Vec<Line>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let opened = match runtime {
        Ok(runtime) => runtime.block_on(async { open_engine(settings, &clock) }),
        Err(source) => Err(ping::OpenError::Socket {
            deed: "start the runtime".into(),
            source,
        }),
    };
    match opened {
        Ok(probe) => {
            let facts = probe.facts();
            let text = format!("engine {}, socket {}", facts.engine, facts.socket);
            lines.push(Line::new(Verdict::Ok, "icmp", text));
            let is_asked = |trouble: &&Trouble| {
                let mut enabled = devices.iter().filter(|device| device.enabled);
                enabled.any(|device| Family::of(device.address) == trouble.family)
            };
            lines.extend(facts.troubles.iter().filter(is_asked).map(|trouble| {
                let text = format!(
                    "{}; tried again before every send: check probe.interface and probe.source",
                    trouble.text
                );
                Line::new(Verdict::Warn, "icmp", text)
            }));
        }
        Err(fault) => lines.push(Line::new(Verdict::Fail, "icmp", chain(&fault))),
    }
}

fn check_store(settings: &Settings) -> Line {
    let path = &settings.store.path;
    let shown = path.display();
    let standing = match inspect::look(path) {
        Ok(standing) => standing,
        Err(fault) => return Line::new(Verdict::Fail, "store", chain(&fault)),
    };
    let free = inspect::free_bytes(path);
    let needed = settings.store.min_free_bytes;
    if let Some(free) = free.filter(|&free| free < needed) {
        let text = format!(
            "{shown}: {} free, store.min_free_bytes asks for {}: free some disk",
            Bytes(free),
            Bytes(needed),
        );
        return Line::new(Verdict::Fail, "store", text);
    }
    match standing {
        Standing::New => Line::new(Verdict::Ok, "store", format!("{shown}: will be made")),
        Standing::Free => Line::new(Verdict::Ok, "store", format!("{shown}: there, not in use")),
        Standing::InUse => {
            let text =
                format!("{shown}: in use by a running sitebeat; stop that one to start another");
            Line::new(Verdict::Warn, "store", text)
        }
    }
}

fn check_listen(settings: &Settings) -> Line {
    let address = settings.web.listen;
    match TcpListener::bind(address) {
        Ok(_) => Line::new(Verdict::Ok, "page", format!("{address} is free")),
        Err(fault) => {
            let cure = listen_cure(&fault);
            // A check beside the running program meets that program's own page.
            let is_taken = fault.kind() == ErrorKind::AddrInUse;
            let (verdict, but) = if is_taken {
                (Verdict::Warn, "fine if sitebeat runs there already, else ")
            } else {
                (Verdict::Fail, "")
            };
            let text = format!("web.listen = {address}: {fault}; {but}{cure}");
            Line::new(verdict, "page", text)
        }
    }
}

fn check_broker(settings: &Settings) -> Line {
    let Some(url) = &settings.uplink.url else {
        return Line::new(
            Verdict::Ok,
            "broker",
            "uplink.url is not set: nothing is sent upstream",
        );
    };
    let (is_tls, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (scheme == "mqtts", rest),
        None => (false, url.as_str()),
    };
    let authority = rest.split('/').next().unwrap_or(rest);
    let default_port = if is_tls { 8883 } else { 1883 };
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:{default_port}")
    };
    match connect(&target) {
        Ok(()) => Line::new(
            Verdict::Ok,
            "broker",
            format!("{target} accepts connections"),
        ),
        Err(fault) => {
            let text =
                format!("{target}: {fault}; check uplink.url, the broker and the route to it");
            Line::new(Verdict::Fail, "broker", text)
        }
    }
}

fn connect(target: &str) -> std::io::Result<()> {
    let mut last = std::io::Error::from(ErrorKind::NotFound);
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(_) => return Ok(()),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

impl Line {
    fn new(verdict: Verdict, thing: &'static str, text: impl Into<String>) -> Self {
        Self {
            verdict,
            thing,
            text: text.into(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        write!(f, "{verdict:<5} {:<10} {}", self.thing, self.text)
    }
}
