//! The plan of a testbed: its specification and everything that was decided by it, stored in its folder.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use carmine_reactor::PollPolicy;
use carmine_topology::{CpuList, Grid, OsdRow, PlanRequest, Topology};
use carmine_types::{OsdId, StoreKind, counted};
use serde::{Deserialize, Serialize};

use crate::confine::{Confine, ConfineCpus, ConfineKind};
use crate::error::{Result, failed, usage};
use crate::precondition::Preconditioned;
use crate::slice::{self, SlicePlan};
use crate::spec::{NONE, TestbedSpec, Wish, mib};
use crate::wrap;

/// Number of the plan file's format; another one is refused.
pub const PLAN_FORMAT: u32 = 2;
/// PGs per OSD that are aimed at (as in Ceph).
const PGS_PER_OSD: u32 = 100;
/// Most PGs unless more are asked for.
const PGS_DEFAULT_MAX: u32 = 65_536;
const MIB: u64 = 1 << 20;
/// More than any machine has; sums of sizes stay far from overflow.
const SIZE_MAX_BYTES: u64 = 1 << 50;
/// Below this an OSD's metadata would not fit.
const OSD_SIZE_MIN_BYTES: u64 = 64 * MIB;
/// An OSD with few PGs and one busy client stays below this (`tests/tests/memory.rs`).
const OSD_MEMORY_MIN_BYTES: u64 = 256 * MIB;
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
    /// The pool of a specification, which takes over what is decided here.
    fn settle(spec: &mut TestbedSpec) -> Result<Self> {
        let osds = spec.osds;
        let size = *spec.pool_size.get_or_insert(osds.min(3) as u8);
        if u32::from(size) > osds {
            let osds = counted(osds as usize, "OSD");
            return Err(usage!("--size {size}: the testbed has only {osds}; raise --osds or lower --size"));
        }
        let min_size = *spec.min_size.get_or_insert(size - size / 2);
        if min_size == 0 || min_size > size {
            return Err(usage!("--min-size {min_size}: take 1 to {size}, which is --size"));
        }
        let pg_num = *spec.pgs.get_or_insert_with(|| default_pgs(osds, size));
        Ok(PoolPlan { name: POOL_NAME.into(), size, min_size, pg_num })
    }
}

/// Everything about a testbed that was decided before its first start. Its settings are those of its specification.
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
    /// The settings that were asked for, and their defaults. (Where databases and logs are now, the links in the OSDs' folders
    /// say.)
    #[serde(flatten)]
    pub spec: TestbedSpec,
    /// Each OSD's part of a device; empty: each OSD has a device or file of its own.
    pub slices: Vec<SlicePlan>,
    /// The pool.
    pub pool: PoolPlan,
    /// The request for CPUs.
    pub cpu: PlanRequest,
    /// The port the monitor had last; if any will do, it tries this one first, so that `ceph.conf` stays valid.
    pub mon_port: u16,
    /// The CPUs of each process.
    pub grid: Grid,
    /// How the drives were preconditioned before the stores were made.
    pub preconditioned: Vec<Preconditioned>,
}

impl Deref for Plan {
    type Target = TestbedSpec;

    fn deref(&self) -> &TestbedSpec {
        &self.spec
    }
}

/// Fails if a size is out of its range.
pub(crate) fn check_bytes(option: &str, bytes: u64, min_bytes: u64) -> Result<()> {
    if bytes < min_bytes {
        return Err(usage!("{option} {}: at least {} is needed", mib(bytes), mib(min_bytes)));
    }
    if bytes > SIZE_MAX_BYTES {
        return Err(usage!("{option} {}: at most {} is possible", mib(bytes), mib(SIZE_MAX_BYTES)));
    }
    Ok(())
}

/// The places for the logs, by their real names; only `blue` has logs.
fn wal_devs(spec: &TestbedSpec) -> Result<Vec<PathBuf>> {
    if spec.wal_devs.is_empty() {
        return Ok(Vec::new());
    }
    if spec.store != StoreKind::Blue {
        return Err(usage!("--wal-dev: the store {} has no log", spec.store));
    }
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let devs: Vec<PathBuf> = spec.wal_devs.iter().map(real).collect();
    let one_folder = devs.len() == 1 && devs.iter().all(|dev| dev.is_dir());
    if !one_folder && devs.len() != spec.osds as usize {
        return Err(usage!(
            "--wal-dev names {} for {}: one device or file each is needed, or one folder for all",
            counted(devs.len(), "place"),
            counted(spec.osds as usize, "OSD")
        ));
    }
    let taken: Vec<_> = spec.devices.iter().map(real).collect();
    for (n, dev) in devs.iter().enumerate() {
        if taken.contains(dev) || devs.iter().take(n).any(|other| other == dev) {
            return Err(usage!("--wal-dev {}: it is named twice", dev.display()));
        }
    }
    Ok(devs)
}

