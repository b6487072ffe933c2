//! The MQTT topics: made here, and taken apart here.
//!
//! Floor 1. `edge::uplink` makes them, `central` takes them apart. Site, node and
//! device ids hold none of `/`, `+`, `#`: `config` has seen to that.

use std::hash::Hasher as _;

use crate::domain::device::DeviceId;

/// The topics of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    prefix: String,
    /// `p07`
    part: String,
    site: String,
    node: String,
}

/// The kinds of topics a gateway publishes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// One heartbeat.
    Metrics,
    /// Changes of status, devices that left, steps of the clock.
    Status,
    /// Failures.
    Failed,
    /// Summaries of days.
    Daily,
    /// Alarms.
    Alarm,
    /// A device's liveness record, retained.
    Liveness,
    /// The node heartbeat, retained.
    Node,
}

/// A topic taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Its kind.
    pub kind: TopicKind,
    /// Its partition.
    pub part: u32,
    /// The site.
    pub site: &'a str,
    /// A device id, `_node`, `_site`, or the node of a node heartbeat.
    pub subject: &'a str,
}

impl Topics {
    /// Those of node `node` on site `site`, which share `partitions` with others.
    #[must_use]
    pub fn new(prefix: &str, partitions: u32, site: &str, node: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            part: part_word(partition_of(site, partitions)),
            site: site.to_owned(),
            node: node.to_owned(),
        }
    }

    /// The topic of this kind about a device.
    #[must_use]
    pub fn of_device(&self, kind: TopicKind, device: DeviceId) -> String {
        self.of(kind, device.as_str())
    }

    /// The topic of this kind about the node, `_node`.
    #[must_use]
    pub fn of_node(&self, kind: TopicKind) -> String {
        self.of(kind, "_node")
    }

    /// The topic of this kind about the site, `_site`.
    #[must_use]
    pub fn of_site(&self, kind: TopicKind) -> String {
        self.of(kind, "_site")
    }

    /// The topic of the node heartbeat.
    #[must_use]
    pub fn heartbeat(&self) -> String {
        self.of(TopicKind::Node, &self.node)
    }

    /// The topic on which central acknowledges.
    #[must_use]
    pub fn ack(&self) -> String {
        format!("{}/ack/{}/{}", self.prefix, self.site, self.node)
    }

    fn of(&self, kind: TopicKind, subject: &str) -> String {
        let Self {
            prefix, part, site, ..
        } = self;
        format!("{prefix}/{}/{part}/{site}/{subject}", kind.word())
    }
}

impl TopicKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Metrics,
        Self::Status,
        Self::Failed,
        Self::Daily,
        Self::Alarm,
        Self::Liveness,
        Self::Node,
    ];

    /// The level of the topic that names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::Failed => "failed",
            Self::Daily => "daily",
            Self::Alarm => "alarm",
            Self::Liveness => "liveness",
            Self::Node => "node",
        }
    }
}

/// FNV-1a 64 of the site id, modulo the number of partitions.
#[must_use]
pub fn partition_of(site: &str, partitions: u32) -> u32 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(site.as_bytes());
    let partition = hasher.finish() % u64::from(partitions.max(1));
    u32::try_from(partition).unwrap_or(0)
}

/// The level that names a partition: `p` and two digits or more.
#[must_use]
pub fn part_word(partition: u32) -> String {
    format!("p{partition:02}")
}

