//! The command line as it is written; `wish` turns it into what the testbed understands.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use carmine_testbed::Wish;
use carmine_testbed::confine::{ConfineCpus, ConfineKind};
use carmine_topology::{CpuList, Strategy};
use carmine_types::StoreKind;
use clap::{Args, Parser, Subcommand};

use crate::cmd::{bench, compare, doctor, peer, report, store, sweep, table, top, up};
use crate::tuning::TuningArgs;

/// A prototype of Ceph's OSD data path: shard-per-core reactors, measured in IOPS per core.
#[derive(Parser)]
#[command(name = "carmine", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a testbed: make it if the folder is empty, start it again if it is stopped, or those of its processes that have died
    Up(UpArgs),
    /// Show the state of a testbed
    Status(StatusArgs),
    /// Start OSDs of a running testbed again, such as one that died; those that run are stopped first
    Restart(RestartArgs),
    /// Stop a testbed; its data stays
    Down(DirArgs),
    /// Stop a testbed and remove its data
    Destroy(DirArgs),
    /// Load a testbed and measure it
    Bench(bench::BenchArgs),
    /// Measure the drive and the messenger without an OSD: what `bench --baseline` compares with
    Baseline(crate::cmd::baseline::BaselineArgs),
    /// The object store alone, without an OSD
    Store(store::StoreArgs),
    /// Run a plan of many points in a fair order and archive them: the studies as one command
    Sweep(sweep::SweepArgs),
    /// Print results of `bench --json` side by side
    Table(table::TableArgs),
    /// Compare two runs, or two arms of one: accepted, or rejected for a regression
    Compare(compare::CompareArgs),
    /// Write the report of archived runs: one page with charts, and the same tables as text
    Report(report::ReportArgs),
    /// Watch a running testbed: CPUs, operations, latency, queues, second by second
    Top(top::TopArgs),
    /// Look for settings of this machine that would spoil a measurement; nothing is changed
    Doctor(doctor::DoctorArgs),
    /// A real Ceph on loopback, to measure beside
    Peer(peer::PeerArgs),
    /// Print who would sit on which CPU; nothing is started
    Plan(PlanArgs),
    /// Print any Ceph OSDMap file, and the PG mappings, as osdmaptool does
    Osdmap(OsdmapArgs),
    /// Show the version, and how this program was built
    Version(VersionArgs),
    /// Ask an OSD a question of its admin protocol, such as '{"prefix":"status"}', and print the answer
    #[command(hide = true)]
    Admin(AdminArgs),
}

