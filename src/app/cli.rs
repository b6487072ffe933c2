//! The command line: what a user may ask for, and how it is explained.
//!
//! Floor 4. `main` hands the arguments to [`parse`]; `app` carries out the
//! [`Invocation`]. An error of [`parse`] prints itself and knows its exit code:
//! 2, or 0 where help or the version was asked for.
//!
//! # Invariants
//!
//! - No arguments mean `sitebeat run`.
//! - Nothing is read here but arguments and, in [`Invocation::environment`], the
//!   variables that are handed in.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::Environment;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;

/// The variable that chooses the environment where `--env` does not.
pub const ENV_VARIABLE: &str = "SITEBEAT_ENV";

/// Most simulated devices: the most that an inventory may hold.
const SIMULATED_DEVICES_MAX: i64 = 100_000;

const EXAMPLES: &str = "\
Examples:
  sitebeat                                  watch config/, or 127.0.0.1 to 127.0.0.5 without it;
                                            page on http://127.0.0.1:8080, data under ./data
  sitebeat run --config /etc/sitebeat --env prod
  sitebeat check --config site.toml         name every fault before a restart
  sitebeat simulate --devices 500           look around without a network or privilege
  sitebeat export daily --from 2026-03-01   summaries of a stopped gateway as CSV

Every key of the configuration can be set by SITEBEAT__SECTION__KEY, for example
SITEBEAT__WEB__LISTEN=0.0.0.0:8080; config/default.toml explains them all.";

const EXIT_CODES: &str = "\
Exit codes:
  0  clean stop
  1  failure while running; for check: something failed
  2  usage or configuration, all faults listed
  3  store in use by another process, or not usable
  4  no privilege to send ICMP (CAP_NET_RAW or net.ipv4.ping_group_range)

