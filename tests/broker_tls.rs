//! TLS to a real mosquitto on loopback, with certificates made by openssl.

#![expect(
    clippy::unwrap_used,
    reason = "a test's own tools: a fault in them must fail the test"
)]

#[path = "support/mosquitto.rs"]
mod mosquitto;

use std::fs;
use std::path::Path;

use mosquitto::{Authority, Mosquitto, access, lost, message, next, open, refused};
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Access, Broker as _, Happening, Loss, LossKind};
use sitebeat::domain::instant::Wall;

const HERE: &str = "IP:127.0.0.1,DNS:localhost";

/// A broker with the certificate `server` of `authority`.
fn broker(authority: &Authority, server: &str, more: &str) -> Mosquitto {
    let path = |name: &str| authority.path(name).display().to_string();
    Mosquitto::with(&format!(
        "allow_anonymous true\ncafile {}\ncertfile {}\nkeyfile {}\n{more}",
        path("ca.crt"),
        path(&format!("{server}.crt")),
        path(&format!("{server}.key")),
    ))
}

fn trusting(broker: &Mosquitto, ca: &Path) -> Access {
    let mut access = access(&format!("mqtts://127.0.0.1:{}", broker.port));
    access.uplink.ca_file = Some(ca.to_owned());
    access
}

fn showing(mut access: Access, authority: &Authority, name: &str) -> Access {
    access.uplink.client_cert_file = Some(authority.path(&format!("{name}.crt")));
    access.uplink.client_key_file = Some(authority.path(&format!("{name}.key")));
    access
}

/// Opens, which must fail for this reason.
async fn fails(access: &Access, kind: LossKind, part: &str) -> Loss {
    let loss = refused(&mut Mqtt::new(), access).await;
    assert!(loss.kind == kind && loss.reason.contains(part), "{loss:?}");
    loss
}

fn swap(authority: &Authority, from: &str, to: &str) {
    fs::copy(authority.path(from), authority.path(to)).unwrap();
}

#[tokio::test]
async fn a_session_over_tls_carries_long_messages() {
    let authority = Authority::new("ours");
    authority.issue("server", HERE, 30, 0);
    let broker = broker(&authority, "server", "");
    let mut mqtt = Mqtt::new();
    let mut access = trusting(&broker, &authority.ca());
    open(&mut mqtt, &access).await;
    let long = message("ack/gw", &"x".repeat(200_000));
    mqtt.publish(1, long.clone());
    let both = [next(&mut mqtt).await, next(&mut mqtt).await];
    assert!(both.contains(&Happening::Taken { token: 1 }), "no ack");
    assert!(both.contains(&Happening::Came(long)), "nothing came");
    mqtt.close().await;
    // By name too.
    access.uplink.url = Some(format!("mqtts://localhost:{}", broker.port));
    assert!(open(&mut mqtt, &access).await);
    assert_eq!(mqtt.validity(), None);
    assert!(mqtt.troubles().is_empty());
}

#[tokio::test]
async fn faults_of_the_brokers_certificate_are_told_apart() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    authority.issue("server", HERE, 30, 0);
    let fine = broker(&authority, "server", "");
    let kind = LossKind::Unreachable;
    fails(
        &trusting(&fine, &other.ca()),
        kind,
        "name the right one in uplink.ca_file",
    )
    .await;
    // Without uplink.ca_file the authorities of the system count.
    let mut public = trusting(&fine, &other.ca());
    public.uplink.ca_file = None;
    public.uplink.url = Some(format!("mqtts://localhost:{}", fine.port));
    let loss = refused(&mut Mqtt::new(), &public).await;
    assert!(loss.reason.contains("uplink.ca_file"), "{loss:?}");

    authority.issue("expired", HERE, 1, -3);
    let expired = broker(&authority, "expired", "");
    let loss = fails(
        &trusting(&expired, &authority.ca()),
        kind,
        "has expired on 20",
    )
    .await;
    assert!(loss.reason.contains("the clock here shows 20"), "{loss:?}");

    // What a gateway sees whose clock is behind.
    authority.issue("early", HERE, 30, 3);
    let early = broker(&authority, "early", "");
    let part = "the clock of this gateway shows 20";
    fails(&trusting(&early, &authority.ca()), kind, part).await;

    authority.issue("elsewhere", "DNS:elsewhere.example", 30, 0);
    let elsewhere = broker(&authority, "elsewhere", "");
    fails(
        &trusting(&elsewhere, &authority.ca()),
        kind,
        "for another name",
    )
    .await;
}

#[tokio::test]
async fn tls_where_there_is_none_and_none_where_there_is_are_told() {
    let authority = Authority::new("ours");
    authority.issue("server", HERE, 30, 0);
    let plain = Mosquitto::start();
    let kind = LossKind::Unreachable;
    fails(&trusting(&plain, &authority.ca()), kind, "TLS").await;
    let tls = broker(&authority, "server", "");
    let access = access(&tls.url());
    fails(
        &access,
        LossKind::Refused,
        "speaks TLS where uplink.url says mqtt://",
    )
    .await;
}

