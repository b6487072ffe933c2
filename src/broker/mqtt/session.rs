//! An accepted session, until it ends.
//!
//! Floor 2. Called by `mqtt`, in the connection's task.
//!
//! # Invariants
//!
//! - Reading, writing and telling wait for each other only where a buffer is full,
//!   so a slow line, a slow broker or a slow caller stops one of them, not all.
//! - A line is given up where nothing came for one and a half keep-alives although an
//!   answer was due, unless what is sent still moves: on a thin line an answer may
//!   stand behind a minute of data. A broker that is only slow to acknowledge is asked
//!   before that whether it is there.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use rumqttc::{
    MqttState, Packet, Publish, QoS, Request, StateError, Subscribe, SubscribeReasonCode, mqttbytes,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use super::address::Address;
use super::connecting::{Connected, Stream};
use super::reason::{self, Age};
use super::{Access, Happening, IN_FLIGHT_MAX, Loss, Message, Order, Shared};

/// Bytes waiting to be written, beyond which no more orders are taken.
const OUT_BYTES_MAX: usize = 64 << 10;

/// Happenings waiting to be told, beyond which nothing more is read.
const TOLD_MAX: usize = 256;

/// Bytes read at once.
const READ_BYTES: usize = 8 << 10;

/// Packet ids in use. More than messages in flight: an id comes round again only
/// when its message was acknowledged long ago.
const IDS: u16 = 1_000;
const _: () = assert!(IN_FLIGHT_MAX * 4 < IDS as usize);

/// A session is young for this long. One that ends so early did not end by chance.
const YOUNG: Duration = Duration::from_secs(30);

/// How a session ended, and what is still to be told of it.
pub(super) struct End {
    pub(super) told: VecDeque<Happening>,
}

/// The session, without its stream.
struct Session<'a> {
    access: &'a Access,
    address: &'a Address,
    shared: &'a Shared,
    state: MqttState,
    /// The tokens of what is in flight, by packet id.
    tokens: HashMap<u16, u64>,
    received: BytesMut,
    out: BytesMut,
    told: VecDeque<Happening>,
    /// Whether the last write found the line full.
    is_backed_up: bool,
    is_flushed: bool,
    is_leaving: bool,
    /// Answers to pings and subscriptions that are due.
    answers_due: u32,
}

/// When something has to happen although nothing happens.
struct Timers<'a> {
    keep_alive: Duration,
    /// Nothing was sent for long: send a ping.
    quiet: Pin<&'a mut Sleep>,
    /// Nothing came for long although an answer is due: ask, then give up.
    deaf: Pin<&'a mut Sleep>,
    is_asked: bool,
    /// No longer young.
    grown: Pin<&'a mut Sleep>,
    is_young: bool,
}

impl End {
    pub(super) fn lost(loss: Loss) -> Self {
        Self {
            told: [Happening::Lost(loss)].into(),
        }
    }
}

/// Works until the session ends; what is returned is still to be told.
pub(super) async fn run(
    connected: Connected,
    access: &Access,
    shared: &Shared,
    orders: mpsc::Receiver<Order>,
    happenings: &mpsc::Sender<Happening>,
) -> End {
    let Connected {
        stream,
        received,
        is_resumed,
        address,
    } = connected;
    let mut session = Session {
        access,
        address: &address,
        shared,
        state: MqttState::new(IDS, false),
        tokens: HashMap::new(),
        received,
        out: BytesMut::new(),
        told: [Happening::Open { is_resumed }].into(),
        is_backed_up: false,
        is_flushed: true,
        is_leaving: false,
        answers_due: 0,
    };
    let ended = session.work(stream, orders, happenings).await;
    let mut told = session.told;
    match ended {
        Ok(()) => told.clear(),
        Err(loss) => told.push_back(Happening::Lost(loss)),
    }
    End { told }
}

