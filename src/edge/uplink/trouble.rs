//! Troubles of the uplink that somebody must be told of once.
//!
//! Floor 3, pure.

use std::time::Duration;

use crate::broker::{self, Validity};
use crate::domain::event::{Event, Failure, FailureCode, News, Stage};
use crate::domain::instant::Wall;

/// So many short sessions in a row are no accident.
const SHORT_MAX: u32 = 3;
/// A session as short as this is one of them.
const SHORT: Duration = Duration::from_secs(30);
/// A session as long as this says that whoever it was has gone.
const CALM: Duration = Duration::from_mins(10);

/// An end of our certificate is told so long before, once each.
const BEFORE_END: [(Duration, &str); 3] = [
    (Duration::ZERO, "has ended"),
    (Duration::from_hours(3 * 24), "ends within 3 days"),
    (Duration::from_hours(14 * 24), "ends within 14 days"),
];

/// What is watched.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    short_sessions: u32,
    is_told: bool,
    /// What was told of our certificate: its end, and how near that was.
    told_end: Option<(Wall, &'static str)>,
    /// Files that could not be used when last tried.
    files: Vec<broker::Trouble>,
    waiting: Vec<(FailureCode, String)>,
}

impl Trouble {
    /// A session is over that lasted so long; `is_kicked`: it had carried something,
    /// and then the broker closed it.
    pub(super) fn note_end(&mut self, lasted: Duration, is_kicked: bool) {
        if is_kicked && lasted < SHORT {
            self.short_sessions = self.short_sessions.saturating_add(1);
        } else if lasted >= CALM || !self.has_rival() {
            self.short_sessions = 0;
            self.is_told = false;
        }
        if self.has_rival() && !self.is_told {
            self.is_told = true;
            self.waiting.push((
                FailureCode::ClientIdConflict,
                format!(
                    "the broker has closed {SHORT_MAX} connections in a row within 30 s: another \
                     gateway may have the same site.id and node.name, and so our client id"
                ),
            ));
        }
    }

    /// Whether somebody else seems to use our client id: each attempt to connect
    /// throws the other one out.
    pub(super) const fn has_rival(&self) -> bool {
        self.short_sessions >= SHORT_MAX
    }

    /// Our certificate, as of now; `None`: there is none.
    pub(super) fn note_validity(&mut self, validity: Option<Validity>, now: Wall) {
        let Some(Validity { not_after, .. }) = validity else {
            self.told_end = None;
            return;
        };
        let near = BEFORE_END
            .iter()
            .find(|(before, _)| now.plus(*before) >= not_after);
        let told = near.map(|&(_, word)| (not_after, word));
        if let Some((_, word)) = told
            && told != self.told_end
        {
            self.waiting.push((
                FailureCode::Certificate,
                format!(
                    "the certificate in uplink.client_cert_file {word}, at {not_after}: put a new \
                     one in its place, it is read at the next connection"
                ),
            ));
        }
        self.told_end = told;
    }

    /// The files that could not be used at the last attempt.
    pub(super) fn note_files(&mut self, files: Vec<broker::Trouble>) {
        for file in files.iter().filter(|file| !self.files.contains(file)) {
            self.waiting.push((
                FailureCode::Certificate,
                format!("{}: {}; what it held before is used", file.key, file.reason),
            ));
        }
        self.files = files;
    }

    /// The next event to be told.
    pub(super) fn take_event(&mut self, now: Wall) -> Option<Event> {
        let (code, message) = self.waiting.pop()?;
        Some(Event {
            device: None,
            produced_at: now,
            process_ms: 0,
            news: News::Failed(Failure {
                stage: Stage::Uplink,
                code,
                message,
                retryable: true,
                failed_at: now,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_short_sessions_in_a_row_are_told_once_until_there_is_calm() {
        let mut trouble = Trouble::default();
        let mut told = 0;
        let (short, long, calm) = (2, 45, 700);
        for lasted in [
            short, short, long, short, short, short, short, long, short, calm, short, short, short,
        ] {
            trouble.note_end(Duration::from_secs(lasted), true);
            told += u32::from(trouble.take_event(Wall::from_millis(0)).is_some());
        }
        assert_eq!(told, 2);
    }

    #[test]
    fn the_end_of_a_certificate_is_told_at_14_days_at_3_and_when_it_is_there() {
        let mut trouble = Trouble::default();
        let end = Wall::parse("2026-03-31T00:00:00Z").unwrap();
        let validity = |not_after| {
            Some(Validity {
                not_before: Wall::from_millis(0),
                not_after,
            })
        };
        let mut told = Vec::new();
        for hours in (0..31 * 24).rev() {
            let now = end.minus(Duration::from_hours(hours));
            trouble.note_validity(validity(end), now);
            told.extend(trouble.take_event(now).map(|_| hours));
        }
        assert_eq!(told, [14 * 24, 3 * 24, 0]);
        trouble.note_validity(validity(end.plus(Duration::from_hours(900 * 24))), end);
        assert_eq!(trouble.take_event(end), None);
        let file = broker::Trouble {
            key: "uplink.ca_file",
            reason: "cannot be read".into(),
        };
        let events = |trouble: &mut Trouble| std::iter::from_fn(|| trouble.take_event(end)).count();
        for _ in 0..3 {
            trouble.note_files(vec![file.clone()]);
        }
        assert_eq!(events(&mut trouble), 1);
        trouble.note_files(Vec::new());
        trouble.note_files(vec![file]);
        assert_eq!(events(&mut trouble), 1);
    }
}