/// Takes a topic apart; `None`: it is none of ours.
#[must_use]
pub fn parse<'a>(prefix: &str, topic: &'a str) -> Option<Topic<'a>> {
    let rest = topic.strip_prefix(prefix)?.strip_prefix('/')?;
    let mut levels = rest.split('/');
    let word = levels.next()?;
    let kind = TopicKind::ALL
        .into_iter()
        .find(|kind| kind.word() == word)?;
    let level = levels.next()?;
    let part = level.strip_prefix('p')?.parse().ok()?;
    let (site, subject) = (levels.next()?, levels.next()?);
    // Only one spelling of a partition: a number is read with a sign or zeros too.
    let is_whole = levels.next().is_none()
        && part_word(part) == level
        && !site.is_empty()
        && !subject.is_empty();
    is_whole.then_some(Topic {
        kind,
        part,
        site,
        subject,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind() -> impl Strategy<Value = TopicKind> {
        prop::sample::select(TopicKind::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn any_topic_is_read_or_refused(prefix in "\\PC{0,9}", topic in "(status|node|x)/p?[0-9+]{0,4}/[a-z/]{0,5}/?[a-z]{0,2}|\\PC{0,60}") {
            let whole = format!("{prefix}/{topic}");
            if let Some(apart) = parse(&prefix, &whole) {
                let Topic { kind, part, site, subject } = apart;
                let part = part_word(part);
                prop_assert_eq!(&topic, &format!("{}/{part}/{site}/{subject}", kind.word()));
            }
            let _either = parse(&topic, &prefix);
        }

        #[test]
        fn what_is_made_comes_apart_as_it_was(
            kind in kind(),
            site in "[A-Za-z0-9._-]{1,64}",
            device in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}",
            partitions in 1_u32..=65_536,
        ) {
            let topics = Topics::new("a/b", partitions, &site, "gw");
            let made = topics.of_device(kind, device.parse().unwrap());
            let part = partition_of(&site, partitions);
            prop_assert!(part < partitions);
            let apart = Topic { kind, part, site: &site, subject: &device };
            prop_assert_eq!(parse("a/b", &made), Some(apart));
        }
    }

    #[test]
    fn topics_are_as_the_contract_has_them_and_come_apart_again() {
        let topics = Topics::new("cinga/heartbeat", 64, "depot-7", "gw");
        let part = part_word(partition_of("depot-7", 64));
        let device = "D7".parse().unwrap();
        let made = topics.of_device(TopicKind::Status, device);
        assert_eq!(made, format!("cinga/heartbeat/status/{part}/depot-7/D7"));
        assert_eq!(
            topics.of_node(TopicKind::Failed),
            format!("cinga/heartbeat/failed/{part}/depot-7/_node")
        );
        assert_eq!(
            topics.of_site(TopicKind::Daily),
            format!("cinga/heartbeat/daily/{part}/depot-7/_site")
        );
        assert_eq!(
            topics.heartbeat(),
            format!("cinga/heartbeat/node/{part}/depot-7/gw")
        );
        assert_eq!(topics.ack(), "cinga/heartbeat/ack/depot-7/gw");
        let apart = parse("cinga/heartbeat", &made).unwrap();
        assert_eq!(
            (apart.kind, apart.site, apart.subject),
            (TopicKind::Status, "depot-7", "D7")
        );
        assert_eq!(apart.part, partition_of("depot-7", 64));
        for foreign in [
            "",
            "cinga/heartbeat",
            "other/status/p00/a/b",
            "cinga/heartbeat/ack/a/b",
            "cinga/heartbeat/status/p00/a",
            "cinga/heartbeat/status/p00/a/b/c",
            "cinga/heartbeat/status/00/a/b",
            "cinga/heartbeatx/status/p00/a/b",
            "cinga/heartbeat/status/p0/a/b",
            "cinga/heartbeat/status/p007/a/b",
            "cinga/heartbeat/status/p+7/a/b",
            "cinga/heartbeat/status/p4294967296/a/b",
            "cinga/heartbeat/status/p00//b",
            "cinga/heartbeat/status/p00/a/",
            "cinga/heartbeat/Status/p00/a/b",
        ] {
            assert_eq!(parse("cinga/heartbeat", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn partitions_follow_the_published_hash() {
        // FNV-1a 64 of "" and of "a", from the reference of the hash's authors.
        assert_eq!(
            u64::from(partition_of("", 1 << 16)),
            0xcbf2_9ce4_8422_2325 % (1 << 16)
        );
        assert_eq!(
            u64::from(partition_of("a", 1 << 16)),
            0xaf63_dc4c_8601_ec8c % (1 << 16)
        );
        assert_eq!(
            (part_word(7), part_word(123)),
            ("p07".into(), "p123".into())
        );
    }
}
