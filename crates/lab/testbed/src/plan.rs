//! The plan of a testbed: everything that was decided, stored in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use carmine_reactor::PollPolicy;
use carmine_topology::{CpuList, Grid, OsdRow, PlanRequest, Topology};
use carmine_types::{OsdId, StoreKind, counted};
use serde::{Deserialize, Serialize};

use crate::confine::Confine;
use crate::error::{Result, failed, usage};
use crate::folder::FolderPlan;
use crate::precondition::Preconditioned;
use crate::slice::{self, SlicePlan};
use crate::spec::{Wish, in_range};
use crate::tuning::Tuning;
use crate::wrap;

/// Number of the plan file's format; another one is refused.
pub const PLAN_FORMAT: u32 = 1;
/// PGs per OSD that are aimed at (as in Ceph).
const PGS_PER_OSD: u32 = 100;
/// Most PGs unless more are asked for.
const PGS_DEFAULT_MAX: u32 = 65_536;
const MIB: u64 = 1 << 20;
/// More than any machine has; sums of sizes stay far from overflow.
const SIZE_MAX_BYTES: u64 = 1 << 50;
/// Below this an OSD's metadata would not fit.
const OSD_SIZE_MIN_BYTES: u64 = 64 * MIB;
const OSD_SIZE_DEFAULT_BYTES: u64 = 4096 * MIB;
/// An OSD with few PGs and one busy client stays below this (`tests/tests/memory.rs`).
const OSD_MEMORY_MIN_BYTES: u64 = 256 * MIB;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 1024 * MIB;
const ALIEN_THREADS_DEFAULT: u16 = 2;
/// Name of the pool that every testbed starts with.
pub const POOL_NAME: &str = "bench";

/// The pool of a testbed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolPlan {
    /// Its name.
    pub name: String,
    /// Replicas.
    pub size: u8,
    /// Replicas needed to take writes (stored, not yet used).
    pub min_size: u8,
    /// Placement groups, a power of two.
    pub pg_num: u32,
}

impl PoolPlan {
    /// The pool of `osds` OSDs; `None`: the default.
    ///
    /// # Errors
    /// A value that is out of range or that the OSDs cannot hold, by its option.
    pub fn new(osds: u32, size: Option<u8>, min_size: Option<u8>, pgs: Option<u32>) -> Result<Self> {
        let size = in_range("pool_size", size.unwrap_or(osds.min(3) as u8))?;
        if u32::from(size) > osds {
            let osds = counted(osds as usize, "OSD");
            return Err(usage!("--size {size}: the testbed has only {osds}; raise --osds or lower --size"));
        }
        let min_size = min_size.unwrap_or(size - size / 2);
        if min_size == 0 || min_size > size {
            return Err(usage!("--min-size {min_size}: take 1 to {size}, which is --size"));
        }
        let pg_num = in_range("pgs", pgs.unwrap_or_else(|| default_pgs(osds, size)))?;
        if !pg_num.is_power_of_two() {
            return Err(usage!("--pgs {pg_num}: take a power of two"));
        }
        Ok(PoolPlan { name: POOL_NAME.into(), size, min_size, pg_num })
    }
}

