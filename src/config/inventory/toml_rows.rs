//! Inventory rows from TOML: one `[[device]]` per row, columns as keys.
//!
//! Floor 1.
//!
//! # Invariants
//!
//! - A file that is no TOML is refused as a whole; a value of the wrong type
//!   costs its row alone.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::InventoryError;
use super::row::{Column, Roll, Row};
use crate::config::file;

/// The written form.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    device: Vec<Spanned<Value>>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Hands every row to `roll`.
pub(super) fn read(bytes: &[u8], roll: &mut Roll<'_>) -> Result<(), InventoryError> {
    let name = roll.file();
    let malformed = |why: String| InventoryError::Malformed(format!("{name}{why}"));
    let text = file::text(bytes).map_err(|why| malformed(format!(": {why}")))?;
    let file: File = toml::from_str(text).map_err(|error| malformed(file::syntax(text, &error)))?;
    for other in file.others.keys() {
        roll.warn(
            1,
            &format!("{other:?} is not read; devices stand in [[device]]"),
        );
    }
    let mut counter = file::LineCounter::new(text);
    let mut unknown = BTreeSet::new();
    for device in file.device {
        let line = counter.line_of(device.span().start);
        let mut row = Row::new(line);
        let Value::Table(fields) = device.into_inner() else {
            roll.refuse(&row, "it is no table");
            continue;
        };
        let mut why = None;
        for (field, value) in &fields {
            match (Column::parse(field), value) {
                (Some(column), value) => match cell(column, value) {
                    Ok(cell) => row.set(column, &cell),
                    Err(rule) => why = Some(format!("{field} {rule}")),
                },
                (None, _) => {
                    if unknown.insert(field.clone()) {
                        roll.warn_unknown(line, field);
                    }
                }
            }
        }
        match why {
            Some(why) => roll.refuse(&row, &why),
            None => roll.admit(&row),
        }
    }
    Ok(())
}

/// The value as the cell of a CSV row would hold it.
fn cell(column: Column, value: &Value) -> Result<String, &'static str> {
    match (column, value) {
        (_, Value::String(text)) => Ok(text.clone()),
        (Column::Enabled, Value::Boolean(is_on)) => Ok(is_on.to_string()),
        (Column::Enabled, Value::Integer(number)) => Ok(number.to_string()),
        (Column::Tags, Value::Array(tags)) => {
            let tags: Option<Vec<&str>> = tags.iter().map(Value::as_str).collect();
            tags.map(|tags| tags.join(";"))
                .ok_or("must be a list of texts")
        }
        (Column::Tags, _) => Err("must be text or a list of texts"),
        (Column::Enabled, _) => Err("must be true or false"),
        _ => Err("must be text in quotes"),
    }
}
