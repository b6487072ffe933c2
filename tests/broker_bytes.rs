//! Whatever an answering machine sends in a broker's place, we end in good order.

#![expect(
    clippy::unwrap_used,
    reason = "a test's own tools: a fault in them must fail the test"
)]

#[path = "support/mosquitto.rs"]
mod mosquitto;

use std::time::Duration;

use mosquitto::{access, lost, message, open};
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Broker as _, Happening, LossKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const ACCEPTED: [u8; 4] = [0x20, 2, 0, 0];

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).unwrap()
    }
}

/// What the machine says: nonsense, or packets that are almost right.
fn speech(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    if dice.roll(4) > 0 {
        bytes.extend(ACCEPTED);
    }
    for _ in 0..dice.roll(6) {
        let body: Vec<u8> = (0..dice.roll(12)).map(|_| dice.byte()).collect();
        bytes.push(dice.byte());
        let length = if dice.roll(3) > 0 {
            body.len()
        } else {
            dice.roll(256)
        };
        bytes.push(u8::try_from(length).unwrap());
        bytes.extend(body);
    }
    bytes
}

#[tokio::test]
async fn each_refusal_is_told_with_its_cure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let machine = tokio::spawn(async move {
        for code in 1..=5 {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 1_024];
            assert!(client.read(&mut greeting).await.unwrap() > 0);
            client.write_all(&[0x20, 2, 0, code]).await.unwrap();
        }
    });
    let mut mqtt = Mqtt::new();
    for part in [
        "does not speak MQTT 3.1.1",
        "the client id \"sitebeat-depot-gw\": it is made of site.id and node.name",
        "not available now",
        "set uplink.username",
        "set uplink.username",
    ] {
        mqtt.open(&access(&url));
        let loss = lost(&mut mqtt).await;
        assert_eq!(loss.kind, LossKind::Refused);
        assert!(loss.reason.contains(part), "{loss:?}");
    }
    machine.await.unwrap();
}

#[tokio::test]
async fn a_broker_that_acknowledges_nothing_is_kept_for_as_long_as_it_answers_pings() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let machine = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut heard = [0; 1_024];
        assert!(client.read(&mut heard).await.unwrap() > 0);
        client.write_all(&ACCEPTED).await.unwrap();
        let mut pings = 0;
        while pings < 4 {
            let bytes = client.read(&mut heard).await.unwrap();
            if heard[..bytes].windows(2).any(|pair| pair == [0xc0, 0]) {
                pings += 1;
                client.write_all(&[0xd0, 0]).await.unwrap();
            }
        }
        // From here on it is silent, and reads.
        while client.read(&mut heard).await.is_ok_and(|bytes| bytes > 0) {}
    });
    let mut access = access(&url);
    access.uplink.keep_alive = Duration::from_secs(1);
    access.subscription = None;
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access).await;
    let mut handed = 0;
    // Never quiet: what is sent would hide that nothing comes.
    let loss = loop {
        let happening = tokio::time::timeout(Duration::from_millis(300), mqtt.next()).await;
        if let Ok(Happening::Lost(loss)) = happening {
            break loss;
        }
        assert!(happening.is_err(), "{happening:?}");
        handed += 1;
        assert!(handed < 40, "a silent broker is never given up");
        mqtt.publish(handed, message("t", "x"));
    };
    // Four answers, a second apart, and one and a half without.
    assert!(handed >= 13, "given up too soon: {handed}");
    assert_eq!(loss.kind, LossKind::Broken);
    machine.await.unwrap();
}

#[tokio::test]
async fn whatever_comes_ends_in_a_loss_with_a_reason_and_never_in_a_fault_of_ours() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let machine = tokio::spawn(async move {
        let mut dice = Dice(0x5eed_0001_2345_6789);
        while let Ok((mut client, _)) = listener.accept().await {
            let mut greeting = [0; 1_024];
            let heard = client.read(&mut greeting).await;
            assert!(heard.is_ok());
            // The client may have hung up on what it has read already.
            drop(client.write_all(&speech(&mut dice)).await);
        }
    });
    let mut mqtt = Mqtt::new();
    for _ in 0..2_000 {
        mqtt.open(&access(&url));
        let loss = lost(&mut mqtt).await;
        assert!(!loss.reason.contains("fault of this program"), "{loss:?}");
    }
    machine.abort();
}