/// Everything about a testbed that was decided before its first start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_FORMAT`].
    pub format: u32,
    /// Version of the `carmine` that made it.
    pub made_by: String,
    /// Identity of the cluster, as text.
    pub fsid: String,
    /// False from the folder's creation until all stores are made: an interrupted `up` is recognised.
    pub complete: bool,
    /// Object store.
    #[serde(with = "carmine_load::as_text")]
    pub store: StoreKind,
    /// Block devices; empty: files in the folder.
    pub devices: Vec<PathBuf>,
    /// Each OSD's part of a device; empty: each OSD has a device or file of its own.
    #[serde(default)]
    pub slices: Vec<SlicePlan>,
    /// Size of each OSD's block file, bytes; also the capacity that `cyan` and `null` report.
    pub osd_size_bytes: u64,
    /// Folder in which each OSD's RocksDB was given a folder when the stores were made; `None`: in the OSD's own. (Where it is
    /// now, the link in the OSD's folder says.)
    #[serde(default)]
    pub db_dir: Option<PathBuf>,
    /// Devices or files that the logs of the OSDs were given when the stores were made, one per OSD, or one folder for all;
    /// empty: the logs lie beside the data. (Where they are now, the links in the OSDs' folders say.)
    #[serde(default)]
    pub wal_devs: Vec<PathBuf>,
    /// Block files are not written through.
    pub sparse: bool,
    /// Block devices are written through, too.
    #[serde(default)]
    pub zero: bool,
    /// Settings of `blue`.
    #[serde(default)]
    pub tuning: Tuning,
    /// The pool.
    pub pool: PoolPlan,
    /// The request for CPUs.
    pub cpu: PlanRequest,
    /// Alien threads per OSD.
    pub alien_threads: u16,
    /// Poll policy of the reactors.
    pub poll: String,
    /// Memory of each OSD, bytes.
    pub osd_memory_bytes: u64,
    /// Address that all processes listen on.
    pub addr: IpAddr,
    /// The monitor's port as asked for; 0: any.
    pub port: u16,
    /// The port the monitor had last; if any will do, it tries this one first, so that `ceph.conf` stays valid.
    pub mon_port: u16,
    /// The CPUs of each process.
    pub grid: Grid,
    /// How the drives were preconditioned before the stores were made.
    #[serde(default)]
    pub preconditioned: Vec<Preconditioned>,
    /// Limit of each OSD's CPUs.
    #[serde(default)]
    pub confine: Confine,
    /// Words of the command that each OSD is started by; empty: none.
    #[serde(default)]
    pub osd_wrap: Vec<String>,
    /// Variables of the OSDs' environment.
    #[serde(default)]
    pub osd_env: BTreeMap<String, String>,
}

fn at_least(option: &str, bytes: u64, min_bytes: u64) -> Result<u64> {
    if bytes < min_bytes {
        return Err(usage!("{option} {}: at least {} is needed", mib(bytes), mib(min_bytes)));
    }
    if bytes > SIZE_MAX_BYTES {
        return Err(usage!("{option} {}: at most {} is possible", mib(bytes), mib(SIZE_MAX_BYTES)));
    }
    Ok(bytes)
}

/// The folder for RocksDB, made absolute; only `blue` has one.
fn db_dir(wish: &Wish, store: StoreKind) -> Result<Option<PathBuf>> {
    let Some(dir) = &wish.db_dir else { return Ok(None) };
    if store != StoreKind::Blue {
        return Err(usage!("--db-dir: the store {store} has no database"));
    }
    std::path::absolute(dir).map(Some).map_err(|e| usage!("--db-dir {}: {e}", dir.display()))
}

/// The places for the logs, made absolute; only `blue` has logs.
fn wal_devs(wish: &Wish, store: StoreKind, osds: u32) -> Result<Vec<PathBuf>> {
    if wish.wal_devs.is_empty() {
        return Ok(Vec::new());
    }
    if store != StoreKind::Blue {
        return Err(usage!("--wal-dev: the store {store} has no log"));
    }
    let absolute = |dev: &PathBuf| {
        let path = std::path::absolute(dev).map_err(|e| usage!("--wal-dev {}: {e}", dev.display()))?;
        Ok(path.canonicalize().unwrap_or(path))
    };
    let devs = wish.wal_devs.iter().map(absolute).collect::<Result<Vec<_>>>()?;
    let one_folder = devs.len() == 1 && devs.iter().all(|dev| dev.is_dir());
    if !one_folder && devs.len() != osds as usize {
        return Err(usage!(
            "--wal-dev names {} for {}: one device or file each is needed, or one folder for all",
            counted(devs.len(), "place"),
            counted(osds as usize, "OSD")
        ));
    }
    let taken: Vec<_> = wish.devices.iter().map(|d| d.canonicalize().unwrap_or(d.clone())).collect();
    for (n, dev) in devs.iter().enumerate() {
        if taken.contains(dev) || devs.iter().take(n).any(|other| other == dev) {
            return Err(usage!("--wal-dev {}: it is named twice", dev.display()));
        }
    }
    Ok(devs)
}

/// Fails if an option asks for another value than that with which the stores were made.
pub(crate) fn fixed<P: FolderPlan, T: PartialEq + Display>(
    option: &str,
    given: Option<T>,
    stored: T,
) -> Result<()> {
    match given {
        Some(given) if given != stored => Err(usage!(
            "{option} {given}: this {0} was made with {stored}; leave the option out, or make another {0} in another --dir \
             (`{1} destroy` removes this one)",
            P::WHAT,
            P::COMMAND
        )),
        _ => Ok(()),
    }
}

