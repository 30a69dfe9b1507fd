//! The testbed as the doctor is told of it.

use std::path::PathBuf;

use carmine_topology::CpuList;

use crate::CpuTimes;

/// Where a measurement would run, and how the program was built.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `/sys`, `/proc` and `/etc` are; empty for `/`, another folder for captured trees.
    pub root: PathBuf,
    /// CPUs of reactors; empty if there is no testbed.
    pub reactor_cpus: CpuList,
    /// CPUs of load generators.
    pub client_cpus: CpuList,
    /// Names of the drives that hold data (`nvme0n1`, as in `/sys/block`); empty: all of the machine.
    pub drives: Vec<String>,
    /// Folders that hold stores.
    pub places: Vec<NeededSpace>,
    /// CPU time at two moments, some hundred milliseconds apart; `None` leaves the topic out.
    pub cpu_times: Option<[CpuTimes; 2]>,
    /// Processes whose CPU time is no other work: this program's, and the testbed's.
    pub own_pids: Vec<u32>,
    /// How this program was built; `None` leaves the topic out.
    pub build: Option<Build>,
    /// Options of the testbed that are not their defaults: name, value, default.
    pub changed: Vec<(String, String, String)>,
}

/// A folder that must have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededSpace {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes that are still to be written there; 0 if all is there.
    pub needed_bytes: u64,
}

/// How this program was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// `release` or `debug`.
    pub profile: String,
    /// Debug assertions are compiled in.
    pub assertions: bool,
    /// Version of RocksDB; `None` if it was left out.
    pub rocksdb: Option<String>,
    /// Flags of RocksDB's compiler beyond the profile's.
    pub rocksdb_flags: String,
    /// The memory allocator.
    pub allocator: String,
}
