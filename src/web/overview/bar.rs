//! The small bar of a device's recent heartbeats.
//!
//! Floor 3. The style sheet draws the ground, one tick per heartbeat, and dashes
//! the one SVG path per kind of fault over it: a bar without a fault takes no path.

use std::collections::VecDeque;

use crate::board::RECENT_MAX;
use crate::domain::heartbeat::{Outcome, Sample};
use crate::domain::status::Status;
use crate::web::text::put;

/// Width of one tick and the gap after it, in pixels, as in the style sheet.
const STEP: usize = 3;

/// The kinds, with their class in the style sheet and their word. Replies are not
/// drawn here, and a stroke without a class is of misses: most are.
const KINDS: [(&str, &str); 4] = [
    ("", "replied"),
    ("d", "slow"),
    ("", "missed"),
    ("n", "without data"),
];

/// The heartbeats of one bar, as places in [`KINDS`], oldest first.
#[derive(Debug)]
pub(super) struct Bar {
    kinds: [u8; RECENT_MAX],
    length: usize,
}

/// All ticks of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stroke {
    /// Class in the style sheet; empty for misses.
    pub(super) class: &'static str,
    /// Path data.
    pub(super) path: String,
}

impl Bar {
    /// The bar of these heartbeats; small enough to copy under a lock.
    pub(super) fn of(recent: &VecDeque<Sample>) -> Self {
        let mut kinds = [0; RECENT_MAX];
        let length = recent.len().min(RECENT_MAX);
        let newest = recent.iter().skip(recent.len() - length);
        for (place, sample) in kinds.iter_mut().zip(newest) {
            *place = kind(sample);
        }
        Self { kinds, length }
    }

    /// Its width in pixels; `None` where it is full. The style sheet draws so much
    /// ground, as if every heartbeat had been answered in time.
    pub(super) fn width(&self) -> Option<usize> {
        (self.length < RECENT_MAX).then_some(self.length * STEP)
    }

    /// One stroke per kind that occurs beside replies, drawn over the ground; the
    /// newest tick is at the right end.
    pub(super) fn strokes(&self) -> Vec<Stroke> {
        let mut paths: [String; KINDS.len()] = Default::default();
        let mut at = 0;
        for run in self.held().chunk_by(|a, b| a == b) {
            let width = run.len() * STEP;
            let kind = run.first().copied().unwrap_or_default();
            if let Some(path) = paths.get_mut(usize::from(kind)).filter(|_| kind > 0) {
                put(path, format_args!("M{at} 6h{width}"));
            }
            at += width;
        }
        KINDS
            .iter()
            .zip(paths)
            .filter(|(_, path)| !path.is_empty())
            .map(|(&(class, _), path)| Stroke { class, path })
            .collect()
    }

    /// Whether the bar is full and every heartbeat in it was answered in time.
    pub(super) fn is_faultless(&self) -> bool {
        self.length == RECENT_MAX && self.kinds == [0; RECENT_MAX]
    }

    /// `28 replied, 2 missed`, for those who hover or listen.
    pub(super) fn title(&self) -> String {
        let mut title = String::new();
        for (kind, (_, word)) in (0_u8..).zip(KINDS) {
            let is_it = |n: u32, &held: &u8| n + u32::from(held == kind);
            let n = self.held().iter().fold(0, is_it);
            if n > 0 {
                let comma = if title.is_empty() { "" } else { ", " };
                put(&mut title, format_args!("{comma}{n} {word}"));
            }
        }
        if title.is_empty() {
            title.push_str("no heartbeats yet");
        }
        title
    }

    fn held(&self) -> &[u8] {
        self.kinds.get(..self.length).unwrap_or_default()
    }
}

fn kind(sample: &Sample) -> u8 {
    match sample.outcome {
        Outcome::Replied { .. } if sample.status == Status::Degraded => 1,
        Outcome::Replied { .. } => 0,
        Outcome::Missed(_) => 2,
        Outcome::NoData(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::{Miss, NoData, Occasion};
    use crate::domain::instant::Wall;

    /// `+` reply, `s` slow reply, `-` miss, `?` no data.
    fn bar(script: &str) -> Bar {
        let recent = script.chars().map(|c| {
            let (outcome, status) = match c {
                '+' => (Outcome::Replied { rtt_us: 1 }, Status::Online),
                's' => (Outcome::Replied { rtt_us: 1 }, Status::Degraded),
                '-' => (Outcome::Missed(Miss::Timeout), Status::Online),
                _ => (Outcome::NoData(NoData::SendFailed), Status::Online),
            };
            Sample {
                device: "a".parse().unwrap(),
                at: Wall::from_millis(0),
                outcome,
                occasion: Occasion::Scheduled,
                status,
            }
        });
        Bar::of(&recent.collect())
    }

    fn drawn(script: &str) -> String {
        let strokes = bar(script).strokes();
        let strokes: Vec<String> = strokes
            .iter()
            .map(|stroke| format!("{} {}", stroke.class, stroke.path))
            .collect();
        strokes.join(" | ")
    }

    #[test]
    fn equal_heartbeats_are_one_stroke_and_replies_none() {
        assert_eq!(drawn(&"+".repeat(30)), "");
        assert_eq!(drawn(&"-".repeat(40)), " M0 6h90");
        assert_eq!([bar("+++").width(), bar("").width()], [Some(9), Some(0)]);
        assert_eq!(bar(&"+".repeat(40)).width(), None);
    }

    #[test]
    fn the_newest_is_at_the_right_end() {
        assert_eq!(drawn("+-"), " M3 6h3");
        assert_eq!(drawn("?s++-s"), "d M3 6h3M15 6h3 |  M12 6h3 | n M0 6h3");
        assert_eq!(drawn(""), "");
    }

    #[test]
    fn the_title_counts_each_kind() {
        assert_eq!(
            bar("++-s?").title(),
            "2 replied, 1 slow, 1 missed, 1 without data"
        );
        assert_eq!(bar("").title(), "no heartbeats yet");
    }
}
