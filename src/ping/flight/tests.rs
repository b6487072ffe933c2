//! What each thing that comes back means, one claim per test.

use super::*;

const TARGET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 7));
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 8));
const MISSED: Outcome = Outcome::Missed(Miss::Timeout);

/// A table with one probe, key 1, sent at 1 s: timeout 5 s, late window 60 s.
struct Desk {
    flight: Flight,
    ticket: Ticket,
}

fn at_ms(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

fn arrival(stamp_ms: u64) -> Arrival {
    read_late(stamp_ms, stamp_ms)
}

fn read_late(stamp_ms: u64, read_ms: u64) -> Arrival {
    Arrival {
        stamp: Some(at_ms(stamp_ms)),
        read: at_ms(read_ms),
    }
}

fn request(key: u64) -> Request {
    Request {
        key,
        target: TARGET,
        timeout: Duration::from_secs(5),
        late_window: Duration::from_mins(1),
        payload_bytes: 16,
        fresh_identifier: false,
    }
}

fn echo_of(ticket: Ticket) -> Echo {
    Echo {
        identifier: ticket.mark.identifier,
        sequence: ticket.mark.sequence,
        nonce: Some(ticket.mark.nonce),
    }
}

impl Desk {
    fn new() -> Self {
        let mut flight = Flight::new(77, 1);
        let ticket = flight.launch(&request(1), at_ms(1_000)).unwrap();
        Self { flight, ticket }
    }

    /// Its right reply.
    fn reply(&mut self, arrival: Arrival) -> Option<Outcome> {
        self.echo(TARGET, echo_of(self.ticket), arrival)
    }

    fn echo(&mut self, from: IpAddr, echo: Echo, arrival: Arrival) -> Option<Outcome> {
        self.flight
            .reply(from, echo, arrival, true)
            .map(|done| done.outcome)
    }

    fn error(&mut self, target: IpAddr, quote: Echo, at: Arrival) -> Option<Outcome> {
        let ended = self.flight.error(target, quote, ErrorKind::Unreachable, at);
        ended.map(|done| done.outcome)
    }

    fn sweep(&mut self, millis: u64) -> Vec<Done> {
        let mut done = Vec::new();
        self.flight.sweep(at_ms(millis), &mut done);
        done
    }

    /// valid, late, duplicate, foreign, malformed, errors
    fn tally(&self) -> [u64; 6] {
        let tally = self.flight.tally();
        [
            tally.valid,
            tally.late,
            tally.duplicate,
            tally.foreign,
            tally.malformed,
            tally.errors,
        ]
    }
}

#[test]
fn right_reply_ends_its_probe_with_the_stamped_time() {
    let mut desk = Desk::new();
    let done = desk
        .flight
        .reply(TARGET, echo_of(desk.ticket), read_late(1_820, 4_000), true);
    let expected = Done {
        key: 1,
        sent_at: at_ms(1_000),
        known_at: at_ms(1_820),
        outcome: Outcome::Replied { rtt_us: 820_000 },
    };
    assert_eq!(done, Some(expected));
    assert_eq!(desk.flight.in_flight(), 0);
    assert_eq!(desk.flight.in_flight_bytes(), 0);
    assert_eq!(desk.tally(), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn stamp_outside_of_send_and_read_gives_way_to_the_time_of_reading() {
    for stamp_ms in [0, 999, 2_001, 9_999_999] {
        let mut desk = Desk::new();
        let outcome = desk.reply(read_late(stamp_ms, 2_000));
        assert_eq!(outcome, Some(Outcome::Replied { rtt_us: 1_000_000 }));
    }
}

#[test]
fn reply_at_the_deadline_counts_and_one_after_it_is_late() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.reply(arrival(6_000)),
        Some(Outcome::Replied { rtt_us: 5_000_000 })
    );
    let mut desk = Desk::new();
    // Read before the sweep, and still a miss.
    assert_eq!(desk.reply(arrival(6_001)), Some(MISSED));
    assert_eq!(desk.tally(), [0, 1, 0, 0, 0, 0]);
    assert_eq!(desk.sweep(7_000), []);
}

#[test]
fn reply_that_came_in_time_counts_however_late_it_is_read() {
    let mut desk = Desk::new();
    let outcome = desk.reply(read_late(1_500, 30_000));
    assert_eq!(outcome, Some(Outcome::Replied { rtt_us: 500_000 }));
}

#[test]
fn deadline_ends_a_probe_once_and_names_itself() {
    let mut desk = Desk::new();
    assert_eq!(desk.flight.next_deadline(), Some(at_ms(6_000)));
    assert_eq!(desk.sweep(5_999), []);
    let done = desk.sweep(6_000);
    assert_eq!((done.len(), done[0].outcome), (1, MISSED));
    assert_eq!(desk.sweep(9_000), []);
    let mut desk = Desk::new();
    assert_eq!(desk.sweep(60_000)[0].known_at, at_ms(6_000));
    assert_eq!(desk.flight.next_deadline(), None);
}

#[test]
fn replies_after_the_end_are_late_then_duplicate_then_foreign() {
    let mut desk = Desk::new();
    desk.sweep(6_000);
    assert_eq!(desk.reply(arrival(7_000)), None);
    assert_eq!(desk.tally(), [0, 1, 0, 0, 0, 0]);
    assert_eq!(desk.reply(arrival(8_000)), None);
    assert_eq!(desk.tally(), [0, 1, 1, 0, 0, 0]);
    // The late window has closed, swept or not.
    assert_eq!(desk.reply(arrival(66_001)), None);
    desk.sweep(66_001);
    assert_eq!(desk.reply(arrival(66_002)), None);
    assert_eq!(desk.tally(), [0, 1, 1, 2, 0, 0]);
    assert!(desk.flight.is_empty());
}

#[test]
fn second_reply_is_a_duplicate() {
    let mut desk = Desk::new();
    assert!(desk.reply(arrival(1_020)).is_some());
    assert_eq!(desk.reply(arrival(1_021)), None);
    assert_eq!(desk.reply(arrival(20_000)), None);
    assert_eq!(desk.tally(), [1, 0, 2, 0, 0, 0]);
}

#[test]
fn late_reply_never_satisfies_a_later_probe() {
    let mut desk = Desk::new();
    desk.sweep(6_000);
    let next = desk.flight.launch(&request(2), at_ms(61_000)).unwrap();
    assert_eq!(desk.reply(arrival(64_000)), None);
    assert_eq!(desk.flight.in_flight(), 1);
    assert_eq!(desk.sweep(66_000)[0].key, 2);
    assert_eq!(desk.tally(), [0, 1, 0, 0, 0, 0]);
    assert_ne!(next.mark.sequence, desk.ticket.mark.sequence);
}

#[test]
fn malformed_reply_leaves_its_probe_in_flight() {
    let mut desk = Desk::new();
    let right = echo_of(desk.ticket);
    let wrong_nonce = Echo {
        nonce: Some(desk.ticket.mark.nonce ^ 1),
        ..right
    };
    let short = Echo {
        nonce: None,
        ..right
    };
    assert_eq!(desk.echo(TARGET, wrong_nonce, arrival(1_001)), None);
    assert_eq!(desk.echo(TARGET, short, arrival(1_002)), None);
    assert_eq!(
        desk.flight.reply(TARGET, right, arrival(1_003), false),
        None
    );
    assert_eq!(desk.tally(), [0, 0, 0, 0, 3, 0]);
    assert_eq!(
        desk.reply(arrival(1_020)),
        Some(Outcome::Replied { rtt_us: 20_000 })
    );
}

#[test]
fn reply_from_another_address_or_for_nothing_asked_is_foreign() {
    let mut desk = Desk::new();
    let right = echo_of(desk.ticket);
    let unasked = Echo {
        sequence: 9,
        ..right
    };
    assert_eq!(desk.echo(STRANGER, right, arrival(1_001)), None);
    assert_eq!(desk.echo(TARGET, unasked, arrival(1_002)), None);
    assert_eq!(desk.tally(), [0, 0, 0, 2, 0, 0]);
    assert_eq!(desk.flight.in_flight(), 1);
}

#[test]
fn reply_to_another_program_is_not_counted() {
    let mut desk = Desk::new();
    let others = Echo {
        identifier: 78,
        ..echo_of(desk.ticket)
    };
    assert_eq!(desk.echo(TARGET, others, arrival(1_001)), None);
    assert_eq!(desk.tally(), [0; 6]);
}

#[test]
fn icmp_error_ends_its_probe_and_what_follows_changes_nothing() {
    let mut desk = Desk::new();
    let quote = echo_of(desk.ticket);
    let ended = desk.error(TARGET, quote, arrival(1_030));
    assert_eq!(ended, Some(Outcome::Missed(Miss::Unreachable)));
    assert_eq!(desk.error(TARGET, quote, arrival(1_031)), None);
    assert_eq!(desk.reply(arrival(1_040)), None);
    assert_eq!(desk.sweep(10_000), []);
    assert_eq!(desk.tally(), [0, 1, 0, 0, 0, 1]);
}

#[test]
fn quote_without_nonce_is_enough_and_with_a_wrong_one_is_not() {
    let mut desk = Desk::new();
    let right = echo_of(desk.ticket);
    let guessed = Echo {
        nonce: Some(1),
        ..right
    };
    assert_eq!(desk.error(TARGET, guessed, arrival(1_001)), None);
    assert_eq!(desk.error(STRANGER, right, arrival(1_001)), None);
    let short = Echo {
        nonce: None,
        ..right
    };
    assert!(desk.error(TARGET, short, arrival(1_002)).is_some());
}

#[test]
fn icmp_error_after_the_reply_or_the_deadline_changes_nothing() {
    let mut desk = Desk::new();
    let quote = echo_of(desk.ticket);
    assert_eq!(desk.error(TARGET, quote, arrival(6_001)), None);
    assert!(desk.reply(read_late(1_020, 6_002)).is_some());
    assert_eq!(desk.error(TARGET, quote, arrival(6_003)), None);
    assert_eq!(desk.tally(), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn abandoned_probe_leaves_no_trace() {
    let mut desk = Desk::new();
    desk.flight.abandon(desk.ticket);
    assert!(desk.flight.is_empty());
    assert_eq!(desk.flight.next_deadline(), None);
    assert_eq!(desk.sweep(100_000), []);
    desk.flight.abandon(desk.ticket);
    assert_eq!(desk.flight.in_flight(), 0);
}

#[test]
fn sequence_wraps_in_order() {
    let mut flight = Flight::new(7, 65_533);
    let mut sequences = Vec::new();
    for key in 0..5 {
        sequences.push(
            flight
                .launch(&request(key), at_ms(key))
                .unwrap()
                .mark
                .sequence,
        );
    }
    assert_eq!(sequences, [65_533, 65_534, 65_535, 0, 1]);
}

#[test]
fn seventy_thousand_probes_one_after_the_other_all_match() {
    let mut desk = Desk::new();
    assert!(desk.reply(arrival(1_001)).is_some());
    for key in 0..70_000 {
        let ticket = desk
            .flight
            .launch(&request(key), at_ms(2_000 + key))
            .unwrap();
        let arrival = arrival(2_001 + key);
        let done = desk.flight.reply(TARGET, echo_of(ticket), arrival, true);
        assert_eq!(done.map(|done| done.key), Some(key));
    }
    assert_eq!(desk.tally(), [70_001, 0, 0, 0, 0, 0]);
    desk.sweep(1_000_000);
    assert!(desk.flight.is_empty());
}

#[test]
fn sequence_in_flight_is_skipped_and_a_full_identifier_refuses() {
    let mut flight = Flight::new(7, 0);
    let mut tickets = Vec::new();
    for key in 0..65_536 {
        tickets.push(flight.launch(&request(key), at_ms(1_000)).unwrap());
    }
    assert!(flight.is_crowded());
    assert_eq!(flight.launch(&request(0), at_ms(1_000)), None);
    flight.abandon(tickets[40_000]);
    let found = flight.launch(&request(0), at_ms(1_001)).unwrap();
    assert_eq!(found.mark.sequence, 40_000);
    // A second identifier takes the rest, and both are answered.
    flight.use_identifier(8);
    assert!(!flight.is_crowded());
    let other = flight.launch(&request(9), at_ms(1_002)).unwrap();
    for (ticket, key) in [(other, 9), (tickets[12], 12)] {
        let done = flight.reply(TARGET, echo_of(ticket), arrival(1_003), true);
        assert_eq!(done.map(|done| done.key), Some(key));
    }
}

#[test]
fn identifier_is_known_until_nothing_known_carries_it() {
    let mut desk = Desk::new();
    desk.flight.use_identifier(78);
    assert!(!desk.flight.retire_unused());
    desk.flight.retire_landed();
    assert_eq!(desk.flight.identifiers().collect::<Vec<_>>(), [77, 78]);
    assert!(desk.reply(arrival(1_001)).is_some());
    assert!(!desk.flight.retire_unused());
    desk.sweep(66_000);
    assert!(desk.flight.retire_unused());
    assert_eq!(desk.flight.identifiers().collect::<Vec<_>>(), [78]);
}

#[test]
fn landed_identifier_goes_with_its_memory_where_its_place_is_needed() {
    let mut desk = Desk::new();
    assert!(desk.reply(arrival(1_001)).is_some());
    desk.flight.use_identifier(78);
    desk.flight.retire_landed();
    assert_eq!(desk.flight.identifiers().collect::<Vec<_>>(), [78]);
    assert!(desk.flight.is_empty());
    assert_eq!(desk.reply(arrival(1_002)), None);
    assert_eq!(desk.tally(), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn no_two_nonces_are_alike_and_none_follows_from_another() {
    let mut desk = Desk::new();
    let mut nonces: Vec<_> = (0..1_000)
        .map(|key| {
            desk.flight
                .launch(&request(key), at_ms(2_000))
                .unwrap()
                .mark
                .nonce
        })
        .collect();
    let steps = nonces.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let steps: std::collections::BTreeSet<_> = steps.collect();
    assert_eq!(steps.len(), 999);
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 1_000);
}
