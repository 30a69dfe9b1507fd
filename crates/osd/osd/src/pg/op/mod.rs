//! What clients ask of a PG. `write` shows the whole path of a write, and `read` that of everything else.

pub(crate) mod exec;
pub(crate) mod extra;
pub(crate) mod list;
pub(crate) mod object;
pub(crate) mod pipeline;
mod read;
pub(crate) mod served;
pub(crate) mod snaps;
pub(crate) mod sparse;
pub(crate) mod usage;
mod write;
