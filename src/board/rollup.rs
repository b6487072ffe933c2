//! How the daily summaries stand.
//!
//! Floor 2. `edge` draws it, the history page shows it.

use crate::domain::day::Day;

/// The summaries of finished days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// The run under way; `None` while there is none.
    pub running: Option<Progress>,
    /// The newest day whose summary is final.
    pub last_final: Option<Day>,
    /// What failed last, why, and when it is tried again, in one sentence for
    /// people; `None` where the last run did what it should.
    pub failing: Option<String>,
    /// Finished days that still wait for their summary, ascending.
    pub waiting_days: Vec<Day>,
}

/// How far a run over one or more days is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The day being summarised now.
    pub day: Day,
    /// Days of this run that are done.
    pub done: usize,
    /// Days of this run.
    pub of: usize,
}
