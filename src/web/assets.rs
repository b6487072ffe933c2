//! Style, script and icon: compiled in, served under a name that changes with
//! their content.
//!
//! Floor 3. Pages link to [`links`]; a browser asks once and keeps what it got.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use super::fault::Fault;
use crate::domain::phase;

/// Addresses of the assets, less the base path.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icon: String,
}

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const STYLE: Asset = Asset {
    name: "sitebeat.css",
    kind: "text/css; charset=utf-8",
    text: include_str!("../../static/sitebeat.css"),
};

const SCRIPT: Asset = Asset {
    name: "live.js",
    kind: "text/javascript; charset=utf-8",
    text: include_str!("../../static/live.js"),
};

const ICON: Asset = Asset {
    name: "icon.svg",
    kind: "image/svg+xml",
    text: include_str!("../../static/icon.svg"),
};

impl Asset {
    fn mark(&self) -> String {
        format!("{:016x}", phase::hash(self.text))
    }

    fn link(&self) -> String {
        format!("/static/{}?v={}", self.name, self.mark())
    }
}

/// Where the assets are.
pub(super) fn links() -> &'static Links {
    static LINKS: LazyLock<Links> = LazyLock::new(|| Links {
        style: STYLE.link(),
        script: SCRIPT.link(),
        icon: ICON.link(),
    });
    &LINKS
}

/// `GET /static/{name}`
pub(super) async fn asset(
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let asset = [STYLE, SCRIPT, ICON]
        .into_iter()
        .find(|asset| asset.name == name)
        .ok_or_else(|| Fault::of_status(StatusCode::NOT_FOUND))?;
    let mark = asset.mark();
    let tag = format!("\"{mark}\"");
    // Only the address that names this content may be kept without asking.
    let is_marked = uri.query() == Some(&format!("v={mark}"));
    let keep = if is_marked {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let known = headers.get(header::IF_NONE_MATCH);
    let is_known = known
        .and_then(|known| known.to_str().ok())
        .is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let kind = HeaderValue::from_static(asset.kind);
        ([(header::CONTENT_TYPE, kind)], asset.text).into_response()
    };
    let own = response.headers_mut();
    own.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        own.insert(header::ETAG, tag);
    }
    Ok(response)
}
