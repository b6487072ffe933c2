//! How an error is told.
//!
//! Floor 0: pure. Whoever ends an error's way says it with its causes, once.

use std::error::Error;

/// An error with its causes, in one line. A cause that its effect has quoted
/// already is not said twice.
#[must_use]
pub fn chain(fault: &dyn Error) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Told {
        text: &'static str,
        source: Option<Box<Told>>,
    }

    #[test]
    fn causes_follow_and_none_is_said_twice() {
        let root = Told {
            text: "disk full",
            source: None,
        };
        let quoted = Told {
            text: "cannot write: disk full",
            source: Some(Box::new(root)),
        };
        let top = Told {
            text: "cannot commit",
            source: Some(Box::new(quoted)),
        };
        assert_eq!(chain(&top), "cannot commit: cannot write: disk full");
    }
}
