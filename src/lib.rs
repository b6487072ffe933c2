//! sitebeat: pings the devices of a GSM site, judges them, keeps the record.
//!
//! The rooms of the house stand on floors; a room knows rooms on lower floors
//! only, and `tests/floors.rs` fails on any other arrow. `ARCHITECTURE.md` tells
//! how a ping reply walks through them.

pub mod app;
pub mod board;
pub mod broker;
pub mod clock;
pub mod config;
pub mod domain;
pub mod edge;
pub mod fault;
pub mod ping;
pub mod store;
pub mod web;
pub mod wire;
