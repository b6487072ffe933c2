//! Rules between two keys, and how a broken one is told.
//!
//! Floor 1. Part of `config::check`.
//!
//! # Invariants
//!
//! - A fault names both keys with their values, and the place of the one that
//!   was written last: that is the line to look at first.

use std::collections::BTreeSet;
use std::time::Duration;

use super::source_of;
use crate::config::Faults;
use crate::config::layer::{Entry, Source, Written};
use crate::config::settings::{Node, ProbeRules, Rollup};

/// Checks pairs, for `[probe]` or one profile.
pub(super) struct Pairs<'a> {
    pub(super) written: &'a Written,
    /// Keys whose own value is a fault already.
    pub(super) bad: &'a BTreeSet<String>,
    /// The profile whose rules are checked.
    pub(super) profile: Option<&'a str>,
    pub(super) faults: &'a mut Faults,
}

/// One key of a pair.
struct Side<'a> {
    dotted: String,
    value: u128,
    source: &'a Source,
}

impl<'a> Pairs<'a> {
    pub(super) fn heartbeats_of_the_node(&mut self, node: &Node) {
        let ttl = self.side("node.heartbeat_ttl_ms", node.heartbeat_ttl.as_millis());
        let interval = self.side(
            "node.heartbeat_interval_ms",
            node.heartbeat_interval.as_millis(),
        );
        let is_fine = node.heartbeat_ttl >= node.heartbeat_interval.saturating_mul(2);
        self.hold(is_fine, &ttl, "must be at least 2 x", &interval);
    }

    pub(super) fn rollup(&mut self, rollup: &Rollup) {
        let end = rollup.at_utc.saturating_add(rollup.late_tolerance);
        if end < Duration::from_hours(24) {
            return;
        }
        let at = self.entry("rollup.at_utc");
        let late = self.entry("rollup.late_tolerance_ms");
        let source = source_of(at).max(source_of(late));
        self.faults.add(format!(
            "{source}: rollup.late_tolerance_ms = {} must end before midnight, counted from rollup.at_utc",
            rollup.late_tolerance.as_millis()
        ));
    }

    /// The rules of `[probe]`, or of a profile merged over it.
    pub(super) fn probe(&mut self, rules: &ProbeRules) {
        let (period, timeout) = (rules.heartbeat_period, rules.offline_timeout);
        let every = self.side("probe.heartbeat_period_ms", period.as_millis());
        let wait = self.side("probe.offline_timeout_ms", timeout.as_millis());
        self.hold(timeout < period, &wait, "must be below", &every);
        if rules.wake_echo && timeout < period {
            let is_fine = timeout.saturating_mul(2) < period;
            let rule = "must, with probe.wake_echo, be below half of";
            self.hold(is_fine, &wait, rule, &every);
        }
        let enter = self.side(
            "probe.degraded_rtt_ms",
            millis(rules.status.degraded_rtt_us),
        );
        let leave = self.side(
            "probe.degraded_leave_rtt_ms",
            millis(rules.status.degraded_leave_rtt_us),
        );
        let is_fine = rules.status.degraded_leave_rtt_us <= rules.status.degraded_rtt_us;
        self.hold(is_fine, &leave, "must be at most", &enter);
        if let Some(recheck) = rules.recheck {
            let again = self.side("probe.recheck_ms", recheck.as_millis());
            self.hold(recheck < period, &again, "must be 0 (off) or below", &every);
        }
    }

    /// A key that makes no sense without another one.
    pub(super) fn needs(&mut self, key: &str, other: &str) {
        let is_there = |key: &str| {
            let entry = self.entry(key);
            entry.is_some_and(|entry| entry.value.as_str() != Some(""))
        };
        if is_there(key) && !is_there(other) {
            let source = source_of(self.entry(key));
            self.faults.add(format!(
                "{source}: {key} is set, so {other} must be set too"
            ));
        }
    }

    fn side(&self, dotted: &str, value: u128) -> Side<'a> {
        let rule = dotted.strip_prefix("probe.");
        let own = self.profile.and_then(|profile| {
            let entry = self.written.profiles.get(profile)?.get(rule?)?;
            Some((format!("profile.{profile}.{}", rule?), entry))
        });
        let (dotted, entry) = match own {
            Some((dotted, entry)) => (dotted, Some(entry)),
            None => (dotted.to_owned(), self.entry(dotted)),
        };
        Side {
            dotted,
            value,
            source: source_of(entry),
        }
    }

    fn entry(&self, dotted: &str) -> Option<&'a Entry> {
        let rule = dotted.strip_prefix("probe.");
        rule.and_then(|name| self.written.probe.get(name))
            .or_else(|| self.written.process.get(dotted))
    }

    fn hold(&mut self, is_fine: bool, left: &Side<'_>, rule: &str, right: &Side<'_>) {
        let is_bad = |side: &Side<'_>| self.bad.contains(&side.dotted);
        if is_fine || is_bad(left) || is_bad(right) {
            return;
        }
        let place = left.source.max(right.source);
        let told = |side: &Side<'_>| {
            let Side {
                dotted,
                value,
                source,
            } = side;
            if *source == place {
                format!("{dotted} = {value}")
            } else {
                format!("{dotted} = {value} ({source})")
            }
        };
        self.faults
            .add(format!("{place}: {} {rule} {}", told(left), told(right)));
    }
}

fn millis(micros: u32) -> u128 {
    u128::from(micros / 1_000)
}
