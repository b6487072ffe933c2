//! What is wrong with a configuration, all of it at once.
//!
//! Floor 1. Every step of `config::load` adds to one [`Faults`]; `app` prints it
//! and exits with 2, or keeps the old configuration at a reload.
//!
//! # Invariants
//!
//! - One fault is one line, whatever the value in it: characters that show
//!   nothing or turn the text are replaced and long values cut.

use std::fmt;

use super::rule::is_invisible;

/// Longest value shown in a fault, in characters.
const VALUE_CHARS_MAX: usize = 80;

/// Most faults listed: a file that is something else altogether has one a line.
const LISTED_MAX: usize = 500;

/// All faults of one configuration, one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    list: Vec<String>,
    more: usize,
}

impl Faults {
    /// Adds one, unless the same sentence is there already.
    pub(super) fn add(&mut self, fault: String) {
        self.add_with(|| fault);
    }

    /// Adds one that costs something to say.
    pub(super) fn add_with(&mut self, fault: impl FnOnce() -> String) {
        if self.list.len() >= LISTED_MAX {
            self.more += 1;
            return;
        }
        let fault = fault();
        if !self.list.contains(&fault) {
            self.list.push(fault);
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Each listed fault as one line, without its newline.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(String::as_str)
    }
}

impl fmt::Display for Faults {
    /// One line per fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list.join("\n"))?;
        if self.more > 0 {
            write!(f, "\nand {} more faults", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// A text as faults show it: on one line, cut when long.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(VALUE_CHARS_MAX)
        .map(|c| {
            if c.is_control() || is_invisible(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect();
    if text.chars().nth(VALUE_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

/// The candidate nearest to `word`.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (likeness(&word, candidate), candidate))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// How alike two dotted keys are, 0 to 1; the last part decides where the
/// sections differ.
fn likeness(word: &str, candidate: &str) -> f64 {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    // Comparing is quadratic; no key is anywhere near this long.
    if word.len() > 200 {
        return 0.0;
    }
    let whole = strsim::normalized_damerau_levenshtein(word, candidate);
    let parts = strsim::normalized_damerau_levenshtein(&last(word), &last(candidate));
    whole.max(0.9 * parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_by_typo_and_by_wrong_section() {
        let keys = [
            "probe.degraded_rtt_ms",
            "probe.recheck_ms",
            "site.id",
            "site.name",
        ];
        let of = |word| nearest(word, keys).unwrap();
        assert_eq!(of("probe.degarded_rtt_ms"), "probe.degraded_rtt_ms");
        assert_eq!(of("recheck_ms"), "probe.recheck_ms");
        assert_eq!(of("node.recheck_ms"), "probe.recheck_ms");
        assert_eq!(of("SITE.ID"), "site.id");
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_shown_value_is_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}"), "a\u{fffd}b\u{fffd}");
        // Turned text shows another value than the one that is there.
        assert_eq!(shown("a\u{202e}b"), "a\u{fffd}b");
        assert_eq!(shown(&"x".repeat(81)), format!("{}...", "x".repeat(80)));
    }

    #[test]
    fn the_same_fault_is_told_once() {
        let mut faults = Faults::default();
        faults.add("a".into());
        faults.add("a".into());
        faults.add("b".into());
        assert_eq!(faults.to_string(), "a\nb");
        for n in 0..LISTED_MAX {
            faults.add(n.to_string());
        }
        assert_eq!(faults.iter().count(), LISTED_MAX);
        assert!(faults.to_string().ends_with("\nand 2 more faults"));
    }
}
