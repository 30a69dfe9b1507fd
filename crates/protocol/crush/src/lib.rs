//! Placement exactly as Ceph computes it: object name → PG → OSDs, from the maps of `carmine-wire`.
//!
//! [`do_rule`] is CRUSH itself; [`pg_mapping`] adds what the OSDMap says on top (upmaps, who is up, primary
//! affinity, pg_temp); [`MapView`] is a map with all of that computed once per epoch. [`build`] makes simple maps,
//! [`print`] shows maps in `osdmaptool`'s columns.
//!
//! Invariants: no I/O, no time, no randomness. Nothing here panics, and all of it ends in bounded time, whatever the
//! map says: buckets may be missing, empty, or form cycles.
#![forbid(unsafe_code)]

mod bucket;
pub mod build;
mod changes;
pub mod check;
pub mod classes;
pub mod edit;
mod ln;
mod mapper;
mod placement;
pub mod print;
pub mod tree;
mod view;

pub use build::{build_crush_of_host, build_simple_crush};
pub use carmine_types::rjenkins::{hash32_2, hash32_3, object_hash, stable_mod, str_hash};
pub use mapper::{CrushError, WORK_MAX, do_rule};
pub use placement::{Mapping, OsdList, Placement, pg_mapping};
pub use view::{MapView, PGS_MAX};
