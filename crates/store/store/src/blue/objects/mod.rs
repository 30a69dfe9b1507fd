//! Objects in memory: onodes, their cache, and what transactions do to them.

pub(crate) mod apply;
pub(crate) mod cache;
pub(crate) mod clone;
pub(crate) mod dirty;
pub(crate) mod fetch;
pub(crate) mod omap;
pub(crate) mod onode;
#[cfg(test)]
mod pg_log_tests;
pub(crate) mod reads;
#[cfg(test)]
mod split_log_tests;