/// Next power of two of the PGs that give every OSD about [`PGS_PER_OSD`] copies.
fn default_pgs(osds: u32, size: u8) -> u32 {
    (osds * PGS_PER_OSD / u32::from(size)).next_power_of_two().clamp(32, PGS_DEFAULT_MAX)
}

/// `spec` with what is asked for.
fn wished(mut spec: TestbedSpec, wish: &Wish) -> TestbedSpec {
    spec.apply(wish);
    spec.osd_size_bytes = spec.osd_size_bytes / 4096 * 4096;
    let no_limit = spec.confine == ConfineKind::None || spec.confine_cpus == Some(ConfineCpus::NoLimit);
    if wish.confine.is_some() && wish.confine_cpus.is_none() && no_limit {
        // The number was that of an earlier confinement.
        spec.confine_cpus = None;
    }
    spec
}

impl Plan {
    /// Makes a plan on `topology`; every option that does not fit is an error that names it.
    pub fn new(wish: &Wish, topology: &Topology, fsid: &str) -> Result<Self> {
        let mut spec = wished(TestbedSpec::default(), wish);
        spec.check_ranges()?;
        let pool = PoolPlan::settle(&mut spec)?;
        check_devices(&spec, wish.osd_size_bytes.is_some())?;
        if spec.addr.ip().is_unspecified() {
            let ip = spec.addr.ip();
            return Err(usage!(
                "--addr {ip}: name one address of this machine; clients dial what the map says"
            ));
        }
        check_bytes("--osd-size", wish.osd_size_bytes.unwrap_or(spec.osd_size_bytes), OSD_SIZE_MIN_BYTES)?;
        if spec.db_dir.is_some() && spec.store != StoreKind::Blue {
            return Err(usage!("--db-dir: the store {} has no database", spec.store));
        }
        spec.wal_devs = wal_devs(&spec)?;
        let slices = slices(&spec)?;
        let (cpu, grid) = settle(&mut spec, wish, &pool, topology)?;
        Ok(Self {
            format: PLAN_FORMAT,
            made_by: env!("CARGO_PKG_VERSION").into(),
            fsid: fsid.into(),
            complete: false,
            spec,
            slices,
            pool,
            cpu,
            mon_port: 0,
            grid,
            preconditioned: Vec::new(),
        })
    }

    /// The plan for the next start of a stopped testbed. Settings that take effect at a start may change; another value of any
    /// other setting is refused, for the data depends on it.
    pub fn revise(&self, wish: &Wish, topology: &Topology) -> Result<Self> {
        self.revised(wish, topology, "testbed", "carmine")
    }

    /// The same for a `what`, which `command` makes and removes.
    pub(crate) fn revised(
        &self,
        wish: &Wish,
        topology: &Topology,
        what: &str,
        command: &str,
    ) -> Result<Self> {
        let mut spec = wished(self.spec.clone(), wish);
        spec.check_ranges()?;
        if let Ok(devs) = wal_devs(&spec) {
            spec.wal_devs = devs;
        }
        self.spec.refuse_other_data(&spec, what, command)?;
        if spec.addr.ip() != self.addr.ip() {
            let (new, old) = (spec.addr.ip(), self.addr.ip());
            return Err(usage!("--addr {new}: this {what} was made with {old}; leave it out"));
        }
        let (cpu, grid) = settle(&mut spec, wish, &self.pool, topology)?;
        Ok(Self { spec, cpu, grid, ..self.clone() })
    }

    /// The named block device on which an OSD's data lies; `None`: a file in the folder.
    pub fn device_of(&self, osd: OsdId) -> Option<&Path> {
        self.devices.get((osd.0 / self.osds_per_device) as usize).map(PathBuf::as_path)
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
        self.spec.osds
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
        if self.confinement() != Confine::None {
            text.push_str(&format!("confine   {}\n", self.confinement()));
        }
        if self.osd_wrap != NONE {
            text.push_str(&format!("wrapper   {}\n", self.osd_wrap));
        }
        for variable in &self.osd_env {
            text.push_str(&format!("env       {variable}\n"));
        }
        text
    }

    /// Cores that the OSDs have: the CPUs of the grid, or less where a quota gives them less time.
    pub fn allocated_cores(&self) -> f64 {
        self.confinement().cores(&self.grid)
    }

