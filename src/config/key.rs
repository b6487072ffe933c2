//! What a key is: its name, the shape of its value, where the value goes.
//!
//! Floor 1. The keys themselves stand in `tables`; `check` takes the written
//! values through them.
//!
//! # Invariants
//!
//! - A shape hands its value on in the type of its setter, so a key cannot be
//!   parsed as one thing and stored as another.
//! - What a setter refuses it says as "must be ...", to follow `key = value`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::Value;

use super::fault::shown;
use super::settings::Secret;
use super::url;

/// What a refused value must be, to follow `key = value `.
pub(super) type Rule = String;

/// One key of the configuration, whose value goes into a `T`.
pub(super) struct Key<T: 'static> {
    /// Dotted (`site.id`), or without section where the table has one.
    pub(super) name: &'static str,
    /// What its value looks like.
    pub(super) shape: Shape<T>,
}

/// What a value looks like, and where it goes.
pub(super) enum Shape<T: 'static> {
    /// A whole number within a range.
    Number(RangeInclusive<u64>, fn(&mut T, u64)),
    /// Like `Number`, but 0 is allowed too and means off.
    NumberOrOff(RangeInclusive<u64>, fn(&mut T, u64)),
    /// `true` or `false`.
    Switch(fn(&mut T, bool)),
    /// Text; the setter checks it.
    Text(fn(&mut T, &str) -> Result<(), Rule>),
    /// Text that may be empty, which means unset; the setter checks the rest.
    Optional(fn(&mut T, &str) -> Result<(), Rule>),
    /// A list of texts; the setter checks them.
    Texts(fn(&mut T, &[&str]) -> Result<(), Rule>),
    /// One text or a list of them.
    TextOrTexts(fn(&mut T, &[&str]) -> Result<(), Rule>),
    /// A list of at most 20 whole numbers within a range.
    Numbers(RangeInclusive<u64>, fn(&mut T, Vec<u64>)),
    /// A secret, whose key with `_file` appended names a file that holds it.
    Secret(fn(&str) -> Result<(), Rule>, fn(&mut T, Secret)),
    /// The file of the secret key without `_file`; `check` reads it.
    SecretFile,
    /// A path; empty means unset.
    OptionalPath(fn(&mut T, PathBuf)),
}

/// Most numbers in a list of numbers.
const NUMBERS_MAX: usize = 20;

impl<T> Key<T> {
    /// Takes the written value into `target`, or says what it must be.
    pub(super) fn take(&self, value: &Value, target: &mut T) -> Result<(), Rule> {
        match &self.shape {
            Shape::Number(range, set) => {
                set(target, number(value, range).ok_or_else(|| must_be(range))?);
            }
            Shape::NumberOrOff(range, set) => {
                let rule = || format!("must be 0 (off) or {}", span(range));
                let taken = number(value, &(0..=*range.end())).ok_or_else(rule)?;
                if taken != 0 && !range.contains(&taken) {
                    return Err(rule());
                }
                set(target, taken);
            }
            Shape::Switch(set) => set(target, value.as_bool().ok_or("must be true or false")?),
            Shape::Text(take) => take(target, &text(value)?)?,
            Shape::Optional(take) => {
                let text = text(value)?;
                if !text.is_empty() {
                    take(target, &text)?;
                }
            }
            Shape::Texts(take) => take(target, &texts(value)?)?,
            Shape::TextOrTexts(take) => match value.as_str() {
                Some(one) => take(target, &[one])?,
                None => take(target, &texts(value)?)?,
            },
            Shape::Numbers(range, set) => set(target, numbers(value, range)?),
            Shape::Secret(rule, set) => {
                let secret = text(value)?;
                rule(&secret)?;
                set(target, Secret::new(secret));
            }
            Shape::SecretFile => {
                text(value)?;
            }
            Shape::OptionalPath(set) => {
                let text = text(value)?;
                if text.contains('\0') {
                    return Err("must be a path without NUL characters".into());
                }
                if !text.is_empty() {
                    set(target, text.into());
                }
            }
        }
        Ok(())
    }

    /// The value that the text of an environment variable stands for: a TOML
    /// value, or the text itself where the key takes text. So a site can be
    /// called `7`, and a password may look like a number.
    pub(super) fn value_of(&self, text: &str) -> Value {
        match text.trim().parse::<Value>() {
            Ok(value) if !self.takes_text() || value.is_str() => value,
            Ok(value) if value.is_array() && matches!(self.shape, Shape::TextOrTexts(_)) => value,
            _ => Value::String(text.to_owned()),
        }
    }

    fn takes_text(&self) -> bool {
        match self.shape {
            Shape::Number(..)
            | Shape::NumberOrOff(..)
            | Shape::Switch(_)
            | Shape::Texts(_)
            | Shape::Numbers(..) => false,
            Shape::Text(_)
            | Shape::Optional(_)
            | Shape::TextOrTexts(_)
            | Shape::Secret(..)
            | Shape::SecretFile
            | Shape::OptionalPath(_) => true,
        }
    }

    /// Whether an empty text stands for "not set".
    pub(super) fn is_unset_by(&self, value: &Value) -> bool {
        matches!(
            self.shape,
            Shape::Optional(_) | Shape::OptionalPath(_) | Shape::SecretFile
        ) && value.as_str() == Some("")
    }

    /// The value as faults may show it: no secret, no password in a URL.
    pub(super) fn show(&self, value: &Value) -> String {
        if matches!(self.shape, Shape::Secret(..)) {
            return "(secret)".into();
        }
        shown(&url::redacted(&value.to_string()))
    }
}

fn number(value: &Value, range: &RangeInclusive<u64>) -> Option<u64> {
    let taken = u64::try_from(value.as_integer()?).ok()?;
    range.contains(&taken).then_some(taken)
}

fn numbers(value: &Value, range: &RangeInclusive<u64>) -> Result<Vec<u64>, Rule> {
    let rule = || {
        format!(
            "must be a list of at most {NUMBERS_MAX} numbers, each {}",
            span(range)
        )
    };
    let list = value.as_array().ok_or_else(rule)?;
    if list.len() > NUMBERS_MAX {
        return Err(rule());
    }
    list.iter()
        .map(|value| number(value, range).ok_or_else(rule))
        .collect()
}

/// The text of a value. A time of day without quotes is one too.
fn text(value: &Value) -> Result<String, Rule> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Datetime(moment) => Ok(moment.to_string()),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Array(_)
        | Value::Table(_) => Err("must be text in quotes".into()),
    }
}

fn texts(value: &Value) -> Result<Vec<&str>, Rule> {
    let rule = || "must be a list of texts, [\"...\", \"...\"]".to_owned();
    value
        .as_array()
        .ok_or_else(rule)?
        .iter()
        .map(|value| value.as_str().ok_or_else(rule))
        .collect()
}

fn must_be(range: &RangeInclusive<u64>) -> Rule {
    format!("must be a whole number, {}", span(range))
}

fn span(range: &RangeInclusive<u64>) -> String {
    format!("{} to {}", range.start(), range.end())
}
