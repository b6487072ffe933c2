//! Random actions against a plain model: a list of probes, searched from end
//! to end, that says what the table must say.

use proptest::prelude::*;

use super::*;

/// What happens next. A number picks one of the probes launched so far.
#[derive(Clone, Copy, Debug)]
enum Action {
    Launch(Wish),
    Wait(u64),
    Reply(usize, Answer),
    Error(usize, u64),
    Abandon(usize),
    Sweep,
    NewIdentifier,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    timeout_ms: u64,
    late_ms: u64,
    target: IpAddr,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    /// `None`: the address asked.
    from: Option<IpAddr>,
    nonce: Nonce,
    is_intact: bool,
    /// How long ago the kernel stamped it.
    age_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nonce {
    Right,
    Wrong,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    Missed,
    Answered,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    ticket: Ticket,
    key: u64,
    target: IpAddr,
    sent_at: u64,
    deadline: u64,
    forget_at: u64,
    fate: Fate,
}

/// The model: times in milliseconds.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    probes: Vec<Known>,
    tally: Tally,
    done: Vec<(u64, u64, Outcome)>,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let wish = (
        prop_oneof![Just(50), Just(200), 1..500_u64],
        0..300_u64,
        0..3_u8,
    );
    let wish = wish.prop_map(|(timeout_ms, late_ms, target)| Wish {
        timeout_ms,
        late_ms,
        target: address(target),
    });
    let nonce =
        prop_oneof![8 => Just(Nonce::Right), 1 => Just(Nonce::Wrong), 1 => Just(Nonce::None)];
    let from = prop::option::weighted(0.2, (0..3_u8).prop_map(address));
    let answer = (from, nonce, prop::bool::weighted(0.9), 0..80_u64);
    let answer = answer.prop_map(|(from, nonce, is_intact, age_ms)| Answer {
        from,
        nonce,
        is_intact,
        age_ms,
    });
    let action = prop_oneof![
        6 => wish.prop_map(Action::Launch),
        3 => (0..120_u64).prop_map(Action::Wait),
        8 => (any::<usize>(), answer).prop_map(|(probe, answer)| Action::Reply(probe, answer)),
        2 => (any::<usize>(), 0..80_u64).prop_map(|(probe, age)| Action::Error(probe, age)),
        1 => any::<usize>().prop_map(Action::Abandon),
        2 => Just(Action::Sweep),
        1 => Just(Action::NewIdentifier),
    ];
    prop::collection::vec(action, 1..120)
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 9, 0, number])
}

