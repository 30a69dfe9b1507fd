//! The cluster's state as text and as JSON, in the shapes and with the names in which Ceph 16's tools print it, so that
//! what reads those reads these.

pub(crate) mod autoscale;
pub(crate) mod cluster;
pub(crate) mod crush;
pub(crate) mod dump;
pub(crate) mod health;
pub(crate) mod inventory;
pub(crate) mod osd;
pub(crate) mod pg;
pub(crate) mod pools;
pub(crate) mod service;
mod share;
pub(crate) mod table;
pub(crate) mod xml;

pub(crate) use dump::time;
