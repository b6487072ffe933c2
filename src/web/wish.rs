//! What a person asks of the flows: probe a device now, read the settings again,
//! summarise a day again.
//!
//! Floor 3. API and forms call this after a [`super::access::Permit`] was given.
//! A wish never waits in line: where the flows are busy, the asker is told.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::oneshot;

use super::Front;
use super::fault::Fault;
use crate::board::command::{Command, NotRolledUp, RolledUp};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Outcome;

/// What an answer may take beyond the timeout of the probe itself.
const SLACK: Duration = Duration::from_secs(5);

/// How long reading the settings may take.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long summarising a day by hand may take: thousands of devices' raw is read.
const ROLLUP_TIME_MAX: Duration = Duration::from_secs(120);

/// Asks the device named `name` now.
pub(super) async fn probe(front: &Front, name: &str) -> Result<(DeviceId, Outcome), Fault> {
    let device: DeviceId = name.parse().map_err(|_| Fault::no_device(name))?;
    let limit = {
        let picture = front.shared.board.look();
        let row = picture.devices.get(&device);
        let row = row.ok_or_else(|| Fault::no_device(name))?;
        if !row.device.enabled {
            return Err(disabled(device));
        }
        row.rules.offline_timeout + SLACK
    };
    let (answer, outcome) = oneshot::channel();
    send(front, Command::Probe { device, answer })?;
    let outcome = wait(outcome, limit)
        .await?
        .ok_or_else(|| disabled(device))?;
    Ok((device, outcome))
}

/// Has configuration and inventory read again.
pub(super) async fn reload(front: &Front) -> Result<(), Fault> {
    let (answer, result) = oneshot::channel();
    send(front, Command::Reload { answer })?;
    wait(result, RELOAD_TIME_MAX)
        .await?
        .map_err(|why| Fault::new(StatusCode::UNPROCESSABLE_ENTITY, why))
}

/// Has a finished day summarised again.
pub(super) async fn rollup(front: &Front, day: Day) -> Result<RolledUp, Fault> {
    let (answer, result) = oneshot::channel();
    send(front, Command::Rollup { day, answer })?;
    wait(result, ROLLUP_TIME_MAX).await?.map_err(|why| {
        let detail = format!("Not now: {why}.");
        match why {
            NotRolledUp::Failed { .. } => Fault::unavailable(detail),
            NotRolledUp::NotOver { .. }
            | NotRolledUp::NoRaw { .. }
            | NotRolledUp::Running { .. } => Fault::new(StatusCode::CONFLICT, detail),
        }
    })
}

fn send(front: &Front, command: Command) -> Result<(), Fault> {
    front
        .shared
        .commands
        .try_send(command)
        .map_err(|_| Fault::unavailable("Too many wishes are waiting; try again shortly."))
}

async fn wait<T>(answer: oneshot::Receiver<T>, limit: Duration) -> Result<T, Fault> {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Fault::unavailable("The gateway is stopping.")),
        Err(_) => Err(Fault::new(
            StatusCode::GATEWAY_TIMEOUT,
            "No answer came in time; what was asked may still happen.",
        )),
    }
}

fn disabled(device: DeviceId) -> Fault {
    Fault::new(
        StatusCode::CONFLICT,
        format!("{device} is not probed: the inventory has it with enabled = false."),
    )
}
