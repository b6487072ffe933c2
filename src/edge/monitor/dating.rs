//! What the monitor does when the wall clock is set.
//!
//! Floor 3. Each turn begins with a look at the clock. Slots, timeouts and round
//! trip times run on the monotonic clock and do not notice; what has a time and
//! came before the clock could be trusted gets its date here, in one moment for
//! readers of the board.

use super::super::report::{Entry, Times};
use super::super::telling;
use super::Monitor;
use crate::domain::event::{Change, Event, News};
use crate::domain::instant::Wall;
use crate::domain::trust::{Step, Turn};

impl Monitor {
    pub(super) fn look_at_clock(&mut self) {
        let clock = &self.links.clock;
        // The wall takes its step while nobody reads: no page takes a time of
        // before for the past.
        let seen = self.links.board.draw(|picture| {
            let turn = clock.look();
            let now = clock.wall();
            let shown = &mut picture.gateway.clock;
            shown.distrust = clock.distrust();
            let turn = turn?;
            shown.steps += 1;
            shown.last_step = Some((turn.step(), turn.source()));
            if !matches!(turn, Turn::Stepped(_)) {
                shown.since = Some(now);
            }
            if let Turn::Won { offset, .. } = turn {
                picture.date(offset);
            }
            picture.gateway.probe.turned_at = Some(now);
            Some((turn, now))
        });
        if let Some((turn, now)) = seen {
            self.take_turn(&turn, now);
        }
    }

    fn take_turn(&mut self, turn: &Turn, now: Wall) {
        match *turn {
            Turn::Won { offset, .. } => {
                self.seats.date(offset);
                self.flying.date(offset);
                self.held.push(Entry::Times(Times::Dates(offset)));
            }
            Turn::Lost(_) => self.held.push(Entry::Times(Times::Provisional)),
            Turn::Stepped(_) => {}
        }
        let Step { from, to } = turn.step();
        let change = Change::Notice(Event {
            device: None,
            produced_at: now,
            process_ms: 0,
            news: News::ClockStepped {
                from,
                to,
                source: turn.source(),
            },
        });
        telling::change(&change, None);
        self.held.push(Entry::Change(Box::new(change)));
    }
}
