//! Floor 4: the program. Command line, start order, supervision, stop order.
//!
//! Knows every room and decides nothing about devices.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use cli::{Command, Invocation, LogFormat};
use exit::Failure;
use logging::Log;
use opening::Simulation;
use run::Plan;

use crate::config::inventory::Inventory;
use crate::config::{self, Request};
use crate::fault::chain;
use crate::ping::fleet::Fleet;

mod allocator;
pub mod check;
pub mod cli;
pub mod exit;
pub mod export;
pub mod logging;
mod offline;
pub mod opening;
mod page;
mod rollup;
pub mod roster;
pub mod run;
mod signals;
pub mod steward;

/// The whole program: reads the command line and the environment, does what
/// they say, and tells how it ended.
#[must_use]
pub fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(help_or_fault) => return explain(&help_or_fault),
    };
    let is_to_stay = matches!(invocation.command, Command::Run | Command::Simulate(_));
    let settled = if is_to_stay {
        allocator::settle()
    } else {
        Ok(())
    };
    let variables = config::process_variables();
    let env = match invocation.environment(&variables) {
        Ok(env) => env,
        Err(fault) => return explain(&fault),
    };
    let host_name = nix::unistd::gethostname().unwrap_or_else(|_| OsString::from("node"));
    let request = Request {
        path: invocation.config.clone(),
        env,
        variables,
        host_name: host_name.to_string_lossy().into_owned(),
        flags: Vec::new(),
    };
    let levels = std::env::var("RUST_LOG").ok();
    let has_log = !matches!(invocation.command, Command::Check | Command::Export(_));
    let log = has_log.then(|| logging::start(invocation.log_format, levels.as_deref()));
    if let Err(fault) = settled {
        tracing::warn!(error = %fault, "memory that is given back stays with the process longer");
    }
    match obey(&invocation, request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&failure, invocation.log_format, log);
            failure.code()
        }
    }
}

/// The last word of a program that failed, after its log: a plain line, or a
/// line of the log where a collector reads it, which takes nothing but JSON.
fn tell(failure: &Failure, format: LogFormat, log: Option<Log>) {
    if log.is_some() && format == LogFormat::Json {
        tracing::error!(exit_code = failure.number(), "{}", chain(failure));
        return;
    }
    drop(log);
    say(&format!("sitebeat: {}\n", chain(failure)), true);
}

fn obey(invocation: &Invocation, request: Request) -> Result<(), Failure> {
    let fleet = match invocation.command {
        Command::Check => return check::check(&request, &mut std::io::stdout().lock()),
        Command::Export(wish) => return export::export(&request, &wish),
        Command::Rollup(wish) => return rollup::rollup(&request, wish.day),
        Command::Run => None,
        Command::Simulate(fleet) => Some(fleet),
    };
    run::run(|| plan(request, fleet))
}

fn plan(mut request: Request, fleet: Option<cli::Simulation>) -> Result<Plan, Failure> {
    let usage = |faults: config::Faults| Failure::Usage(faults.to_string());
    let Some(cli::Simulation { devices, seed }) = fleet else {
        let (loaded, inventory) = config::load_with_inventory(&request).map_err(usage)?;
        return Ok(Plan {
            request,
            loaded,
            inventory,
            simulation: None,
        });
    };
    let settings = config::load(&request).map_err(usage)?.settings;
    let devices = usize::try_from(devices).unwrap_or(usize::MAX);
    let simulation = Simulation {
        seed,
        devices: Fleet::inventory(seed, &settings.site.id, devices),
    };
    // As a flag, so that a reload sees the same path.
    let path = format!("{}-simulated", settings.store.path.display());
    request.flags.push(("store.path".into(), path.into()));
    Ok(Plan {
        loaded: config::load(&request).map_err(usage)?,
        request,
        // Its devices are made up: the file may be bad or not there.
        inventory: Inventory::default(),
        simulation: Some(simulation),
    })
}

/// Prints help or a fault of usage and tells the exit code.
fn explain(help_or_fault: &clap::Error) -> ExitCode {
    say(
        &help_or_fault.render().to_string(),
        help_or_fault.use_stderr(),
    );
    ExitCode::from(u8::try_from(help_or_fault.exit_code()).unwrap_or(2))
}

/// Prints; a closed pipe is nobody's fault.
fn say(text: &str, is_fault: bool) {
    if is_fault {
        logging::last_words(text);
    } else {
        drop(std::io::stdout().write_all(text.as_bytes()));
    }
}
