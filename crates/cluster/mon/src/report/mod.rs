//! The cluster's state as text and as JSON, in the shapes and with the names in which Ceph 16's tools print it, so that
//! what reads those reads these.

pub(crate) mod crush;
pub(crate) mod df;
pub(crate) mod dump;
pub(crate) mod health;
pub(crate) mod mon;
pub(crate) mod osd_df;
pub(crate) mod osd_map;
pub(crate) mod osd_metadata;
pub(crate) mod pg;
pub(crate) mod pg_dump;
pub(crate) mod pools;
pub(crate) mod status;
mod table;
pub(crate) mod tree;
mod units;
