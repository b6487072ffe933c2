//! Inventory rows from CSV, as spreadsheets and people write it.
//!
//! Floor 1. Read line by line and not as one stream: a quote that is never
//! closed costs its own row, where a reader of streams takes all that follows
//! for its cell.
//!
//! # Invariants
//!
//! - The first line that is neither blank nor a comment names the columns.
//! - Every later one is a row, admitted or refused.
//! - A byte that is not UTF-8 costs the text of a name or tag, elsewhere the row.

use super::InventoryError;
use super::row::{Column, Roll, Row};
use crate::config::fault::shown;

/// A quoted cell may hold line ends, but no more than this.
const LINES_PER_ROW_MAX: usize = 5;

/// Hands every row to `roll`.
pub(super) fn read(bytes: &[u8], roll: &mut Roll<'_>) -> Result<(), InventoryError> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        let file = roll.file();
        let why = format!("{file}: is UTF-16: save it as CSV in UTF-8");
        return Err(InventoryError::Malformed(why));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = Lines {
        rest: Some(bytes),
        end: if bytes.contains(&b'\n') { b'\n' } else { b'\r' },
        line: 0,
    };
    let mut columns: Option<Vec<Option<Column>>> = None;
    while let Some((line, cells)) = lines.next_row() {
        match (&columns, cells) {
            (None, cells) => columns = Some(header(line, &cells.unwrap_or_default(), roll)?),
            (Some(_), None) => roll.refuse(&Row::new(line), "a quote is never closed"),
            (Some(columns), Some(cells)) => row(line, &cells, columns, roll),
        }
    }
    Ok(())
}

/// What is left of a file, line by line. A copy is a bookmark.
#[derive(Clone, Copy)]
struct Lines<'a> {
    rest: Option<&'a [u8]>,
    end: u8,
    /// The line handed out last, from 1.
    line: usize,
}

type Cells = Vec<Vec<u8>>;

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        self.line += 1;
        let end = rest.iter().position(|&byte| byte == self.end);
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        self.rest = after.get(1..);
        Some(line)
    }

    /// The next row that is neither blank nor a comment: its line, from 1, and
    /// its cells, `None` where a quote is never closed.
    fn next_row(&mut self) -> Option<(usize, Option<Cells>)> {
        loop {
            let first = self.next_line()?;
            let is_nothing = first.iter().all(|byte| b" \t\r,;".contains(byte));
            if is_nothing || is_comment(first) {
                continue;
            }
            let line = self.line;
            return Some((line, self.cells(first)));
        }
    }

    /// The cells of the row that begins with `first`. Further lines are taken
    /// only if they close its quote, and are given back otherwise.
    fn cells(&mut self, first: &[u8]) -> Option<Cells> {
        if let Some(cells) = split(first) {
            return Some(cells);
        }
        let mut text = first.to_vec();
        let mut ahead = *self;
        for _ in 1..LINES_PER_ROW_MAX {
            text.push(b'\n');
            text.extend_from_slice(ahead.next_line()?);
            if let Some(cells) = split(&text) {
                *self = ahead;
                return Some(cells);
            }
        }
        None
    }
}

/// Whether the line is a comment. One whose first cell is `#` alone is a row
/// with a bad id, which must be named and not passed over.
fn is_comment(line: &[u8]) -> bool {
    let marked = line.trim_ascii_start().strip_prefix(b"#");
    marked.is_some_and(|text| !text.trim_ascii_start().starts_with(b","))
}

/// The cells of one row, trimmed. `None`: a quote is never closed, or is closed
/// in the middle of a cell that spans lines, which no spreadsheet writes.
fn split(row: &[u8]) -> Option<Cells> {
    let mut cells = Vec::new();
    let mut rest = row;
    loop {
        let (cell, after) = first_cell(rest)?;
        cells.push(cell.trim_ascii().to_vec());
        match after {
            Some(after) => rest = after,
            None => return Some(cells),
        }
    }
}

