//! The log: groups, the lanes that they stand in, and how they are read again.

pub(crate) mod lane;
pub(crate) mod record;
pub(crate) mod scan;