/// Where a testbed lives.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirArgs {
    /// Folder of the testbed
    #[arg(long, value_name = "FOLDER", default_value = "carmine-testbed")]
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    pub(crate) wish: RawArgs,
    #[command(flatten)]
    pub(crate) precondition: up::PreconditionArgs,
    /// Seconds until every PG must be active
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[derive(Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Numbers of the OSDs [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) osd: Vec<u32>,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[derive(Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    pub(crate) wish: RawArgs,
    /// Plan for another machine: a description file, or sockets x cores x threads such as 2x28x2
    #[arg(long, value_name = "FILE|SHAPE")]
    pub(crate) topology: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct OsdmapArgs {
    /// A file with a binary OSDMap
    pub(crate) file: PathBuf,
    /// Print the mapping of every PG
    #[arg(long)]
    pub(crate) pgs_dump: bool,
    /// Folder of a testbed (not used: FILE names the map)
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct VersionArgs {
    /// Compiler, flags, RocksDB, allocator
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Folder of a testbed (not used)
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Number of the OSD
    #[arg(long)]
    pub(crate) osd: u32,
    /// The question, as JSON
    pub(crate) question: String,
}

/// Options that make a plan, just as they were given.
#[derive(Args)]
pub(crate) struct RawArgs {
    /// Number of OSD processes [default: 1]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    osds: Option<u32>,
    /// Reactors (pinned threads) of each OSD [default: 1]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    reactors: Option<u16>,
    /// Object store: cyan (memory), null (forgets), blue (file or device) [default: blue]
    #[arg(long, value_name = "STORE", help_heading = "Cluster")]
    store: Option<StoreKind>,
    /// Replicas [default: 3, or the number of OSDs if that is less]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    size: Option<u8>,
    /// Replicas that must be there to take writes [default: the larger half of --size]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    min_size: Option<u8>,
    /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pgs: Option<u32>,
    /// Address to listen on, with or without the monitor's port [default: 127.0.0.1]
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_addr, help_heading = "Cluster")]
    addr: Option<(IpAddr, u16)>,

    /// OSDs on each device (or file): each has a slice of it, and locks that [default: 1]
    #[arg(long, value_name = "N", help_heading = "Storage")]
    osds_per_device: Option<u32>,
    /// Block devices, one per OSD (or per group of --osds-per-device); without them plain files in the folder
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    devs: Vec<PathBuf>,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    /// Size of each OSD's block file, such as 8G [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
    osd_size: Option<u64>,
    /// Folder, on another drive perhaps, in which each OSD's RocksDB gets a folder [default: in the testbed's]
    #[arg(long, value_name = "FOLDER", value_parser = parse_path, help_heading = "Storage")]
    db_dir: Option<PathBuf>,
    /// Devices or files for the OSDs' logs, one per OSD, or one folder for all, on another drive perhaps [default: each
    /// beside its data]
    #[arg(long, value_name = "PATH,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    wal_dev: Vec<PathBuf>,
    /// Do not write the block files through: quick, but first writes also pay the file system
    #[arg(long, help_heading = "Storage")]
    sparse: bool,
    /// Write zeros over all of each device of --devs and --wal-dev, which takes as long as writing the drive full. Without this a
    /// drive is told to forget what it has (discard, or else write-zeroes), and where it cannot, only the labels are written.
    /// For volumes whose first write of a block is slower than the next one (thinly provisioned ones, many clouds'), and
    /// to leave nothing of old data; for the steady state of a flash drive take --precondition
    #[arg(long, help_heading = "Storage")]
    zero: bool,
    #[command(flatten)]
    tuning: TuningArgs,
    /// Memory of each OSD, such as 2G [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
    osd_memory: Option<u64>,

    /// Placement of reactors: default (consecutive CPUs), osd (within a socket), socket (spread), l3 [default: default]
    #[arg(long, value_name = "STRATEGY", help_heading = "CPUs")]
    balance: Option<Strategy>,
    /// CPUs of the reactors, such as 0-7,16 [default: what clients and aliens leave]
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    cpus: Option<CpuList>,
    /// CPUs of clients and of the monitor
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    client_cpus: Option<CpuList>,
    /// CPUs of alien threads (blocking work) [default: each OSD's reactor CPUs]
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    alien_cpus: Option<CpuList>,
    /// Alien threads of each OSD [default: 2]
    #[arg(long, value_name = "N", help_heading = "CPUs")]
    alien_threads: Option<u16>,
    /// What idle reactors do: poll, adaptive, adaptive:MICROSECONDS, sleep [default: adaptive]
    #[arg(long, value_name = "POLICY", help_heading = "CPUs")]
    poll: Option<String>,
    /// Let reactors, aliens and clients share CPUs
    #[arg(long, help_heading = "CPUs")]
    overprovisioned: bool,
    /// Confine each OSD: cpuset (so many CPUs and no others: reactors are pinned to the first, aliens have the rest) or
    /// quota (so much CPU time per 100 ms, as a container's limit: reactors keep their pins, and the kernel stops the OSD
    /// when the time is used up; needs a writable cgroup); kept for later starts until `none` is given
    #[arg(long, value_name = "HOW", help_heading = "CPUs")]
    confine: Option<ConfineKind>,
    /// CPUs of each confined OSD, such as 2 (with quota also 1.5), or none for no limit
    #[arg(long, value_name = "N|none", help_heading = "CPUs")]
    confine_cpus: Option<ConfineCpus>,

    /// Start each OSD by this command, such as 'perf record -g -o /tmp/perf.{osd}' or 'numactl -m 0': {osd} becomes the
    /// OSD's number, its folder is /, its output goes to the OSD's log; kept for later starts until `none` is given
    #[arg(long, value_name = "COMMAND", help_heading = "Processes")]
    osd_wrap: Option<String>,
    /// Variable of the OSDs' environment; repeatable; kept for later starts until others or `none` are given
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Processes")]
    osd_env: Vec<String>,
}

impl RawArgs {
    /// What the testbed is asked for.
    pub(crate) fn wish(self) -> Wish {
        Wish {
            osds: self.osds,
            reactors: self.reactors,
            store: self.store,
            devices: self.devs,
            osds_per_device: self.osds_per_device,
            force_wipe: self.force_wipe,
            osd_size_bytes: self.osd_size,
            db_dir: self.db_dir,
            wal_devs: self.wal_dev,
            sparse: self.sparse,
            zero: self.zero,
            tuning: self.tuning.wish(),
            size: self.size,
            min_size: self.min_size,
            pgs: self.pgs,
            balance: self.balance,
            cpus: self.cpus,
            client_cpus: self.client_cpus,
            alien_cpus: self.alien_cpus,
            alien_threads: self.alien_threads,
            poll: self.poll,
            osd_memory_bytes: self.osd_memory,
            addr: self.addr,
            overprovisioned: self.overprovisioned,
            confine: self.confine,
            confine_cpus: self.confine_cpus,
            osd_wrap: self.osd_wrap,
            osd_env: self.osd_env,
        }
    }
}

/// Bytes with a unit of 1024: `4096`, `64K`, `512M`, `8G`, `1T` (also `GiB`, `GB`).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = trimmed[digits.len()..].to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("unit `{unit}`: take K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| "write a size as 4096, 64K, 512M or 8G".to_string())?;
    number.checked_mul(1 << shift).filter(|b| *b < 1 << 60).ok_or_else(|| "too large".to_string())
}

/// A path from here, made absolute: daemons that open it are elsewhere, and a later command may come from elsewhere.
pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|e| e.to_string())
}

fn parse_addr(text: &str) -> Result<(IpAddr, u16), String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((ip, 0));
    }
    let sock: SocketAddr = text.parse().map_err(|_| "write an IP address, or IP:PORT".to_string())?;
    Ok((sock.ip(), sock.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("8G"), Ok(8 << 30));
        assert_eq!(parse_bytes("8GiB"), Ok(8 << 30));
        assert_eq!(parse_bytes("1tb"), Ok(1 << 40));
        for bad in ["", "G", "8X", "-1", "1.5G", "99999999999T", "ü"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_addr("10.0.0.1"), Ok(("10.0.0.1".parse().unwrap(), 0)));
        assert_eq!(parse_addr("[::1]:3300"), Ok(("::1".parse().unwrap(), 3300)));
        assert!(parse_addr("host").is_err());
    }
}
