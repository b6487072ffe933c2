//! The outcome of one scheduled probe of one device.
//!
//! Floor 0: pure. `ping` makes outcomes, `status` judges them, `store` keeps
//! them as [`Sample`]s.

use std::fmt;
use std::time::Duration;

use super::device::DeviceId;
use super::instant::Wall;
use super::status::Status;

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A valid reply came in time.
    Replied {
        /// Round trip time in microseconds, at most that of the timeout.
        rtt_us: u32,
    },
    /// The device was asked and did not answer.
    Missed(Miss),
    /// The gateway could not ask; says nothing about the device.
    NoData(NoData),
}

/// Why a probe counts as missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// No valid reply within the timeout.
    Timeout,
    /// ICMP destination unreachable that quotes our probe (RFC 792, RFC 4443).
    Unreachable,
    /// ICMP time exceeded that quotes our probe.
    TtlExceeded,
    /// Another ICMP error that quotes our probe (source quench, parameter
    /// problem, packet too big).
    OtherError,
}

/// Why the gateway could not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoData {
    /// The local send failed (`ENOBUFS`, `EPERM`, `ENETUNREACH`, ...).
    SendFailed,
    /// The site's own uplink is silent.
    PathDown,
    /// The device is in a maintenance window.
    Maintenance,
    /// The wall clock is not yet trusted.
    ClockUntrusted,
}

/// Why a probe was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// Its slot in the period: the only kind that counts in ratios.
    Scheduled,
    /// The quick second question after a miss.
    Recheck,
    /// The extra probe of a device without a verdict.
    FirstLook,
    /// Asked for by a person.
    OnDemand,
}

/// One heartbeat of one device, as it is kept and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Whose.
    pub device: DeviceId,
    /// When its send was scheduled; decides the day it belongs to.
    pub at: Wall,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it was sent.
    pub occasion: Occasion,
    /// The device's status after it.
    pub status: Status,
}

impl Outcome {
    /// `replied`, `missed` or `no_data`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Replied { .. } => "replied",
            Self::Missed(_) => "missed",
            Self::NoData(_) => "no_data",
        }
    }

    /// Why it was not a reply; `None` for a reply.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Replied { .. } => None,
            Self::Missed(miss) => Some(miss.word()),
            Self::NoData(no_data) => Some(no_data.word()),
        }
    }

    /// The round trip time in microseconds; `None` unless a reply came.
    #[must_use]
    pub const fn rtt_us(self) -> Option<u32> {
        match self {
            Self::Replied { rtt_us } => Some(rtt_us),
            Self::Missed(_) | Self::NoData(_) => None,
        }
    }

    /// A reply with this round trip time; times past 71 minutes are held there.
    #[must_use]
    pub fn replied(rtt: Duration) -> Self {
        Self::Replied {
            rtt_us: u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX),
        }
    }
}

impl Miss {
    /// The reason as it stands in JSON and on pages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::TtlExceeded => "ttl_exceeded",
            Self::OtherError => "icmp_error",
        }
    }
}

impl NoData {
    /// The reason as it stands in JSON and on pages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SendFailed => "send_failed",
            Self::PathDown => "path_down",
            Self::Maintenance => "maintenance",
            Self::ClockUntrusted => "clock_untrusted",
        }
    }
}

/// A round trip time as people read it: milliseconds with at most three
/// decimals and no trailing zeros (`820`, `3.27`, `0.042`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttMillis(pub u32);

impl fmt::Display for RttMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, micros) = (self.0 / 1_000, self.0 % 1_000);
        if micros == 0 {
            return write!(f, "{millis}");
        }
        let decimals = format!("{micros:03}");
        write!(f, "{millis}.{}", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtt_prints_at_most_three_decimals_and_no_trailing_zeros() {
        let printed = |rtt_us| RttMillis(rtt_us).to_string();
        assert_eq!(printed(820_000), "820");
        assert_eq!(printed(3_270), "3.27");
        assert_eq!(printed(42), "0.042");
        assert_eq!(printed(0), "0");
        assert_eq!(printed(1_500_100), "1500.1");
        assert_eq!(printed(u32::MAX), "4294967.295");
    }
}
