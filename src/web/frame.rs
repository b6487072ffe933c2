//! What every page has around its own matter: heading, age of the data,
//! banners, links.
//!
//! Floor 3. Each page's handler makes a [`Frame`] from the same look at the
//! picture as its own values.

use std::time::Duration;

use askama::Template;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use super::access::Caller;
use super::assets;
use super::fault::Fault;
use super::node;
use super::text::{ago, long_stamp, several};
use crate::board::{Gateway, Picture};
use crate::domain::instant::Wall;

/// How old the scheduler's last turn may be before the page says that what it
/// shows is no longer live.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Seconds between two refreshes of a page that is cheap to make.
const EVERY_S: u32 = 5;

/// Sentences shown of one list; the rest is counted.
const ITEMS_MAX: usize = 20;

/// What stands around a page.
#[derive(Debug)]
pub(super) struct Frame {
    /// Prefix of every address.
    pub(super) base: String,
    /// Name of the site.
    pub(super) site: String,
    /// Which link of the heading is the page itself.
    pub(super) here: Here,
    /// When the values were read; empty where nothing is shown.
    pub(super) as_of: String,
    /// How old the newest heartbeat is.
    pub(super) newest: String,
    /// Seconds between two refreshes by the script; 0: none.
    pub(super) every_s: u32,
    /// What has to be said first.
    pub(super) banners: Vec<Banner>,
    /// Version of the program.
    pub(super) version: &'static str,
    /// Addresses of our assets, less the prefix.
    pub(super) assets: &'static assets::Links,
}

/// The pages that the heading links to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The overview.
    Status,
    /// One device.
    Device,
    /// The days.
    History,
    /// The event log.
    Events,
    /// The gateway.
    Node,
    /// None of them.
    Nowhere,
}

/// Something to be said before anything else.
#[derive(Debug, Default)]
pub(super) struct Banner {
    /// `info`, `warn` or `bad`.
    pub(super) class: &'static str,
    /// In bold.
    pub(super) title: String,
    /// One sentence.
    pub(super) text: String,
    /// The cases, folded.
    pub(super) items: Vec<String>,
}

impl Banner {
    /// Reasons come from many rooms, with and without a full stop.
    pub(super) fn ended(mut self) -> Self {
        if self.text.ends_with(|last: char| !".!?".contains(last)) {
            self.text.push('.');
        }
        self
    }
}

/// An error as a page.
#[derive(Debug, Template)]
#[template(path = "error.html")]
pub(super) struct ErrorPage<'a> {
    pub(super) frame: Frame,
    pub(super) status: u16,
    pub(super) title: &'a str,
    pub(super) detail: &'a str,
    /// What the link to the overview says.
    pub(super) way: &'static str,
}

impl Frame {
    /// The frame around a page made at `now` from `picture`.
    pub(super) fn new(caller: &Caller, picture: &Picture, now: Wall, here: Here) -> Self {
        let gateway = &picture.gateway;
        let newest = picture
            .devices
            .values()
            .filter_map(|row| row.track.last_ping_at)
            .max();
        let site = [&gateway.site_name, &gateway.site];
        let site = site.into_iter().find(|name| !name.is_empty());
        Self {
            site: site.map_or_else(|| "sitebeat".into(), Clone::clone),
            here,
            every_s: if here == Here::Nowhere { 0 } else { EVERY_S },
            as_of: long_stamp(now),
            newest: newest.map_or_else(
                || "no heartbeat yet".into(),
                |at| format!("newest heartbeat {}", ago(at, now)),
            ),
            banners: banners(caller, gateway, now)
                .into_iter()
                .map(Banner::ended)
                .collect(),
            ..Self::bare(caller)
        }
    }

    /// A frame that tells nothing about the site, for those who may not read.
    pub(super) fn bare(caller: &Caller) -> Self {
        Self {
            base: caller.in_force.web.base_path.clone(),
            site: "sitebeat".into(),
            here: Here::Nowhere,
            as_of: String::new(),
            newest: String::new(),
            every_s: 0,
            banners: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
            assets: assets::links(),
        }
    }
}