impl Session<'_> {
    /// `Ok`: we have taken leave, or nobody listens any more.
    async fn work(
        &mut self,
        stream: Box<dyn Stream>,
        mut orders: mpsc::Receiver<Order>,
        happenings: &mpsc::Sender<Happening>,
    ) -> Result<(), Loss> {
        let keep_alive = self.access.uplink.keep_alive;
        let mut timers = Timers {
            keep_alive,
            quiet: pin!(sleep(keep_alive)),
            deaf: pin!(sleep(keep_alive)),
            is_asked: false,
            grown: pin!(sleep(YOUNG)),
            is_young: true,
        };
        let (mut reader, mut writer) = tokio::io::split(stream);
        self.subscribe()?;
        loop {
            self.take_in()?;
            if self.is_leaving && self.out.is_empty() && self.is_flushed {
                return leave(reader, writer).await;
            }
            let is_full = self.told.len() >= TOLD_MAX;
            self.received.reserve(READ_BYTES);
            tokio::select! {
                place = happenings.reserve(), if !self.told.is_empty() => {
                    let (Ok(place), Some(happening)) = (place, self.told.pop_front()) else {
                        return Ok(());
                    };
                    place.send(happening);
                    if is_full {
                        // Nothing was read meanwhile, so nothing could be heard.
                        timers.hear();
                    }
                }
                read = reader.read_buf(&mut self.received), if !is_full => {
                    self.heard(read, timers.is_young)?;
                    timers.hear();
                }
                wrote = put(&mut writer, &mut self.out), if !self.out.is_empty() || !self.is_flushed => {
                    self.sent(wrote, &mut timers)?;
                }
                order = orders.recv(), if !self.is_leaving && self.out.len() < OUT_BYTES_MAX => {
                    let Some(order) = order else {
                        return Ok(());
                    };
                    self.obey(order, &mut orders, &mut timers)?;
                }
                () = timers.quiet.as_mut(), if !self.is_leaving => self.quiet(&mut timers)?,
                () = timers.deaf.as_mut(), if self.is_answer_due() && !is_full => {
                    self.deaf(&mut timers)?;
                }
                () = timers.grown.as_mut(), if timers.is_young => timers.is_young = false,
            }
        }
    }

    /// Works off the packets that have come whole.
    fn take_in(&mut self) -> Result<(), Loss> {
        let bytes_max = self.packet_bytes_max();
        while self.told.len() < TOLD_MAX {
            match Packet::read(&mut self.received, bytes_max) {
                Ok(packet) => self.take(packet)?,
                Err(mqttbytes::Error::InsufficientBytes(_)) => break,
                Err(mqttbytes::Error::PayloadSizeLimitExceeded(bytes)) => {
                    self.shared.must_forget.store(true, Ordering::Relaxed);
                    return Err(reason::too_long(self.address, bytes));
                }
                Err(error) => return Err(reason::garbled(self.address, &error)),
            }
        }
        Ok(())
    }

    fn take(&mut self, packet: Packet) -> Result<(), Loss> {
        match &packet {
            Packet::PubAck(ack) => {
                let token = self.tokens.remove(&ack.pkid);
                self.told
                    .extend(token.map(|token| Happening::Taken { token }));
            }
            Packet::Publish(publish) => self.told.push_back(Happening::Came(Message {
                topic: publish.topic.clone(),
                payload: publish.payload.to_vec(),
                retain: publish.retain,
            })),
            Packet::SubAck(ack) => {
                self.answers_due = self.answers_due.saturating_sub(1);
                if ack.return_codes.contains(&SubscribeReasonCode::Failure) {
                    tracing::warn!(
                        topic = self.access.subscription,
                        "the broker does not let us listen: allow it in the broker's access rules"
                    );
                }
            }
            Packet::PingResp => self.answers_due = self.answers_due.saturating_sub(1),
            // The rest is for the state alone, which refuses what has no place here.
            Packet::Connect(_)
            | Packet::ConnAck(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingReq
            | Packet::Disconnect => {}
        }
        let answer = self.state.handle_incoming_packet(packet);
        self.state.events.clear();
        let answer = answer.map_err(|error| reason::out_of_order(self.address, &error))?;
        answer.map_or(Ok(()), |answer| self.write(&answer))
    }

    fn heard(&mut self, read: io::Result<usize>, is_young: bool) -> Result<(), Loss> {
        match read {
            Ok(0) => Err(reason::closed(self.address, self.access, age(is_young))),
            Ok(bytes) => {
                let counter = &self.shared.down_bytes;
                counter.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(self.failed(&error, is_young)),
        }
    }

    fn failed(&self, error: &io::Error, is_young: bool) -> Loss {
        reason::broke(self.address, self.access, age(is_young), error)
    }

    fn sent(&mut self, wrote: io::Result<usize>, timers: &mut Timers<'_>) -> Result<(), Loss> {
        let bytes = wrote.map_err(|error| self.failed(&error, timers.is_young))?;
        if bytes == 0 {
            self.is_flushed = true;
            return Ok(());
        }
        let counter = &self.shared.up_bytes;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        self.is_flushed = false;
        timers.speak();
        if self.is_backed_up {
            timers.hear();
        }
        self.is_backed_up = !self.out.is_empty();
        Ok(())
    }

    /// Takes this order and those right behind it, so that they leave together.
    fn obey(
        &mut self,
        first: Order,
        orders: &mut mpsc::Receiver<Order>,
        timers: &mut Timers<'_>,
    ) -> Result<(), Loss> {
        if !self.is_answer_due() {
            timers.hear();
        }
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Publish(token, message) => self.publish(token, message)?,
                Order::Leave => {
                    self.is_leaving = true;
                    return self.write(&Packet::Disconnect);
                }
            }
            if self.out.len() >= OUT_BYTES_MAX {
                break;
            }
            next = orders.try_recv().ok();
        }
        Ok(())
    }

    fn publish(&mut self, token: u64, message: Message) -> Result<(), Loss> {
        let mut publish = Publish::new(message.topic, QoS::AtLeastOnce, message.payload);
        publish.retain = message.retain;
        let packet = self.outgoing(Request::Publish(publish))?;
        if let Packet::Publish(publish) = &packet {
            self.tokens.insert(publish.pkid, token);
        }
        self.write(&packet)
    }

    fn subscribe(&mut self) -> Result<(), Loss> {
        let Some(topic) = &self.access.subscription else {
            return Ok(());
        };
        let subscribe = Subscribe::new(topic, QoS::AtLeastOnce);
        let packet = self.outgoing(Request::Subscribe(subscribe))?;
        self.answers_due += 1;
        self.write(&packet)
    }

    /// Nothing was sent for long.
    fn quiet(&mut self, timers: &mut Timers<'_>) -> Result<(), Loss> {
        if !self.is_answer_due() {
            timers.hear();
        }
        timers.speak();
        self.ping()
    }

    /// Nothing came for long although an answer is due.
    fn deaf(&mut self, timers: &mut Timers<'_>) -> Result<(), Loss> {
        if timers.is_asked {
            return Err(reason::deaf(self.address, timers.keep_alive.mul_f64(1.5)));
        }
        timers.ask();
        self.ping()
    }

    fn ping(&mut self) -> Result<(), Loss> {
        // What waits to be written tells the broker as much.
        if self.out.is_empty() {
            self.answers_due += 1;
            self.write(&Packet::PingReq)?;
        }
        Ok(())
    }

    fn outgoing(&mut self, request: Request) -> Result<Packet, Loss> {
        let packet = self.state.handle_outgoing_packet(request);
        self.state.events.clear();
        match packet {
            Ok(Some(packet)) => Ok(packet),
            // The id is still in use: a message of long ago was never acknowledged.
            Ok(None) => Err(reason::never_acknowledged(self.address)),
            Err(error) => Err(reason::out_of_order(self.address, &error)),
        }
    }

    fn write(&mut self, packet: &Packet) -> Result<(), Loss> {
        let bytes_max = self.packet_bytes_max();
        let written = packet.write(&mut self.out, bytes_max);
        written.map_err(|error| {
            reason::out_of_order(self.address, &StateError::Deserialization(error))
        })?;
        Ok(())
    }

    fn is_answer_due(&self) -> bool {
        self.answers_due > 0 || !self.tokens.is_empty()
    }

    fn packet_bytes_max(&self) -> usize {
        usize::try_from(self.access.uplink.max_packet_bytes).unwrap_or(usize::MAX)
    }
}

