//! The log: groups, the lanes that they stand in, and how they are read again.

pub(crate) mod lane;
pub(crate) mod log_space;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod replay_report;
pub(crate) mod scan;
pub(crate) mod tail;
