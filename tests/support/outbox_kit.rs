//! Short words for tests of the outbox.

use serde_json::Value;
use sitebeat::domain::daily::SiteSummary;
use sitebeat::domain::day::Day;
use sitebeat::domain::event::{Change, Failure, FailureCode, News, Stage};
use sitebeat::domain::outbox::Class;
use sitebeat::store::Store;
use sitebeat::store::outbox::Parcel;

use crate::store_kit::{at, event, notice};

const DAY: i64 = 86_400_000;

/// No limit of numbers or bytes.
pub(crate) const ALL: (usize, usize) = (usize::MAX, usize::MAX);

pub(crate) fn miss(n: usize, millis: i64) -> Change {
    Change::Notice(notice(n, millis))
}

pub(crate) fn site(millis: i64) -> Change {
    let day = Day::of(at(millis)).unwrap();
    let news = News::SiteSummarised(Box::new(SiteSummary::of(day, [])));
    Change::Notice(event(None, millis, news))
}

pub(crate) fn trouble(millis: i64, message: &str) -> Change {
    let failure = Failure {
        stage: Stage::Store,
        code: FailureCode::RawLost,
        message: message.into(),
        retryable: true,
        failed_at: at(millis),
    };
    Change::Notice(event(None, millis, News::Failed(failure)))
}

pub(crate) fn commit(store: &Store, changes: &[Change]) -> Vec<u64> {
    store.commit(changes, at(0)).unwrap()
}

pub(crate) fn read(store: &Store, after: u64) -> Vec<Parcel> {
    store.read_outbox(after, ALL, at(9 * DAY)).unwrap()
}

pub(crate) fn json(parcel: &Parcel) -> Value {
    serde_json::from_str(&parcel.json).unwrap()
}

/// Each parcel in short: `7` for an event, `3-6` for a gap; checks that each names
/// the one before it.
pub(crate) fn in_short(parcels: &[Parcel], after: Option<u64>) -> String {
    let mut previous = after;
    let words = parcels.iter().map(|parcel| {
        let json = json(parcel);
        assert_eq!(json["meta"]["seq"], parcel.seq);
        assert_eq!(json["meta"]["prev_seq"].as_u64(), previous, "{json}");
        previous = Some(parcel.seq);
        if json["error"]["error_code"] != "OUTBOX_GAP" {
            return parcel.seq.to_string();
        }
        assert_eq!(json["error"]["failed_stage"], "uplink");
        assert_eq!(json["error"]["to"], parcel.seq);
        assert_eq!((parcel.class, parcel.device), (Class::Failed, None));
        format!("{}-{}", json["error"]["from"], parcel.seq)
    });
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn bytes(store: &Store) -> u64 {
    store.outbox().backlog.total().bytes
}

/// Events that wait, by class.
pub(crate) fn waiting(store: &Store) -> [u64; 4] {
    store.outbox().backlog.loads.map(|load| load.events)
}
