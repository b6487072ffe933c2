//! Rows of one day, packed: some devices in one value.
//!
//! Floor 1. Body: the day (signed varint, days since 1970), then per device its
//! id and, as varints, what [`Figures`] says in the order written below; a number
//! that may be missing is one more than it is, 0 for missing. `created_at` is
//! told from the day's end, `updated_at` from `created_at`. About 45 bytes a row.

use super::{BadRecord, Packer, Unpacker};
use crate::domain::daily::{Carry, Figures, Summary};
use crate::domain::day::{DAY_MILLIS, Day};
use crate::domain::instant::Wall;

/// The most bytes that one more row can add.
pub const ROW_BYTES_MAX: usize = 130;

const VERSION: u8 = 1;

/// Days since 1970-01-01.
#[must_use]
pub fn number_of(day: Day) -> i64 {
    day.start().millis().div_euclid(DAY_MILLIS)
}

/// The day with this number, if the calendar has it.
#[must_use]
pub fn day_of(number: i64) -> Option<Day> {
    Day::of(Wall::from_millis(number.checked_mul(DAY_MILLIS)?))
}

/// The record of these rows, all of `day`.
#[must_use]
pub fn pack(day: Day, rows: &[Summary]) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.signed(number_of(day));
    for row in rows {
        pack_row(&mut packer, day, row);
    }
    packer.seal()
}

fn pack_row(packer: &mut Packer, day: Day, row: &Summary) {
    let figures = &row.figures;
    packer.text(row.device.as_str());
    for count in [
        figures.expected,
        figures.replied,
        figures.missed,
        figures.late,
        figures.no_data,
        figures.online,
        figures.degraded,
        figures.offline,
    ] {
        packer.number(count.into());
    }
    for rtt_us in [figures.avg_rtt_us, figures.p95_rtt_us] {
        packer.number(rtt_us.map_or(0, |rtt_us| u64::from(rtt_us) + 1));
    }
    packer.number(figures.max_missed_count.into());
    packer.number(figures.longest_offline_ms);
    packer.number(figures.carry.missed_count.into());
    packer.byte(u8::from(figures.carry.is_offline));
    packer.number(row.calc_version.into());
    // Wrapping, so that even the two ends of the range are a difference.
    let created = row.created_at.millis();
    packer.signed(created.wrapping_sub(day.end().millis()));
    packer.signed(row.updated_at.millis().wrapping_sub(created));
}

/// Reads a record.
pub fn unpack(bytes: &[u8]) -> Result<Vec<Summary>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let day = day_of(unpacker.signed()?).ok_or(BadRecord("holds no day of the calendar"))?;
    let mut rows = Vec::new();
    while !unpacker.is_empty() {
        rows.push(unpack_row(&mut unpacker, day)?);
    }
    Ok(rows)
}

fn unpack_row(unpacker: &mut Unpacker<'_>, day: Day) -> Result<Summary, BadRecord> {
    let device = unpacker.device()?;
    let figures = Figures {
        expected: unpacker.small()?,
        replied: unpacker.small()?,
        missed: unpacker.small()?,
        late: unpacker.small()?,
        no_data: unpacker.small()?,
        online: unpacker.small()?,
        degraded: unpacker.small()?,
        offline: unpacker.small()?,
        avg_rtt_us: optional(unpacker)?,
        p95_rtt_us: optional(unpacker)?,
        max_missed_count: unpacker.small()?,
        longest_offline_ms: unpacker.number()?,
        carry: Carry {
            missed_count: unpacker.small()?,
            is_offline: unpacker.byte()? != 0,
        },
    };
    let calc_version = unpacker.small()?;
    let created = day.end().millis().wrapping_add(unpacker.signed()?);
    let updated = created.wrapping_add(unpacker.signed()?);
    Ok(Summary {
        day,
        device,
        figures,
        calc_version,
        created_at: Wall::from_millis(created),
        updated_at: Wall::from_millis(updated),
    })
}

fn optional(unpacker: &mut Unpacker<'_>) -> Result<Option<u32>, BadRecord> {
    let Some(number) = unpacker.number()?.checked_sub(1) else {
        return Ok(None);
    };
    let number = u32::try_from(number);
    number
        .map(Some)
        .map_err(|_| BadRecord("holds a number out of its range"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn row()(
            counts: [u32; 11],
            rtts: [Option<u32>; 2],
            longest_offline_ms: u64,
            is_offline: bool,
            device in "[a-z]{1,21}",
            times: [i64; 2],
        ) -> Summary {
            let [expected, replied, missed, late, no_data, online, degraded, offline, rest @ ..] =
                counts;
            Summary {
                day: "2026-03-12".parse().unwrap(),
                device: device.parse().unwrap(),
                figures: Figures {
                    expected, replied, missed, late, no_data, online, degraded, offline,
                    avg_rtt_us: rtts[0],
                    p95_rtt_us: rtts[1],
                    max_missed_count: rest[0],
                    longest_offline_ms,
                    carry: Carry { missed_count: rest[1], is_offline },
                },
                calc_version: rest[2],
                created_at: Wall::from_millis(times[0]),
                updated_at: Wall::from_millis(times[1]),
            }
        }
    }

    proptest! {
        #[test]
        fn rows_of_any_content_come_back(rows in prop::collection::vec(row(), 0..20)) {
            let bytes = pack("2026-03-12".parse().unwrap(), &rows);
            prop_assert!(bytes.len() <= 20 + rows.len() * ROW_BYTES_MAX);
            prop_assert_eq!(unpack(&bytes), Ok(rows));
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_no_record(rows in prop::collection::vec(row(), 1..3), at: usize) {
            let whole = pack("2026-03-12".parse().unwrap(), &rows);
            let mut flipped = whole.clone();
            flipped[at / 8 % whole.len()] ^= 1 << (at % 8);
            prop_assert!(unpack(&flipped).is_err());
            prop_assert!(unpack(&whole[..at % whole.len()]).is_err());
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let sealed = { let mut packer = Packer::new(VERSION); packer.0.extend(&bytes); packer.seal() };
            for bytes in [bytes, sealed] {
                drop(unpack(&bytes));
            }
        }
    }

    #[test]
    fn a_row_of_a_later_version_is_refused() {
        let packer = Packer::new(VERSION + 1);
        assert_eq!(
            unpack(&packer.seal()),
            Err(BadRecord("has a version this program does not read"))
        );
    }

    #[test]
    fn the_days_of_the_calendar_have_numbers_in_order() {
        let day: Day = "1969-12-31".parse().unwrap();
        assert_eq!((number_of(day), number_of(day.next())), (-1, 0));
        assert_eq!(day_of(-1), Some(day));
        assert_eq!(day_of(i64::MAX), None);
    }
}
