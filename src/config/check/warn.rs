//! What is allowed but looks wrong.
//!
//! Floor 1. Part of `config::check`; `app` logs it, the page shows it.

use crate::config::layer::Written;
use crate::config::settings::{ProbeRules, Settings};

/// One sentence per matter.
pub(super) fn about(settings: &Settings, written: &Written) -> Vec<String> {
    let mut warnings = Vec::new();
    let web = &settings.web;
    if !web.listen.ip().is_loopback() && web.viewer_token.is_none() {
        let changes = if web.admin_token.is_some() {
            "set web.viewer_token"
        } else {
            "set web.viewer_token, and web.admin_token to allow changes"
        };
        warnings.push(format!(
            "web.listen = {} is reachable from other machines and anyone there can read the page: {changes}",
            web.listen
        ));
    }
    if web.admin_token.is_some() && web.admin_token == web.viewer_token {
        warnings.push(
            "web.admin_token and web.viewer_token are the same: whoever may read may also change"
                .into(),
        );
    }
    if settings.uplink.url.is_some() {
        warnings.push(
            "uplink.url is set, but this version has no uplink: nothing is sent upstream".into(),
        );
    }
    if !settings.path_targets.is_empty() {
        warnings.push(
            "path.targets is set, but this version does not watch the path: nothing is sent to them"
                .into(),
        );
    }
    warnings.extend(never_degraded("probe", &settings.probe));
    for (name, own) in &written.profiles {
        let touches = |key| own.contains_key(key);
        if let Some(rules) = settings.profiles.get(name)
            && (touches("degraded_rtt_ms") || touches("offline_timeout_ms"))
        {
            warnings.extend(never_degraded(&format!("profile.{name}"), rules));
        }
    }
    warnings
}

fn never_degraded(section: &str, rules: &ProbeRules) -> Option<String> {
    let enter = u128::from(rules.status.degraded_rtt_us / 1_000);
    let timeout = rules.offline_timeout.as_millis();
    (enter >= timeout).then(|| {
        format!(
            "{section}: degraded_rtt_ms = {enter} is not below offline_timeout_ms = {timeout}, so no device can be degraded"
        )
    })
}