fn at(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

fn echo_of(ticket: Ticket, nonce: Nonce) -> Echo {
    Echo {
        identifier: ticket.mark.identifier,
        sequence: ticket.mark.sequence,
        nonce: match nonce {
            Nonce::Right => Some(ticket.mark.nonce),
            Nonce::Wrong => Some(!ticket.mark.nonce),
            Nonce::None => None,
        },
    }
}

impl Model {
    /// The arrival that was stamped so long ago, and its time as it counts.
    fn arrival(&self, sent_at: u64, age_ms: u64) -> (Arrival, u64) {
        let stamp = self.now.saturating_sub(age_ms);
        let arrival = Arrival {
            stamp: Some(at(stamp)),
            read: at(self.now),
        };
        (arrival, if stamp >= sent_at { stamp } else { self.now })
    }

    fn reply(&mut self, probe: usize, answer: Answer, at: u64) {
        let known = &mut self.probes[probe];
        let timeout = (known.key, known.deadline, Outcome::Missed(Miss::Timeout));
        let is_from_target = answer.from.is_none_or(|from| from == known.target);
        if known.fate == Fate::Gone {
            self.tally.foreign += 1;
        } else if !answer.is_intact {
            self.tally.malformed += 1;
        } else if !is_from_target || at > known.forget_at {
            self.tally.foreign += 1;
        } else if answer.nonce != Nonce::Right {
            self.tally.malformed += 1;
        } else if known.fate == Fate::Answered {
            self.tally.duplicate += 1;
        } else if known.fate == Fate::InFlight && at <= known.deadline {
            self.tally.valid += 1;
            let rtt = Duration::from_millis(at - known.sent_at);
            self.done.push((known.key, at, Outcome::replied(rtt)));
            known.fate = Fate::Answered;
        } else {
            if known.fate == Fate::InFlight {
                self.done.push(timeout);
            }
            self.tally.late += 1;
            known.fate = Fate::Answered;
        }
    }

    fn error(&mut self, probe: usize, at: u64) {
        let known = &mut self.probes[probe];
        if known.fate == Fate::InFlight && at <= known.deadline {
            self.tally.errors += 1;
            self.done
                .push((known.key, at, Outcome::Missed(Miss::Unreachable)));
            known.fate = Fate::Missed;
        }
    }

    fn sweep(&mut self) {
        for known in &mut self.probes {
            if known.fate == Fate::InFlight && known.deadline <= self.now {
                let outcome = Outcome::Missed(Miss::Timeout);
                self.done.push((known.key, known.deadline, outcome));
                known.fate = Fate::Missed;
            }
            if known.fate != Fate::Gone && known.forget_at <= self.now {
                known.fate = Fate::Gone;
            }
        }
    }

    fn in_flight(&self) -> impl Iterator<Item = &Known> {
        self.probes
            .iter()
            .filter(|known| known.fate == Fate::InFlight)
    }
}

/// Table and model, to which the same is done.
struct Pair {
    flight: Flight,
    model: Model,
    done: Vec<Done>,
}

impl Pair {
    fn act(&mut self, action: Action) {
        let count = self.model.probes.len();
        match action {
            Action::Launch(wish) => self.launch(wish),
            Action::Wait(millis) => self.model.now += millis,
            Action::Sweep => self.sweep(),
            Action::NewIdentifier => {
                let current = self.flight.identifiers().last().unwrap();
                self.flight.use_identifier(current + 1);
            }
            Action::Reply(..) | Action::Error(..) | Action::Abandon(_) if count == 0 => {}
            Action::Reply(probe, answer) => self.reply(probe % count, answer),
            Action::Error(probe, age_ms) => self.error(probe % count, age_ms),
            Action::Abandon(probe) => self.abandon(probe % count),
        }
    }

    fn launch(&mut self, wish: Wish) {
        let key = self.model.probes.len() as u64;
        let sent_at = self.model.now;
        let request = Request {
            key,
            target: wish.target,
            timeout: Duration::from_millis(wish.timeout_ms),
            late_window: Duration::from_millis(wish.late_ms),
            payload_bytes: 16,
            fresh_identifier: false,
        };
        self.model.probes.push(Known {
            ticket: self.flight.launch(&request, at(sent_at)).unwrap(),
            key,
            target: wish.target,
            sent_at,
            deadline: sent_at + wish.timeout_ms,
            forget_at: sent_at + wish.timeout_ms + wish.late_ms,
            fate: Fate::InFlight,
        });
    }

    fn reply(&mut self, probe: usize, answer: Answer) {
        let known = self.model.probes[probe];
        let (arrival, at) = self.model.arrival(known.sent_at, answer.age_ms);
        self.model.reply(probe, answer, at);
        let from = answer.from.unwrap_or(known.target);
        let echo = echo_of(known.ticket, answer.nonce);
        let ended = self.flight.reply(from, echo, arrival, answer.is_intact);
        self.done.extend(ended);
    }

    fn error(&mut self, probe: usize, age_ms: u64) {
        let known = self.model.probes[probe];
        let (arrival, at) = self.model.arrival(known.sent_at, age_ms);
        self.model.error(probe, at);
        let quote = echo_of(known.ticket, Nonce::Right);
        let kind = ErrorKind::Unreachable;
        self.done
            .extend(self.flight.error(known.target, quote, kind, arrival));
    }

    fn abandon(&mut self, probe: usize) {
        let known = &mut self.model.probes[probe];
        self.flight.abandon(known.ticket);
        if known.fate == Fate::InFlight {
            known.fate = Fate::Gone;
        }
    }

    fn sweep(&mut self) {
        self.flight.sweep(at(self.model.now), &mut self.done);
        self.model.sweep();
    }
}

proptest! {
    #[test]
    fn table_says_what_a_plain_list_says(actions in actions(), first in any::<u16>()) {
        let mut pair = Pair {
            flight: Flight::new(1, first),
            model: Model { now: 1_000, ..Model::default() },
            done: Vec::new(),
        };
        for action in actions {
            pair.act(action);
            let Pair { flight, model, .. } = &pair;
            prop_assert_eq!(flight.in_flight(), model.in_flight().count());
            let deadline = model.in_flight().map(|known| at(known.deadline)).min();
            prop_assert_eq!(flight.next_deadline(), deadline);
            prop_assert_eq!(flight.tally(), model.tally);
        }
        pair.model.now += 10_000;
        pair.sweep();
        let told = pair.done.iter().map(|done| (done.key, done.known_at, done.outcome));
        let mut told: Vec<_> = told.collect();
        let expected = pair.model.done.iter().map(|&(key, known, outcome)| (key, at(known), outcome));
        let mut expected: Vec<_> = expected.collect();
        told.sort_by_key(|done| done.0);
        expected.sort_by_key(|done| done.0);
        prop_assert_eq!(told, expected);
        prop_assert!(pair.flight.is_empty());
    }
}