impl Timers<'_> {
    /// Something came, or nothing was due until now.
    fn hear(&mut self) {
        self.is_asked = false;
        self.deaf.set(sleep(self.keep_alive));
    }

    /// The broker was asked whether it is there.
    fn ask(&mut self) {
        self.is_asked = true;
        self.deaf.set(sleep(self.keep_alive / 2));
    }

    /// Something went.
    fn speak(&mut self) {
        self.quiet.set(sleep(self.keep_alive));
    }
}

/// Writes some of what waits, or, where nothing waits, what the stream itself still
/// holds. Loses nothing when dropped.
async fn put(writer: &mut WriteHalf<Box<dyn Stream>>, out: &mut BytesMut) -> io::Result<usize> {
    if out.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write_buf(out).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        bytes => Ok(bytes),
    }
}

/// Everything is sent: say so, and wait until the broker has read it all and closes.
/// Closing before it does would make the kernel throw away what is under way, where
/// something came that we have not read.
async fn leave(
    mut reader: ReadHalf<Box<dyn Stream>>,
    mut writer: WriteHalf<Box<dyn Stream>>,
) -> Result<(), Loss> {
    let mut rest = [0; 1_024];
    if writer.shutdown().await.is_ok() {
        while reader.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
    }
    Ok(())
}

const fn age(is_young: bool) -> Age {
    if is_young { Age::Young } else { Age::Grown }
}