/// The first cell, and what follows its comma.
fn first_cell(text: &[u8]) -> Option<(Vec<u8>, Option<&[u8]>)> {
    let at_comma = |text: &'_ [u8]| text.iter().position(|&byte| byte == b',');
    let trimmed = text.trim_ascii_start();
    let Some(quoted) = trimmed.strip_prefix(b"\"") else {
        let end = at_comma(text).unwrap_or(text.len());
        let (cell, after) = text.split_at_checked(end)?;
        return Some((cell.to_vec(), after.strip_prefix(b",")));
    };
    let mut cell = Vec::new();
    let mut rest = quoted;
    loop {
        let end = rest.iter().position(|&byte| byte == b'"')?;
        let (inside, after) = rest.split_at_checked(end)?;
        cell.extend_from_slice(inside);
        rest = after.strip_prefix(b"\"")?;
        match rest.strip_prefix(b"\"") {
            // Two quotes stand for one.
            Some(more) => {
                cell.push(b'"');
                rest = more;
            }
            None => break,
        }
    }
    let end = at_comma(rest).unwrap_or(rest.len());
    let (tail, after) = rest.split_at_checked(end)?;
    if cell.contains(&b'\n') && !tail.trim_ascii().is_empty() {
        return None;
    }
    cell.extend_from_slice(tail);
    Some((cell, after.strip_prefix(b",")))
}

/// What each column of the file is; `None`: it is not read.
fn header(
    line: usize,
    cells: &[Vec<u8>],
    roll: &mut Roll<'_>,
) -> Result<Vec<Option<Column>>, InventoryError> {
    let names: Vec<String> = cells
        .iter()
        .map(|cell| String::from_utf8_lossy(cell).into())
        .collect();
    let columns: Vec<Option<Column>> = names.iter().map(|name| Column::parse(name)).collect();
    let refuse = |why: &str| {
        let file = roll.file();
        Err(InventoryError::Malformed(format!("{file}:{line}: {why}")))
    };
    for needed in [Column::Id, Column::Address] {
        if !columns.contains(&Some(needed)) {
            let found = shown(&names.join(","));
            return refuse(&format!(
                "the first row must name the columns, separated by commas, {} and {} among them; it is {found:?}",
                Column::Id.word(),
                Column::Address.word()
            ));
        }
    }
    for column in Column::ALL {
        if columns
            .iter()
            .filter(|&&found| found == Some(column))
            .count()
            > 1
        {
            return refuse(&format!("the column {} stands here twice", column.word()));
        }
    }
    for (name, column) in names.iter().zip(&columns) {
        if column.is_none() && !name.is_empty() {
            roll.warn_unknown(line, name);
        }
    }
    Ok(columns)
}

fn row(line: usize, cells: &[Vec<u8>], columns: &[Option<Column>], roll: &mut Roll<'_>) {
    let mut row = Row::new(line);
    let mut why = None;
    for (place, cell) in cells.iter().enumerate() {
        match (columns.get(place), std::str::from_utf8(cell)) {
            (Some(Some(column)), Ok(cell)) => row.set(*column, cell),
            (Some(Some(column)), Err(_)) => {
                row.set(*column, &String::from_utf8_lossy(cell));
                let what = format!("{} is not UTF-8", column.word());
                if matches!(column, Column::Name | Column::Tags) {
                    roll.warn(
                        line,
                        &format!(
                            "{what}: what cannot be read shows as \u{fffd}; save the file as UTF-8"
                        ),
                    );
                } else {
                    why = Some(format!("{what}: save the file as UTF-8"));
                }
            }
            (Some(None), _) => {}
            (None, _) if cell.is_empty() => {}
            (None, _) => {
                why = Some(format!(
                    "it has {} cells for {} columns: put a cell with a comma in quotes",
                    cells.len(),
                    columns.len()
                ));
            }
        }
    }
    match why {
        Some(why) => roll.refuse(&row, &why),
        None => roll.admit(&row),
    }
}
