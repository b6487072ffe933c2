//! Floor 1: bytes and text into the words of `domain`, and back.

pub mod message;
pub mod record;
pub mod topic;