    /// The limit of each OSD's CPUs.
    pub fn confinement(&self) -> Confine {
        // It was read when the plan was made.
        Confine::of(&self.spec, usize::MAX).unwrap_or_default()
    }

    /// CPUs of clients.
    pub fn client_cpus(&self) -> CpuList {
        self.grid.client_cpus()
    }
}

/// Checks and settles what may change at every start, and places the reactors.
fn settle(
    spec: &mut TestbedSpec,
    wish: &Wish,
    pool: &PoolPlan,
    topology: &Topology,
) -> Result<(PlanRequest, Grid)> {
    wish.tuning.refuse_without_device(spec.store)?;
    spec.poll.parse::<PollPolicy>().map_err(|e| usage!("--poll {}: {e}", spec.poll))?;
    check_bytes("--osd-memory", spec.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
    spec.osd_wrap = wrap::found(&spec.osd_wrap)?;
    spec.osd_env = wrap::env_words(&spec.osd_env)?;
    let request = PlanRequest {
        osds: spec.osds as usize,
        reactors: spec.reactors.into(),
        strategy: spec.balance,
        cpus: spec.osd_cpus.clone(),
        client_cpus: spec.client_cpus.clone(),
        alien_cpus: spec.alien_cpus.clone(),
        system_cpus: spec.system_cpus.clone(),
        neighbour_cpus: spec.neighbour_cpus.clone(),
        overprovisioned: spec.overprovisioned,
        pgs: pool.pg_num,
        size: pool.size.into(),
        cpus_per_osd: Confine::of(spec, topology.allowed().len())?.cpuset(),
        osds_per_device: spec.osds_per_device as usize,
    };
    let grid = Grid::plan(topology, &request).map_err(|e| usage!("{e}"))?;
    Ok((request, grid))
}

/// The OSDs' slices if they share devices.
fn slices(spec: &TestbedSpec) -> Result<Vec<SlicePlan>> {
    let per_device = spec.osds_per_device;
    if per_device == 1 {
        return Ok(Vec::new());
    }
    slice::deal(spec.osds, per_device, |device| match spec.devices.get(device as usize) {
        Some(path) => slice::share_of(path, per_device, OSD_SIZE_MIN_BYTES),
        None => Ok(spec.osd_size_bytes),
    })
}

/// Fails unless the OSDs, their groups and the named devices fit together. `sized`: a size of block files is asked for.
fn check_devices(spec: &TestbedSpec, sized: bool) -> Result<()> {
    let (store, per_device) = (spec.store, spec.osds_per_device);
    if per_device > 1 && store != StoreKind::Blue {
        return Err(usage!(
            "--osds-per-device {per_device}: the store {store} uses no device; take --store blue"
        ));
    }
    if !spec.osds.is_multiple_of(per_device) {
        return Err(usage!(
            "--osds-per-device {per_device}: {} cannot be dealt evenly; take a multiple of it as --osds",
            counted(spec.osds as usize, "OSD")
        ));
    }
    if spec.zero && spec.sparse {
        return Err(usage!(
            "--zero and --sparse: one writes zeros everywhere, the other nowhere; leave one of them out"
        ));
    }
    if spec.devices.is_empty() {
        return Ok(());
    }
    if store != StoreKind::Blue {
        return Err(usage!(
            "--devs: the store {store} uses no device; take --store blue or leave --devs out"
        ));
    }
    if sized {
        return Err(usage!("--osd-size and --devs: a device is used whole; leave one of them out"));
    }
    let needed = (spec.osds / per_device) as usize;
    if spec.devices.len() != needed {
        let (what, of) = if per_device > 1 { ("group", " of --osds-per-device") } else { ("OSD", "") };
        return Err(usage!(
            "--devs names {} for {}{of}: one each is needed",
            counted(spec.devices.len(), "device"),
            counted(needed, what)
        ));
    }
    let distinct: BTreeSet<_> = spec.devices.iter().map(|d| d.canonicalize().unwrap_or(d.clone())).collect();
    if distinct.len() != spec.devices.len() {
        return Err(usage!("--devs names the same device twice"));
    }
    Ok(())
}

/// `--force-wipe` without devices to wipe, or with stores that exist, is a mistake.
///
/// # Errors
/// Says which.
pub fn check_wipe(wipe: bool, stores_exist: bool, devices: &[PathBuf]) -> Result<()> {
    match (wipe, stores_exist, devices.is_empty()) {
        (true, true, _) => Err(usage!("--force-wipe: the stores exist; `destroy` removes them")),
        (true, false, true) => Err(usage!("--force-wipe: there are no --devs to wipe")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
