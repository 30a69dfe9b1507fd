//! Capabilities ("caps"): what a key may do, as a text per service that the monitor keeps. [`OsdCaps`] are those that an OSD
//! finds in a client's ticket, [`MonCaps`] those that a monitor applies to its sessions.
//!
//! Grammar and verdicts are those of Ceph 16.2.15, oddities included: a text that Ceph cannot parse grants nothing there, and one
//! that it can must mean the same here. `tests/` has what a real one answered.
#![forbid(unsafe_code)]

mod cursor;
mod mon;
mod network;
mod osd;
mod pattern;

use std::fmt;

pub use mon::{Args, MonCaps, MonRequest};
pub use osd::{MethodNeed, Need, OsdCaps, Tags, Target, Verdict};

/// A text that is no caps. Its owner gets nothing of what it grants, not even by the part that could be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unparsable {
    /// The text.
    pub text: String,
    /// Where the part begins that could not be parsed, in bytes.
    pub at: usize,
}

impl std::error::Error for Unparsable {}

impl fmt::Display for Unparsable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.text.get(self.at..).unwrap_or_default();
        write!(f, "caps {:?} cannot be parsed from {rest:?} on, and grant nothing", self.text)
    }
}
