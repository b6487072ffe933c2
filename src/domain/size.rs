//! Sizes as people read them.
//!
//! Floor 0: pure. Sentences and pages print [`Bytes`]; JSON, metrics and logs'
//! fields keep whole numbers.

use std::fmt;

/// A number of bytes, printed in decimal units and cut to a tenth: `64.6 MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
        let mut whole = self.0;
        if whole < 1_000 {
            return write!(f, "{whole} B");
        }
        let mut tenths = 0;
        let mut unit = "B";
        for next in UNITS {
            if whole < 1_000 {
                break;
            }
            tenths = whole % 1_000 / 100;
            whole /= 1_000;
            unit = next;
        }
        write!(f, "{whole}.{tenths} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_units() {
        let printed = |n| Bytes(n).to_string();
        assert_eq!(printed(0), "0 B");
        assert_eq!(printed(999), "999 B");
        assert_eq!(printed(1_000), "1.0 kB");
        assert_eq!(printed(1_999_999), "1.9 MB");
        assert_eq!(printed(64 << 20), "67.1 MB");
        assert_eq!(printed(u64::MAX), "18446.7 PB");
    }
}
