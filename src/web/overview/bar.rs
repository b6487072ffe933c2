//! The small bar of a device's recent heartbeats.
//!
//! Floor 3. One SVG path per kind; the style sheet dashes it into one tick per
//! heartbeat, so thirty equal ones take as few bytes as one.

use std::collections::VecDeque;

use crate::board::RECENT_MAX;
use crate::domain::heartbeat::{Outcome, Sample};
use crate::domain::status::Status;
use crate::web::text::put;

/// Width of one tick and the gap after it, in pixels, as in the style sheet.
const STEP: usize = 3;

/// The kinds, with their class in the style sheet and their word.
const KINDS: [(&str, &str); 4] = [
    ("", "replied"),
    ("d", "slow"),
    ("x", "missed"),
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
    /// Class in the style sheet.
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

    /// One stroke per kind that occurs; the newest tick is at the right end. The
    /// first is their ground, from end to end; the others are drawn over it.
    pub(super) fn strokes(&self) -> Vec<Stroke> {
        if self.length == 0 {
            return Vec::new();
        }
        let mut paths: [String; KINDS.len()] = Default::default();
        let mut at = (RECENT_MAX - self.length) * STEP;
        let mut all = String::new();
        put(&mut all, format_args!("M{at} 6h{}", self.length * STEP));
        for run in self.held().chunk_by(|a, b| a == b) {
            let width = run.len() * STEP;
            let kind = run.first().copied().unwrap_or_default();
            if let Some(path) = paths.get_mut(usize::from(kind)) {
                put(path, format_args!("M{at} 6h{width}"));
            }
            at += width;
        }
        // Ground that another kind covers from end to end is not drawn.
        let is_covered = paths.iter().skip(1).any(|path| *path == all);
        if let Some(first) = paths.first_mut() {
            *first = if is_covered { String::new() } else { all };
        }
        KINDS
            .iter()
            .zip(paths)
            .filter(|(_, path)| !path.is_empty())
            .map(|(&(class, _), path)| Stroke { class, path })
            .collect()
    }

    /// Whether it runs from end to end, so that the style sheet can draw its ground.
    pub(super) fn is_full(&self) -> bool {
        self.length == RECENT_MAX
    }

    /// Whether the bar is full and every heartbeat in it was answered in time.
    pub(super) fn is_faultless(&self) -> bool {
        self.is_full() && self.kinds == [0; RECENT_MAX]
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
    fn equal_heartbeats_are_one_stroke() {
        assert_eq!(drawn(&"+".repeat(30)), " M0 6h90");
        assert_eq!(drawn(&"+".repeat(40)), " M0 6h90");
    }

    #[test]
    fn the_newest_is_at_the_right_end() {
        assert_eq!(drawn("+-"), " M84 6h6 | x M87 6h3");
        assert_eq!(
            drawn("?s++-s"),
            " M72 6h18 | d M75 6h3M87 6h3 | x M84 6h3 | n M72 6h3"
        );
        assert_eq!(drawn("--"), "x M84 6h6");
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