/// Names of devices, for people.
pub(crate) fn names(devices: &[PathBuf]) -> String {
    let names: Vec<String> = devices.iter().map(|device| device.display().to_string()).collect();
    if names.is_empty() { "files".into() } else { names.join(",") }
}

/// A size as it is used, for people.
pub(crate) fn whole_blocks(bytes: u64) -> String {
    mib(bytes / 4096 * 4096)
}

/// Bytes for people.
pub(crate) fn mib(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("{}M", bytes / MIB) } else { format!("{bytes} bytes") }
}

/// Next power of two of the PGs that give every OSD about [`PGS_PER_OSD`] copies.
fn default_pgs(osds: u32, size: u8) -> u32 {
    (osds * PGS_PER_OSD / u32::from(size)).next_power_of_two().clamp(32, PGS_DEFAULT_MAX)
}

impl Plan {
    /// Makes a plan on `topology`; every option that does not fit is an error that names it.
    pub fn new(wish: &Wish, topology: &Topology, fsid: &str) -> Result<Self> {
        let osds = in_range("osds", wish.osds.unwrap_or(1))?;
        let store = wish.store.unwrap_or(StoreKind::Blue);
        let pool = PoolPlan::new(osds, wish.size, wish.min_size, wish.pgs)?;
        let per_device = per_device(wish, store, osds)?;
        check_devices(wish, store, osds / per_device)?;
        let (addr, port) = wish.addr.unwrap_or((IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
        if addr.is_unspecified() {
            return Err(usage!(
                "--addr {addr}: name one address of this machine; clients dial what the map says"
            ));
        }
        let cpu = PlanRequest { osds: osds as usize, ..PlanRequest::default() };
        let osd_size_bytes = at_least(
            "--osd-size",
            wish.osd_size_bytes.unwrap_or(OSD_SIZE_DEFAULT_BYTES),
            OSD_SIZE_MIN_BYTES,
        )?;
        let osd_size_bytes = osd_size_bytes / 4096 * 4096;
        let slices = slices(wish, osds, per_device, osd_size_bytes)?;
        let mut plan = Self {
            format: PLAN_FORMAT,
            made_by: env!("CARGO_PKG_VERSION").into(),
            fsid: fsid.into(),
            complete: false,
            store,
            devices: wish.devices.clone(),
            slices,
            osd_size_bytes,
            db_dir: db_dir(wish, store)?,
            wal_devs: wal_devs(wish, store, osds)?,
            sparse: wish.sparse,
            zero: wish.zero,
            tuning: Tuning::default(),
            pool,
            grid: Grid::plan(topology, &PlanRequest { overprovisioned: true, ..cpu.clone() })
                .map_err(|e| usage!("{e}"))?,
            cpu,
            alien_threads: ALIEN_THREADS_DEFAULT,
            poll: "adaptive".into(),
            osd_memory_bytes: OSD_MEMORY_DEFAULT_BYTES,
            addr,
            port,
            mon_port: 0,
            preconditioned: Vec::new(),
            confine: Confine::None,
            osd_wrap: Vec::new(),
            osd_env: BTreeMap::new(),
        };
        plan.apply(wish, topology)?;
        Ok(plan)
    }

    /// Takes over the options that may change at every start, and places the reactors anew.
    fn apply(&mut self, wish: &Wish, topology: &Topology) -> Result<()> {
        let per_device = self.osds_per_device() as usize;
        let cpu = &mut self.cpu;
        if let Some(reactors) = wish.reactors {
            cpu.reactors = usize::from(in_range("reactors", reactors)?);
        }
        if let Some(balance) = wish.balance {
            cpu.strategy = balance;
        }
        let or =
            |given: &Option<CpuList>, stored: &mut Option<CpuList>| *stored = given.clone().or(stored.take());
        or(&wish.cpus, &mut cpu.cpus);
        or(&wish.alien_cpus, &mut cpu.alien_cpus);
        or(&wish.system_cpus, &mut cpu.system_cpus);
        or(&wish.neighbour_cpus, &mut cpu.neighbour_cpus);
        cpu.client_cpus = wish.client_cpus.clone().or(cpu.client_cpus.take());
        cpu.overprovisioned |= wish.overprovisioned;
        cpu.osds_per_device = per_device;
        cpu.pgs = self.pool.pg_num;
        cpu.size = u32::from(self.pool.size);
        if let Some(confine) = Confine::wished(wish, topology.allowed().len())? {
            self.confine = confine;
            cpu.cpus_per_osd = confine.cpuset();
        }
        if let Some(threads) = wish.alien_threads {
            self.alien_threads = in_range("alien_threads", threads)?;
        }
        if let Some(poll) = &wish.poll {
            poll.parse::<PollPolicy>().map_err(|e| usage!("--poll {poll}: {e}"))?;
            self.poll.clone_from(poll);
        }
        if let Some(bytes) = wish.osd_memory_bytes {
            self.osd_memory_bytes = at_least("--osd-memory", bytes, OSD_MEMORY_MIN_BYTES)?;
        }
        self.tuning = self.tuning.changed(&wish.tuning, self.store)?;
        if let Some(text) = &wish.osd_wrap {
            self.osd_wrap = wrap::parse_command(text)?;
        }
        wrap::check_command(&self.osd_wrap)?;
        if !wish.osd_env.is_empty() {
            self.osd_env = wrap::parse_env(&wish.osd_env)?;
        }
        self.grid = Grid::plan(topology, &self.cpu).map_err(|e| usage!("{e}"))?;
        Ok(())
    }

    /// The plan for the next start of a stopped testbed. `--reactors`, `--balance`, `--poll`, the wrapper, the
    /// environment, the CPU and memory options and the store's tuning may change; another value of any other option is refused, for the data depends on it.
    pub fn revise(&self, wish: &Wish, topology: &Topology) -> Result<Self> {
        fixed::<Self, _>("--osds", wish.osds, self.osds())?;
        fixed::<Self, _>("--osds-per-device", wish.osds_per_device, self.osds_per_device())?;
        fixed::<Self, _>("--store", wish.store, self.store)?;
        fixed::<Self, _>("--size", wish.size, self.pool.size)?;
        fixed::<Self, _>("--min-size", wish.min_size, self.pool.min_size)?;
        fixed::<Self, _>("--pgs", wish.pgs, self.pool.pg_num)?;
        fixed::<Self, _>("--osd-size", wish.osd_size_bytes.map(whole_blocks), mib(self.osd_size_bytes))?;
        fixed::<Self, _>("--addr", wish.addr.map(|(addr, _)| addr), self.addr)?;
        let devices = (!wish.devices.is_empty()).then(|| names(&wish.devices));
        fixed::<Self, _>("--devs", devices, names(&self.devices))?;
        let other_db = wish.db_dir.is_some() && wish.db_dir != self.db_dir;
        let other_wal = !wish.wal_devs.is_empty() && wish.wal_devs != self.wal_devs;
        for (option, given) in [
            ("--force-wipe", wish.force_wipe),
            ("--sparse", wish.sparse && !self.sparse),
            ("--zero", wish.zero && !self.zero),
            ("--db-dir", other_db),
            ("--wal-dev", other_wal),
        ] {
            if given {
                return Err(usage!(
                    "{option}: the stores of this testbed exist; `carmine destroy` removes them"
                ));
            }
        }
        let mut plan = self.clone();
        if let Some((_, port)) = wish.addr {
            plan.port = port;
        }
        plan.apply(wish, topology)?;
        Ok(plan)
    }

    /// OSDs that share one device.
    pub fn osds_per_device(&self) -> u32 {
        self.slices.iter().filter(|slice| slice.device == 0).count().max(1) as u32
    }

    /// The named block device on which an OSD's data lies; `None`: a file in the folder.
    pub fn device_of(&self, osd: OsdId) -> Option<&Path> {
        self.devices.get((osd.0 / self.osds_per_device()) as usize).map(PathBuf::as_path)
    }

    /// An OSD's part of its device; `None`: all of it.
    pub fn slice_of(&self, osd: OsdId) -> Option<&SlicePlan> {
        self.slices.get(osd.0 as usize)
    }

    /// Bytes that all OSDs together can hold, metadata not counted.
    ///
    /// # Errors
    /// A named device that cannot be looked at.
    pub fn capacity_bytes(&self) -> Result<u64> {
        (0..self.osds())
            .map(|id| match (self.slice_of(OsdId(id)), self.device_of(OsdId(id))) {
                (Some(slice), _) => Ok(slice.size_bytes),
                (None, Some(device)) => slice::share_of(device, 1, OSD_SIZE_MIN_BYTES),
                (None, None) => Ok(self.osd_size_bytes),
            })
            .sum()
    }

    /// The CPUs of an OSD.
    ///
    /// # Errors
    /// The testbed has no such OSD.
    pub fn row(&self, osd: OsdId) -> Result<&OsdRow> {
        self.grid.osds.get(osd.0 as usize).ok_or_else(|| failed!("the plan has no row for {osd}"))
    }

    /// Number of OSD processes.
    pub fn osds(&self) -> u32 {
        self.cpu.osds as u32
    }

    /// The grid, and what else was decided about the processes, as text for a terminal.
    pub fn render(&self) -> String {
        let mut text = self.grid.render();
        for (osd, slice) in self.slices.iter().enumerate() {
            let name = match self.devices.get(slice.device as usize) {
                Some(path) => path.display().to_string(),
                None => format!("file device.{}", slice.device),
            };
            let (from, size) = (mib(slice.offset_bytes), mib(slice.size_bytes));
            text.push_str(&format!("slice     osd.{osd}: {name}, {size} from {from}\n"));
        }
        for dev in &self.wal_devs {
            text.push_str(&format!("log       {}\n", dev.display()));
        }
        if self.confine != Confine::None {
            text.push_str(&format!("confine   {}\n", self.confine));
        }
        if !self.osd_wrap.is_empty() {
            text.push_str(&format!("wrapper   {}\n", self.osd_wrap.join(" ")));
        }
        for (name, value) in &self.osd_env {
            text.push_str(&format!("env       {name}={value}\n"));
        }
        text
    }

    /// Cores that the OSDs have: the CPUs of the grid, or less where a quota gives them less time.
    pub fn allocated_cores(&self) -> f64 {
        self.confine.cores(&self.grid)
    }

    /// CPUs of clients.
    pub fn client_cpus(&self) -> CpuList {
        self.grid.client_cpus()
    }
}

/// How many OSDs share a device.
fn per_device(wish: &Wish, store: StoreKind, osds: u32) -> Result<u32> {
    let per_device = in_range("osds_per_device", wish.osds_per_device.unwrap_or(1))?;
    if per_device > 1 && store != StoreKind::Blue {
        return Err(usage!(
            "--osds-per-device {per_device}: the store {store} uses no device; take --store blue"
        ));
    }
    if !osds.is_multiple_of(per_device) {
        return Err(usage!(
            "--osds-per-device {per_device}: {} cannot be dealt evenly; take a multiple of it as --osds",
            counted(osds as usize, "OSD")
        ));
    }
    Ok(per_device)
}

/// The OSDs' slices if they share devices.
fn slices(wish: &Wish, osds: u32, per_device: u32, osd_size_bytes: u64) -> Result<Vec<SlicePlan>> {
    if per_device == 1 {
        return Ok(Vec::new());
    }
    slice::deal(osds, per_device, |device| match wish.devices.get(device as usize) {
        Some(path) => slice::share_of(path, per_device, OSD_SIZE_MIN_BYTES),
        None => Ok(osd_size_bytes),
    })
}

/// `devices` are needed, if any are named.
fn check_devices(wish: &Wish, store: StoreKind, devices: u32) -> Result<()> {
    if wish.zero && wish.sparse {
        return Err(usage!(
            "--zero and --sparse: one writes zeros everywhere, the other nowhere; leave one of them out"
        ));
    }
    if wish.devices.is_empty() {
        if wish.force_wipe {
            return Err(usage!("--force-wipe: there are no --devs to wipe"));
        }
        return Ok(());
    }
    if store != StoreKind::Blue {
        return Err(usage!(
            "--devs: the store {store} uses no device; take --store blue or leave --devs out"
        ));
    }
    if wish.osd_size_bytes.is_some() {
        return Err(usage!("--osd-size and --devs: a device is used whole; leave one of them out"));
    }
    if wish.devices.len() != devices as usize {
        let shared = wish.osds_per_device.unwrap_or(1) > 1;
        let needed = counted(devices as usize, if shared { "group" } else { "OSD" });
        return Err(usage!(
            "--devs names {} for {needed}{}: one each is needed",
            counted(wish.devices.len(), "device"),
            if shared { " of --osds-per-device" } else { "" }
        ));
    }
    let distinct: BTreeSet<_> = wish.devices.iter().map(|d| d.canonicalize().unwrap_or(d.clone())).collect();
    if distinct.len() != wish.devices.len() {
        return Err(usage!("--devs names the same device twice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
