//! How reports change the rows of the board.
//!
//! Floor 3.

use std::collections::BTreeMap;

use super::pending::Show;
use crate::board::{Picture, Row};
use crate::domain::device::DeviceId;
use crate::edge::report::Member;

/// Puts these rows in place of all; devices that stay keep theirs.
pub(super) fn seat(members: Vec<Member>, picture: &mut Picture) {
    let before = std::mem::take(&mut picture.devices).into_iter();
    let mut before: BTreeMap<DeviceId, Row> = before.map(|row| (row.device.id, row)).collect();
    let seated = members.into_iter().map(|member| {
        let known = before.remove(&member.device.id);
        member.row(known)
    });
    picture.devices = seated.collect();
}

/// Draws one line of the board.
pub(super) fn draw(show: &Show, picture: &mut Picture) {
    let Some(row) = picture.devices.get_near(show.place, &show.device) else {
        return;
    };
    row.track = show.track;
    if let Some(sample) = show.sample {
        row.remember(sample);
    }
}