#[tokio::test]
async fn a_broker_that_wants_a_certificate_gets_ours_and_says_what_it_dislikes() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    authority.issue("server", HERE, 30, 0);
    authority.issue("gw", "DNS:gw", 30, 0);
    authority.issue("old", "DNS:gw", 1, -3);
    other.issue("gw", "DNS:gw", 30, 0);
    let broker = broker(&authority, "server", "require_certificate true\n");
    let plain = trusting(&broker, &authority.ca());
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &showing(plain.clone(), &authority, "gw")).await;
    let validity = mqtt.validity().unwrap();
    let lifetime = validity.not_after.since(validity.not_before);
    assert_eq!(lifetime.as_secs(), 30 * 86_400);
    assert!(validity.not_after > Wall::parse("2026-01-01T00:00:00Z").unwrap());
    mqtt.close().await;
    fails(&plain, LossKind::Refused, "certificate").await;
    let old = showing(plain.clone(), &authority, "old");
    fails(&old, LossKind::Refused, "our certificate has expired").await;
    let foreign = showing(plain, &other, "gw");
    fails(
        &foreign,
        LossKind::Refused,
        "does not accept our certificate",
    )
    .await;
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_at_the_next_connection() {
    let authority = Authority::new("ours");
    authority.issue("server", HERE, 30, 0);
    authority.issue("gw", "DNS:gw", 30, 0);
    authority.issue("next", "DNS:gw", 60, 0);
    let broker = broker(&authority, "server", "require_certificate true\n");
    let access = showing(trusting(&broker, &authority.ca()), &authority, "gw");
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access).await;
    let before = mqtt.validity().unwrap();
    // Half a renewal: the key is not there yet. The old pair goes on, and it is told.
    swap(&authority, "next.crt", "gw.crt");
    open(&mut mqtt, &access).await;
    assert_eq!(mqtt.validity(), Some(before));
    let troubles = mqtt.troubles();
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    assert_eq!(troubles[0].key, "uplink.client_cert_file");
    assert!(
        troubles[0].reason.contains("does not go with the key"),
        "{troubles:?}"
    );
    // The other half.
    swap(&authority, "next.key", "gw.key");
    open(&mut mqtt, &access).await;
    let after = mqtt.validity().unwrap();
    assert!(after.not_after.since(before.not_after).as_secs() > 29 * 86_400);
    assert!(mqtt.troubles().is_empty());
}

#[tokio::test]
async fn files_that_break_end_nothing_that_works() {
    let authority = Authority::new("ours");
    authority.issue("server", HERE, 30, 0);
    authority.issue("gw", "DNS:gw", 30, 0);
    let broker = broker(&authority, "server", "require_certificate true\n");
    let access = showing(trusting(&broker, &authority.ca()), &authority, "gw");
    let mut mqtt = Mqtt::new();
    // Never good: unusable, with the file and what is wrong with it.
    let gone = showing(access.clone(), &authority, "no-such");
    fails(&gone, LossKind::Unusable, "no-such.crt").await;
    let mut half = access.clone();
    half.uplink.client_key_file = None;
    fails(&half, LossKind::Unusable, "set both or neither").await;
    open(&mut mqtt, &access).await;
    for (file, key) in [
        ("gw.crt", "uplink.client_cert_file"),
        ("gw.key", "uplink.client_cert_file"),
        ("ca.crt", "uplink.ca_file"),
    ] {
        let good = fs::read(authority.path(file)).unwrap();
        for bad in [&b""[..], b"nonsense", &good[..good.len() / 2]] {
            fs::write(authority.path(file), bad).unwrap();
            open(&mut mqtt, &access).await;
            let troubles = mqtt.troubles();
            assert_eq!(troubles.len(), 1, "{file}: {troubles:?}");
            assert_eq!(troubles[0].key, key);
            assert!(troubles[0].reason.contains(file), "{troubles:?}");
        }
        fs::remove_file(authority.path(file)).unwrap();
        open(&mut mqtt, &access).await;
        assert_eq!(mqtt.troubles().len(), 1, "{file}");
        fs::write(authority.path(file), good).unwrap();
        open(&mut mqtt, &access).await;
        assert!(mqtt.troubles().is_empty(), "{:?}", mqtt.troubles());
    }
    // A private key never shows in what is told.
    fs::write(authority.path("gw.key"), "secret-of-the-gateway").unwrap();
    open(&mut mqtt, &access).await;
    assert!(!format!("{:?}{mqtt:?}", mqtt.troubles()).contains("secret-of-the-gateway"));
}

#[tokio::test]
async fn a_broker_at_an_ipv6_address_is_reached_with_tls_and_without() {
    let plain = Mosquitto::at("::1", "allow_anonymous true\n");
    let url = |scheme: &str, port: u16| format!("{scheme}://[::1]:{port}");
    open(&mut Mqtt::new(), &access(&url("mqtt", plain.port))).await;
    let authority = Authority::new("ours");
    authority.issue("server", "IP:::1", 30, 0);
    let tls = Mosquitto::at(
        "::1",
        &format!(
            "allow_anonymous true\ncafile {}\ncertfile {}\nkeyfile {}\n",
            authority.path("ca.crt").display(),
            authority.path("server.crt").display(),
            authority.path("server.key").display(),
        ),
    );
    let mut access = trusting(&tls, &authority.ca());
    access.uplink.url = Some(url("mqtts", tls.port));
    open(&mut Mqtt::new(), &access).await;
}

#[tokio::test]
async fn a_broker_that_ends_under_tls_is_a_close() {
    let authority = Authority::new("ours");
    authority.issue("server", HERE, 30, 0);
    let mut broker = broker(&authority, "server", "");
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &trusting(&broker, &authority.ca())).await;
    broker.kill();
    assert_eq!(lost(&mut mqtt).await.kind, LossKind::Closed);
}
