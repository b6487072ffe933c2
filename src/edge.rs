//! Floor 3: the flows of a gateway.
//!
//! [`monitor`] asks and judges, [`recorder`] keeps and tells, [`pulse`] speaks
//! for the node. They meet through one bounded channel of [`report::Report`]s,
//! from the first to the second: nothing that keeps, shows or sends can delay a
//! ping. `app` starts and stops them.

pub mod agenda;
pub mod lateness;
pub mod monitor;
pub mod pulse;
pub mod recorder;
pub mod report;
pub mod rollup;
pub mod seats;
mod telling;
pub mod uplink;
pub mod verdict;
