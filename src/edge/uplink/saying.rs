//! The words of the uplink: topics and payloads of what goes up.
//!
//! Floor 3.

use std::time::Duration;

use crate::board::Picture;
use crate::broker::Message;
use crate::domain::device::DeviceId;
use crate::domain::outbox::Class;
use crate::domain::status::{Liveness, Track};
use crate::store::outbox::Parcel;
use crate::wire::message::{self, Metrics};
use crate::wire::topic::{TopicKind, Topics};

/// Who speaks, and under which topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Voice {
    pub(super) site: String,
    pub(super) node: String,
    pub(super) boot_id: String,
    pub(super) topics: Topics,
}

impl Voice {
    /// The voice of the gateway in this picture.
    pub(super) fn of(picture: &Picture, prefix: &str, partitions: u32) -> Self {
        let gateway = &picture.gateway;
        Self {
            site: gateway.site.clone(),
            node: gateway.node.clone(),
            boot_id: gateway.boot_id.clone(),
            topics: Topics::new(prefix, partitions, &gateway.site, &gateway.node),
        }
    }

    /// An event; `asks_central` where the cursor waits for central.
    pub(super) fn event(&self, parcel: &Parcel, asks_central: bool) -> Message {
        let kind = match parcel.class {
            Class::Status => TopicKind::Status,
            Class::Failed => TopicKind::Failed,
            Class::Alarm => TopicKind::Alarm,
            Class::Daily => TopicKind::Daily,
        };
        let topic = match parcel.device {
            Some(device) => self.topics.of_device(kind, device),
            None if parcel.is_of_site => self.topics.of_site(kind),
            None => self.topics.of_node(kind),
        };
        let payload = if asks_central {
            message::with_central_ack(&parcel.json).into_bytes()
        } else {
            parcel.json.clone().into_bytes()
        };
        Message {
            topic,
            payload,
            retain: false,
        }
    }

    /// A device's liveness record; nothing where it left, which ends what the broker
    /// keeps of it.
    pub(super) fn liveness(&self, device: DeviceId, track: Option<Track>) -> Message {
        let payload = track.map_or_else(Vec::new, |track| {
            message::liveness(&Liveness { device, track }).into_bytes()
        });
        Message {
            topic: self.topics.of_device(TopicKind::Liveness, device),
            payload,
            retain: true,
        }
    }

    /// One heartbeat.
    pub(super) fn metrics(&self, one: &Metrics, log_id: &str) -> Message {
        Message {
            topic: self.topics.of_device(TopicKind::Metrics, one.device),
            payload: message::metrics(one, &self.site, &self.node, log_id).into_bytes(),
            retain: false,
        }
    }

    /// What is said in our place when we are gone.
    pub(super) fn gone(&self, reason: &str) -> Message {
        Message {
            topic: self.topics.heartbeat(),
            payload: message::node_gone(&self.node, &self.boot_id, reason).into_bytes(),
            retain: true,
        }
    }

    /// The node heartbeat, valid for `ttl`.
    pub(super) fn heartbeat(&self, picture: &Picture, ttl: Duration) -> Message {
        let heartbeat = picture.node_heartbeat(ttl);
        Message {
            topic: self.topics.heartbeat(),
            payload: message::node_heartbeat(&heartbeat).into_bytes(),
            retain: true,
        }
    }
}
