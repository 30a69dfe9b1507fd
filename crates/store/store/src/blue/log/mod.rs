//! The log: groups, the lanes that hold them, and reading them back.

pub(crate) mod lane;
pub(crate) mod record;
pub(crate) mod scan;
