//! The kinds of events, as one filters by them.
//!
//! Floor 3. Page and API of the events take `kind=`. What kind an event is stands
//! in the first words of its envelope, so nothing is parsed to find out.

use super::fault::Fault;
use super::query::{Pairs, not_allowed};

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A device has another status.
    Status,
    /// Something did not work.
    Failed,
    /// A day of a device or of the site was summed up.
    Daily,
    /// The clock was set.
    Clock,
    /// A device left the inventory.
    Removed,
}

impl Kind {
    /// All of them, in the order in which they are offered.
    pub(super) const ALL: [Self; 5] = [
        Self::Status,
        Self::Failed,
        Self::Daily,
        Self::Clock,
        Self::Removed,
    ];

    /// The kind that `kind=` names; `None`: all.
    pub(super) fn read(pairs: &Pairs) -> Result<Option<Self>, Fault> {
        let Some(word) = pairs.get("kind") else {
            return Ok(None);
        };
        let found = Self::ALL.into_iter().find(|kind| kind.word() == word);
        let allowed = "status, failed, daily, clock and removed";
        found
            .map(Some)
            .ok_or_else(|| not_allowed("kind", word, allowed))
    }

    /// As it stands in a query.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Failed => "failed",
            Self::Daily => "daily",
            Self::Clock => "clock",
            Self::Removed => "removed",
        }
    }

    /// As people choose it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Status => "changes of status",
            Self::Failed => "failures",
            Self::Daily => "summaries of days",
            Self::Clock => "steps of the clock",
            Self::Removed => "removed devices",
        }
    }

    /// Whether this envelope tells of such an event.
    pub(super) fn is_of(self, json: &str) -> bool {
        let Some(name) = json.strip_prefix("{\"event\":\"heartbeat.") else {
            return false;
        };
        let beginnings: &[&str] = match self {
            Self::Status => &["status."],
            Self::Failed => &["failed."],
            Self::Daily => &["daily.", "site."],
            Self::Clock => &["clock."],
            Self::Removed => &["device.removed."],
        };
        beginnings.iter().any(|start| name.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::daily::SiteSummary;
    use crate::domain::event::{Event, Failure, FailureCode, News, Stage};
    use crate::domain::instant::Wall;
    use crate::domain::status::Status;
    use crate::wire::message::{Place, envelope};

    fn kinds_of(news: News) -> Vec<Kind> {
        let event = Event {
            device: None,
            produced_at: Wall::default(),
            process_ms: 0,
            news,
        };
        let place = Place {
            site: "{\"event\":\"heartbeat.failed.v1",
            node: "n",
            log_id: "l",
            seq: 1,
            prev_seq: None,
        };
        let json = envelope(&event, &place);
        let of = |kind: &Kind| kind.is_of(&json);
        Kind::ALL.into_iter().filter(of).collect()
    }

    #[test]
    fn every_event_is_of_one_kind() {
        let now = Wall::default();
        let day = "2026-03-11".parse().unwrap();
        let turn = News::StatusChanged {
            previous: Status::Online,
            current: Status::Offline,
            missed_count: 3,
            last_seen: None,
        };
        let failure = Failure {
            stage: Stage::Uplink,
            code: FailureCode::Certificate,
            message: String::new(),
            retryable: true,
            failed_at: now,
        };
        let step = News::ClockStepped {
            from: now,
            to: now,
            source: "step",
        };
        let site = SiteSummary::of(day, &[]);
        for (news, kind) in [
            (turn, Kind::Status),
            (News::Failed(failure), Kind::Failed),
            (News::SiteSummarised(Box::new(site)), Kind::Daily),
            (step, Kind::Clock),
            (News::DeviceRemoved { reason: "removed" }, Kind::Removed),
        ] {
            assert_eq!(kinds_of(news), [kind]);
        }
        let daily = r#"{"event":"heartbeat.daily.summarised.v1","#;
        assert!(Kind::Daily.is_of(daily) && !Kind::Status.is_of(daily));
        for other in ["", "{}", r#"{"event":"heartbeat.statusx"#] {
            assert!(!Kind::ALL.into_iter().any(|kind| kind.is_of(other)));
        }
    }
}
