//! The testbed controller: one folder holds one local cluster. It makes the stores, starts the processes pinned
//! as planned, waits until every PG is active, reports their state, and stops and removes them.
//!
//! It never leaves a process behind: a start that fails ends what it started, and a process is known by pid and
//! start time, so that a stranger with a recycled pid is never signalled. It never removes a file that it did
//! not make, and touches no device that was not named.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the controller runs outside the reactors: it deals in files, processes and wall-clock limits"
)]

mod add_remove;
mod addresses;
mod auth;
mod ceph;
pub mod confine;
mod daemons;
pub mod drive;
mod error;
mod exposure;
mod files;
mod folder;
mod harm;
mod join;
mod layout;
pub mod neighbour;
mod network;
mod one_by_one;
pub mod output;
pub mod peer;
mod places;
mod plan;
pub mod precondition;
pub mod process;
mod real_mon;
pub mod relay;
mod settings;
pub mod slice;
pub mod spec;
mod status;
mod testbed;

pub use auth::{access, access_of_osd, mon_keyring};
pub use daemons::{Lost, Stopped};
pub use drive::part_at;
pub use error::{Result, TestbedError};
pub use files::{
    end_of, free_bytes, fresh_uuid, last_lines, read_json, remove_file, write_json, write_whole,
};
pub use folder::{BedKind, Folder, Testbed, load, refuse_used_folder};
pub use harm::{Connection, cut, why_no_cuts};
pub use join::{JoinPlan, JoinWish};
pub use layout::{Daemon, Layout};
pub use output::{json_text, note, print};
pub use places::{
    db_place, link, make_empty, migrate_db, planned_wal, remove_old_wal, settle_wal, wal_places,
};
pub use plan::{POOL_NAME, Plan, check_wipe};
pub use process::{Ended, ProcessId, end_recorded, run_bounded};
pub use spec::{DirArgs, OrAuto, Tuning, TuningWish, Wish};
pub use status::{Fullness, MonStatus, OsdStatus, PgCounts, Space, Status, ask_osd, damaged, pgs_of, status};
pub use testbed::{Event, StartOptions, Started, http_addr, mon_addrs, progress_line, require_plan};
