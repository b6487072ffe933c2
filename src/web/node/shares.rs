//! How something is made up, as one bar with its parts in words below.
//!
//! Floor 3. The page of the node draws what waits for the uplink and where the
//! site's bytes go. The drawing is stretched, so it holds no text.
//!
//! # Invariants
//!
//! - A part that is there is seen, however small it is.
//! - The parts fill the bar from left to right in the order of the words.

use crate::web::text::put;

/// Width of a bar in its own units, and the least width of a part.
const WIDTH: u64 = 1_000;
const PART_MIN: u64 = 8;

/// A bar, ready to print.
#[derive(Debug)]
pub(super) struct Shares {
    /// What it shows, for those who listen.
    pub(super) words: String,
    /// From the left.
    pub(super) parts: Vec<Part>,
}

/// A part of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Class in the style sheet.
    pub(super) class: &'static str,
    /// Path data.
    pub(super) path: String,
    /// Its name and how much it is.
    pub(super) words: String,
}

impl Shares {
    /// The bar of these parts: class, weight, words. `None`: there is nothing.
    pub(super) fn of(
        title: &str,
        parts: impl IntoIterator<Item = (&'static str, u64, String)>,
    ) -> Option<Self> {
        let parts: Vec<_> = parts.into_iter().filter(|part| part.1 > 0).collect();
        let whole: u128 = parts.iter().map(|part| u128::from(part.1)).sum();
        let least = PART_MIN * u64::try_from(parts.len()).ok()?;
        let room = u128::from(WIDTH.saturating_sub(least));
        let mut said = Vec::with_capacity(parts.len());
        let (mut drawn, mut x) = (Vec::with_capacity(parts.len()), 0);
        for (class, weight, words) in parts {
            // Each has its least width, what is left is shared.
            let more = (u128::from(weight) * room).checked_div(whole)?;
            let width = PART_MIN + u64::try_from(more).unwrap_or(0);
            let mut path = String::new();
            put(&mut path, format_args!("M{x} 0h{width}v10h-{width}z"));
            x += width;
            said.push(words.clone());
            drawn.push(Part { class, path, words });
        }
        (!drawn.is_empty()).then(|| Self {
            words: format!("{title}: {}", said.join(", ")),
            parts: drawn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(weights: &[u64]) -> Vec<u64> {
        let parts = weights.iter().map(|&weight| ("a", weight, "w".to_owned()));
        let Some(shares) = Shares::of("t", parts) else {
            return Vec::new();
        };
        let width = |part: &Part| {
            let (_, rest) = part.path.split_once('h').unwrap();
            rest.split_once('v').unwrap().0.parse::<u64>().unwrap()
        };
        shares.parts.iter().map(width).collect()
    }

    #[test]
    fn what_is_there_is_seen_and_nothing_leaves_the_bar() {
        assert_eq!(widths(&[1, 1]), [500, 500]);
        assert_eq!(widths(&[3, 0, 1]), [746, 254]);
        assert_eq!(widths(&[1, 1_000_000_000]), [8, 991]);
        assert!(widths(&[]).is_empty() && widths(&[0, 0]).is_empty());
        let most = widths(&[u64::MAX, u64::MAX, 1]);
        assert!(most.iter().sum::<u64>() <= WIDTH, "{most:?}");
    }

    #[test]
    fn the_words_name_each_part_in_order() {
        let parts = [("a", 1, "one".into()), ("b", 2, "two".into())];
        let shares = Shares::of("All", parts).unwrap();
        assert_eq!(shares.words, "All: one, two");
        assert_eq!(shares.parts[1].path, "M336 0h664v10h-664z");
    }
}
