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
    warnings.extend(open_secrets(settings));
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

/// A password that goes over the network as it is, unless that is this machine.
fn open_secrets(settings: &Settings) -> Option<String> {
    let uplink = &settings.uplink;
    let rest = uplink.url.as_deref()?.strip_prefix("mqtt://")?;
    let is_here = ["localhost", "127.", "[::1]"]
        .iter()
        .any(|here| rest.starts_with(here));
    (uplink.password.is_some() && !is_here).then(|| {
        "uplink.url is mqtt:// and uplink.password is set: anyone on the way can read it; use mqtts:// \
         and uplink.ca_file"
            .to_owned()
    })
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