/// The page as an answer.
pub(super) fn answer(page: &impl Template, bytes_about: usize) -> Result<Response, Fault> {
    let mut text = String::with_capacity(bytes_about);
    page.render_into(&mut text).map_err(|fault| {
        tracing::error!(error = %fault, "a page cannot be rendered");
        Fault::of_status(axum::http::StatusCode::INTERNAL_SERVER_ERROR)
    })?;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// That nothing can be kept, or will soon be refused.
fn store_trouble(gateway: &Gateway) -> Option<Banner> {
    let store = &gateway.store;
    let (class, title, text) = match &store.failing {
        Some(failing) => {
            let since = long_stamp(failing.since);
            let title = format!("Nothing can be kept since {since}:");
            ("bad", title, failing.reason.clone())
        }
        None => (
            "warn",
            "The store is nearly full:".into(),
            store.figures.nears_limit()?,
        ),
    };
    let items = Vec::new();
    Some(Banner {
        class,
        title,
        text,
        items,
    })
}

fn banners(caller: &Caller, gateway: &Gateway, now: Wall) -> Vec<Banner> {
    let mut banners = Vec::new();
    if let Some(sentence) = &gateway.simulated {
        banners.push(Banner {
            class: "info",
            title: "Simulated.".into(),
            text: sentence.clone(),
            items: Vec::new(),
        });
    }
    banners.extend(stalled(gateway, now));
    banners.extend(undated(gateway));
    banners.extend(store_trouble(gateway));
    banners.extend(node::uplink::banner(&gateway.uplink, now));
    if let Some(error) = &gateway.config.last_error {
        let since = long_stamp(gateway.config.loaded_at);
        banners.push(Banner {
            class: "bad",
            title: format!("The newest configuration was refused; that of {since} is in force:"),
            text: error.clone(),
            items: Vec::new(),
        });
    }
    banners.extend(listed(
        "bad",
        ("inventory row was refused", "inventory rows were refused"),
        &gateway.config.refused_rows,
    ));
    banners.extend(listed(
        "warn",
        (
            "fault in the store was mended",
            "faults in the store were mended",
        ),
        &gateway.store.mended,
    ));
    if is_open_to_all(caller) {
        banners.push(Banner {
            class: "warn",
            title: "Anyone here can read this page.".into(),
            text: "It listens beyond this machine and web.viewer_token is not set.".into(),
            items: Vec::new(),
        });
    }
    banners.extend(listed(
        "warn",
        (
            "warning about the configuration",
            "warnings about the configuration",
        ),
        &gateway.config.warnings,
    ));
    banners
}

/// That nobody knows the time.
fn undated(gateway: &Gateway) -> Option<Banner> {
    let distrust = gateway.clock.distrust?;
    Some(Banner {
        class: "bad",
        title: "The clock of this gateway is not set: times are counted from the start, nothing \
                is written until it is."
            .into(),
        text: distrust.sentence().into(),
        items: Vec::new(),
    })
}

fn stalled(gateway: &Gateway, now: Wall) -> Option<Banner> {
    let turned_at = gateway.probe.turned_at?;
    (now.since(turned_at) > STALLED_AFTER).then(|| Banner {
        class: "bad",
        title: "Probing stands still.".into(),
        text: format!(
            "The scheduler last turned {}, so what follows is old.",
            ago(turned_at, now)
        ),
        items: Vec::new(),
    })
}

fn listed(class: &'static str, (one, many): (&str, &str), sentences: &[String]) -> Option<Banner> {
    if sentences.is_empty() {
        return None;
    }
    if let [only] = sentences {
        return Some(Banner {
            class,
            title: format!("{}:", several(1, one, many)),
            text: only.clone(),
            items: Vec::new(),
        });
    }
    let mut items: Vec<String> = sentences.iter().take(ITEMS_MAX).cloned().collect();
    if sentences.len() > ITEMS_MAX {
        items.push(format!("and {} more", sentences.len() - ITEMS_MAX));
    }
    Some(Banner {
        class,
        title: format!("{}.", several(sentences.len(), one, many)),
        text: String::new(),
        items,
    })
}

fn is_open_to_all(caller: &Caller) -> bool {
    let web = &caller.in_force.web;
    web.viewer_token.is_none() && !web.listen.ip().is_loopback()
}
