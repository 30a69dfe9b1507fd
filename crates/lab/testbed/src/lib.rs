//! The testbed controller: one folder holds one local cluster. It makes the stores, starts the processes pinned
//! as planned, waits until every PG is active, tells their state, stops and removes them.
//!
//! It never leaves a process behind: a start that fails ends what it started, and a process is known by pid and
//! start time, so that a stranger with a recycled pid is never signalled. It never removes a file that it did
//! not make, and touches no device that was not named.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the controller runs outside the reactors: it deals in files, processes and wall-clock limits"
)]

mod bounded;
pub mod confine;
mod daemons;
pub mod drive;
mod error;
mod files;
mod folder;
mod layout;
pub mod neighbour;
pub mod output;
pub mod peer;
mod places;
mod plan;
pub mod precondition;
mod probe;
pub mod process;
mod settings;
pub mod slice;
pub mod spec;
mod status;
mod testbed;
mod wrap;

pub use bounded::{Ended, end_recorded, run_bounded};
pub use daemons::Stopped;
pub use error::{Result, TestbedError};
pub use files::{fresh_uuid, tail, write_json, write_whole};
pub use folder::{Bed, FolderPlan, Ruin, refuse_used_folder, running};
pub use layout::{Daemon, DaemonPrograms, Layout};
pub use places::{
    DbMove, begin_wal_move, db_place, migrate_db, planned_wal, put_db, put_wal, remove_old_wal, settle_wal,
    wal_places,
};
pub use plan::{PLAN_FORMAT, POOL_NAME, Plan, PoolPlan, check_wipe};
pub use spec::{OrAuto, TestbedSpec, Tuning, TuningWish, Wish};
pub use status::{Fullness, OsdStatus, PgCounts, Space, Status, ask_osd, status};
pub use testbed::{
    Event, StartOptions, Testbed, http_addr, load_plan, mon_addr, progress_line, require_plan,
};
