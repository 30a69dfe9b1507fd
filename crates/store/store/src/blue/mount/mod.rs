//! Making, mounting, moving, checking and repairing whole stores.

pub(crate) mod claims;
pub(crate) mod fsck;
pub(crate) mod mkfs;
pub(crate) mod mounting;
pub(crate) mod move_log;
pub(crate) mod repair;
pub(crate) mod replay;
