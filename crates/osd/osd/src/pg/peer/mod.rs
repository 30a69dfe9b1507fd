//! Who may serve a PG: the state machine's driver, its orders, the leases, and the log that decides what a copy has.

pub(crate) mod follow;
pub(crate) mod lease;
pub(crate) mod log;
pub(crate) mod shell;
pub(crate) mod stat;
