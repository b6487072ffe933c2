//! Waiting lines: what falls due, in order, without a timer or a heap.
//!
//! Floor 2, pure. Probes wait for one of a few distinct lengths of time (the
//! timeouts of the profiles), so one first-in-first-out line per length keeps
//! everything sorted at no cost. `flight` keeps two: deadlines and memory.
//!
//! # Invariants
//!
//! - Within a line nothing falls due before what stands in front of it.
//! - Nothing is taken out of the middle: whoever asks checks by serial whether
//!   an item still means anything.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::instant::Mono;

/// Above this many lines the empty ones are let go.
const LINES_KEPT: usize = 16;

/// A slot that falls due; stale if the slot has another serial by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) due: Mono,
    pub(super) slot: u32,
    pub(super) serial: u32,
}

/// One line per distinct length of waiting.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    length: Duration,
    items: VecDeque<Item>,
}

impl Lines {
    /// Lets `item` wait; `item.due` is `length` after now.
    pub(super) fn push(&mut self, length: Duration, item: Item) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.length == length) {
            line.items.push_back(item);
            return;
        }
        if self.lines.len() >= LINES_KEPT {
            self.lines.retain(|line| !line.items.is_empty());
        }
        let items = VecDeque::from([item]);
        self.lines.push(Line { length, items });
    }

    /// Takes out one item due at `now` or before; of any line, so the order
    /// between lines is not that of their dues.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Item> {
        self.lines
            .iter_mut()
            .find_map(|line| line.items.pop_front_if(|item| item.due <= now))
    }

    /// Drops what is stale at the head of each line.
    pub(super) fn trim(&mut self, is_stale: impl Fn(&Item) -> bool) {
        for line in &mut self.lines {
            while line.items.front().is_some_and(&is_stale) {
                line.items.pop_front();
            }
        }
    }

    /// The earliest due of all that is not stale.
    pub(super) fn next_due(&self, is_stale: impl Fn(&Item) -> bool) -> Option<Mono> {
        let heads = self.lines.iter().filter_map(|line| {
            let head = line.items.iter().find(|item| !is_stale(item))?;
            Some(head.due)
        });
        heads.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(due: u64, slot: u32) -> Item {
        Item {
            due: Mono::from_nanos(due),
            slot,
            serial: 0,
        }
    }

    fn two_lines() -> Lines {
        let mut lines = Lines::default();
        for (length, due, slot) in [(5, 5, 0), (2, 3, 1), (5, 6, 2)] {
            lines.push(Duration::from_nanos(length), item(due, slot));
        }
        lines
    }

    #[test]
    fn all_that_is_due_comes_out_and_no_more() {
        let mut lines = two_lines();
        let mut due = Vec::new();
        while let Some(item) = lines.pop_due(Mono::from_nanos(5)) {
            due.push(item.slot);
        }
        due.sort_unstable();
        assert_eq!(due, [0, 1]);
        assert_eq!(lines.next_due(|_| false), Some(Mono::from_nanos(6)));
    }

    #[test]
    fn next_due_is_the_earliest_of_all_lines_that_still_means_something() {
        let mut lines = two_lines();
        assert_eq!(lines.next_due(|_| false), Some(Mono::from_nanos(3)));
        let is_stale = |item: &Item| item.slot != 2;
        assert_eq!(lines.next_due(is_stale), Some(Mono::from_nanos(6)));
        lines.trim(is_stale);
        assert_eq!(lines.next_due(|_| false), Some(Mono::from_nanos(6)));
    }

    #[test]
    fn a_thousand_distinct_lengths_leave_no_empty_lines_behind() {
        let mut lines = Lines::default();
        for length in 0..1000 {
            lines.push(Duration::from_nanos(length), item(length, 0));
            while lines.pop_due(Mono::from_nanos(length)).is_some() {}
        }
        assert!(lines.lines.len() <= LINES_KEPT);
    }
}