Signals: TERM and INT stop cleanly, HUP reloads configuration and inventory.";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The command.
    pub command: Command,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--env`; see [`Invocation::environment`].
    pub env: Option<Environment>,
    /// `--log-format`
    pub log_format: LogFormat,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Watch the devices of the site and serve the page
    Run,
    /// Check configuration, inventory, ICMP privilege and store, one line each
    Check,
    /// Run against a simulated GSM fleet: no network is probed, no privilege needed
    Simulate(Simulation),
    /// Print summaries, heartbeats or events of a store that no process runs on
    Export(Export),
    /// Summarise days of a store that no process runs on
    Rollup(HandRollup),
}

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Export {
    /// Which records
    #[arg(value_enum)]
    pub what: ExportWhat,
    /// First day, UTC [default: the oldest]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub from: Option<Day>,
    /// Last day, UTC, included [default: the newest]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub to: Option<Day>,
    /// Of this device alone
    #[arg(long, value_name = "ID", value_parser = device)]
    pub device: Option<DeviceId>,
    /// How records look
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub format: ExportFormat,
}

/// Which records to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportWhat {
    /// One summary row per day and device
    Daily,
    /// Heartbeats as they were kept; `recheck` marks the second question after a miss, first
    /// looks and probes on demand are unmarked; none of these count in ratios
    Raw,
    /// The event log
    Events,
}

/// How records look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values with a header (RFC 4180); null is an empty field
    #[default]
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// Which day to summarise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct HandRollup {
    /// The day, UTC [default: every day whose heartbeats are there]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub day: Option<Day>,
}

fn day(text: &str) -> Result<Day, String> {
    text.parse()
        .map_err(|_| "must be a day such as 2026-03-12".to_owned())
}

fn device(text: &str) -> Result<DeviceId, String> {
    text.parse::<DeviceId>().map_err(|fault| fault.to_string())
}

/// A fleet to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Simulation {
    /// How many devices
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=SIMULATED_DEVICES_MAX))]
    pub devices: u32,
    /// The same seed gives the same fleet with the same troubles
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// The arguments as they are written.
#[derive(Debug, Parser)]
#[command(
    name = "sitebeat",
    version,
    about = "Pings the devices of a GSM site, judges them online, degraded or offline, and keeps the record.",
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A configuration file, or a folder with default.toml and {env}.toml [default: config, if found]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Which {env}.toml is read; without it `SITEBEAT_ENV` chooses [default: dev]
    #[arg(long, global = true, value_name = "ENV",
          value_parser = PossibleValuesParser::new(Environment::ALL.map(Environment::word)))]
    env: Option<String>,
    /// How log lines look
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: LogFormat,
}

/// Reads the arguments, the program's name first.
///
/// # Errors
///
/// Wrong usage, and also a wish for help or the version: print the error with
/// [`clap::Error::print`] and end with [`clap::Error::exit_code`].
pub fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Invocation, clap::Error> {
    let written = Arguments::try_parse_from(arguments)?;
    Ok(Invocation {
        command: written.command.unwrap_or(Command::Run),
        config: written.config,
        env: written.env.as_deref().and_then(Environment::parse),
        log_format: written.log_format,
    })
}

impl Invocation {
    /// The environment in force: `--env`, else `SITEBEAT_ENV` of these
    /// variables, else `dev`.
    ///
    /// # Errors
    ///
    /// A `SITEBEAT_ENV` that is none of the three, as wrong usage.
    pub fn environment(&self, variables: &[(String, String)]) -> Result<Environment, clap::Error> {
        if let Some(env) = self.env {
            return Ok(env);
        }
        let set = variables.iter().find(|(name, _)| name == ENV_VARIABLE);
        match set.map(|(_, value)| value.as_str()) {
            None | Some("") => Ok(Environment::default()),
            Some(word) => Environment::parse(word).ok_or_else(|| {
                let said = format!("{ENV_VARIABLE} = {word:?} must be dev, stage or prod");
                Arguments::command().error(ErrorKind::InvalidValue, said)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &str) -> Result<Invocation, clap::Error> {
        parse(std::iter::once("sitebeat").chain(arguments.split_whitespace()))
    }

    fn variables(value: &str) -> [(String, String); 1] {
        [(ENV_VARIABLE.to_owned(), value.to_owned())]
    }

    #[test]
    fn no_arguments_mean_run_in_dev() {
        let invocation = of("").unwrap();
        assert_eq!(invocation.command, Command::Run);
        assert_eq!(invocation.config, None);
        assert_eq!(invocation.log_format, LogFormat::Text);
        assert_eq!(invocation.environment(&[]).unwrap(), Environment::Dev);
        assert_eq!(of("run").unwrap(), invocation);
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        let expected = Invocation {
            command: Command::Check,
            config: Some("x".into()),
            env: Some(Environment::Prod),
            log_format: LogFormat::Json,
        };
        let options = "--config x --env prod --log-format json";
        assert_eq!(of(&format!("{options} check")).unwrap(), expected);
        assert_eq!(of(&format!("check {options}")).unwrap(), expected);
        assert_eq!(of("--env=prod").unwrap().command, Command::Run);
    }

    #[test]
    fn a_fleet_has_a_size_and_a_seed() {
        let fleet = |arguments: &str| match of(arguments).unwrap().command {
            Command::Simulate(fleet) => (fleet.devices, fleet.seed),
            other @ (Command::Run | Command::Check | Command::Export(_) | Command::Rollup(_)) => {
                panic!("{arguments}: {other:?}")
            }
        };
        assert_eq!(fleet("simulate"), (50, 1));
        assert_eq!(fleet("simulate --seed 7 --devices 100000"), (100_000, 7));
    }

    #[test]
    fn wrong_usage_ends_with_2_and_help_with_0() {
        for wrong in [
            "rnu",
            "run --config",
            "--env production",
            "--log-format xml",
            "simulate --devices 0",
            "simulate --devices 100001",
            "simulate --seed -1",
            "run --devices 5",
            "run extra",
            "export",
            "export weekly",
            "export daily --from 2026-3-1",
            "export raw --device a/b",
            "export events --format xml",
            "rollup --day yesterday",
        ] {
            assert_eq!(of(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        for fine in ["--help", "-h", "--version", "run --help", "simulate -h"] {
            assert_eq!(of(fine).unwrap_err().exit_code(), 0, "{fine}");
        }
    }

    #[test]
    fn the_environment_is_the_options_then_the_variables() {
        let env = |arguments, value| of(arguments).unwrap().environment(&variables(value));
        assert_eq!(env("", "stage").unwrap(), Environment::Stage);
        assert_eq!(env("--env prod", "stage").unwrap(), Environment::Prod);
        assert_eq!(env("", "").unwrap(), Environment::Dev);
        let wrong = env("", "production").unwrap_err();
        assert_eq!(wrong.exit_code(), 2);
        let said = wrong.to_string();
        assert!(
            said.contains("SITEBEAT_ENV = \"production\" must be dev, stage or prod"),
            "{said}"
        );
    }

    #[test]
    fn help_reads_well() {
        let pages = [
            "--help",
            "-h",
            "simulate --help",
            "export --help",
            "rollup --help",
        ]
        .map(|wish| of(wish).unwrap_err().to_string());
        insta::assert_snapshot!(pages.join("\n----\n"));
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}
