//! How long the packets of MQTT 3.1.1 are.
//!
//! Floor 2. The simulated broker counts its traffic by it; the true connection counts
//! the bytes themselves. `edge::uplink` asks before it hands over a message whether it
//! is too long.

use super::{Access, Message};

/// PUBACK.
pub(super) const ACK_BYTES: u64 = 4;
/// CONNACK.
pub(super) const CONNACK_BYTES: u64 = 4;
/// PINGREQ and PINGRESP, each; DISCONNECT.
pub(super) const BARE_BYTES: u64 = 2;
/// SUBACK of one topic.
pub(super) const SUBACK_BYTES: u64 = 5;

/// Bytes of a message as a packet: PUBLISH with QoS 1.
#[must_use]
pub fn publish_bytes(message: &Message) -> u64 {
    framed(text(&message.topic) + 2 + message.payload.len())
}

/// SUBSCRIBE to one topic.
pub(super) fn subscribe_bytes(topic: &str) -> u64 {
    framed(2 + text(topic) + 1)
}

/// CONNECT.
pub(super) fn connect_bytes(access: &Access) -> u64 {
    let Access {
        uplink,
        client_id,
        will,
        ..
    } = access;
    let user = uplink.username.as_deref().map_or(0, text);
    let password = uplink
        .password
        .as_ref()
        .map_or(0, |secret| text(secret.reveal()));
    let will = text(&will.topic) + 2 + will.payload.len();
    framed(10 + text(client_id) + will + user + password)
}

/// A text with its length before it.
const fn text(text: &str) -> usize {
    2 + text.len()
}

/// With type and length before it, the length in one to four bytes.
fn framed(length: usize) -> u64 {
    let header = match length {
        0..=0x7f => 2,
        0x80..=0x3fff => 3,
        0x4000..=0x1f_ffff => 4,
        _ => 5,
    };
    header + length as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_is_header_topic_id_and_payload() {
        let message = |payload| Message {
            topic: "a/b".into(),
            payload: vec![0; payload],
            retain: false,
        };
        assert_eq!(publish_bytes(&message(0)), 2 + 5 + 2);
        assert_eq!(publish_bytes(&message(120)), 2 + 127);
        assert_eq!(publish_bytes(&message(121)), 3 + 128);
        assert_eq!(publish_bytes(&message(20_000)), 4 + 20_007);
    }
}
