//! Floor 0: the words and rules of the field.
//!
//! Pure: no clock, disk, network, async or serialisation. `now` is an argument.
//! The rooms above translate bytes and text into these words and carry out
//! what the rules here decide.

pub mod daily;
pub mod day;
pub mod device;
pub mod event;
pub mod heartbeat;
pub mod instant;
pub mod outbox;
pub mod phase;
pub mod retry;
pub mod size;
pub mod status;
pub mod terms;
pub mod trust;
