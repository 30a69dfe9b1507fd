//! What the user asked for, before it is a plan: every option as it was given, or not given.

use std::net::IpAddr;
use std::path::PathBuf;

use carmine_topology::{CpuList, Strategy};
use carmine_types::StoreKind;

use crate::confine::{ConfineCpus, ConfineKind};
use crate::tuning::TuningWish;

/// The options of `up` and `plan` as given; `None` (or an empty list, or false) is "not given".
#[derive(Clone, Default, Debug)]
pub struct Wish {
    /// Number of OSD processes.
    pub osds: Option<u32>,
    /// Reactors of each OSD.
    pub reactors: Option<u16>,
    /// Object store.
    pub store: Option<StoreKind>,
    /// Block devices, one per OSD.
    pub devices: Vec<PathBuf>,
    /// OSDs that share one device, or one file.
    pub osds_per_device: Option<u32>,
    /// Overwrite devices that are not blank.
    pub force_wipe: bool,
    /// Size of each OSD's block file, bytes.
    pub osd_size_bytes: Option<u64>,
    /// Folder, perhaps on another drive, in which each OSD's RocksDB gets a folder.
    pub db_dir: Option<PathBuf>,
    /// Devices or files for the logs of the OSDs, one per OSD, or one folder for all.
    pub wal_devs: Vec<PathBuf>,
    /// Do not write the block files through.
    pub sparse: bool,
    /// Write block devices through.
    pub zero: bool,
    /// Settings of `blue`.
    pub tuning: TuningWish,
    /// Replicas.
    pub size: Option<u8>,
    /// Replicas that must be there to take writes.
    pub min_size: Option<u8>,
    /// PGs of the pool `bench`.
    pub pgs: Option<u32>,
    /// Placement of reactors.
    pub balance: Option<Strategy>,
    /// CPUs of reactors.
    pub cpus: Option<CpuList>,
    /// CPUs of clients and of the monitor.
    pub client_cpus: Option<CpuList>,
    /// CPUs of alien threads.
    pub alien_cpus: Option<CpuList>,
    /// Alien threads per OSD.
    pub alien_threads: Option<u16>,
    /// Poll policy of the reactors, as `carmine_reactor::PollPolicy` reads it.
    pub poll: Option<String>,
    /// Memory of each OSD, bytes.
    pub osd_memory_bytes: Option<u64>,
    /// Address to listen on, and the monitor's port (0: any).
    pub addr: Option<(IpAddr, u16)>,
    /// Allow CPUs to be shared.
    pub overprovisioned: bool,
    /// How the OSDs are confined; goes with `confine_cpus`.
    pub confine: Option<ConfineKind>,
    /// CPUs that each OSD is confined to.
    pub confine_cpus: Option<ConfineCpus>,
    /// Command line that each OSD is started by; `none` takes an earlier one away.
    pub osd_wrap: Option<String>,
    /// `NAME=VALUE` for the OSDs' environment; `none` takes earlier ones away.
    pub osd_env: Vec<String>,
}
