//! The plan of a testbed: its specification and everything that was decided from it, stored in its folder.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::iter;
use std::mem::replace;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use carmine_reactor::PollPolicy;
use carmine_topology::{CpuList, Grid, OsdRow, PlanRequest, Topology};
use carmine_types::{MonKind, OsdId, StoreKind, Uuid, counted};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::confine::{Confine, ConfineCpus, ConfineKind};
use crate::daemons;
use crate::drive;
use crate::error::{Result, failed, refuse, usage};
use crate::folder::BedKind;
use crate::join::JoinPlan;
use crate::layout::Daemon;
use crate::network;
use crate::peer::PeerPlan;
use crate::precondition::Preconditioned;
use crate::slice::{self, SlicePlan};
use crate::spec::{NONE, TestbedSpec, Wish, mib, not_of_peers};

/// Number of the plan file's format; another one is refused.
pub(crate) const PLAN_FORMAT: u64 = 2;
/// PGs per OSD that are aimed at (as in Ceph).
const PGS_PER_OSD: u32 = 100;
/// Most PGs that are made unless more are asked for.
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
        // Other hosts bring more.
        let is_whole = spec.host.is_none();
        let osds = if is_whole { spec.osds } else { spec.osds.max(3) };
        let size = *spec.pool_size.get_or_insert(osds.min(3) as u8);
        refuse!(
            u32::from(size) > osds && is_whole,
            "--size {size}: the testbed has only {}; raise --osds or lower --size",
            counted(osds as usize, "OSD")
        );
        let min_size = *spec.min_size.get_or_insert(size - size / 2);
        refuse!(!(1..=size).contains(&min_size), "--min-size {min_size}: take 1 to {size}, which is --size");
        let pg_num = *spec.pgs.get_or_insert_with(|| default_pgs(osds, size));
        Ok(PoolPlan { name: POOL_NAME.into(), size, min_size, pg_num })
    }
}

/// Everything about a testbed that was decided before its first start. Its settings are those of its specification; for a peer
/// one "reactor" is one core of an OSD.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Plan {
    /// [`PLAN_FORMAT`].
    pub format: u64,
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
    /// The pool; of OSDs that have joined a cluster only the number of copies that their memory is planned for.
    pub pool: PoolPlan,
    /// The request for CPUs.
    pub cpu: PlanRequest,
    /// This host's address on the cluster network, if that has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<IpAddr>,
    /// The port the monitor had last; if any will do, it tries this one first, so that `ceph.conf` stays valid.
    pub mon_port: u16,
    /// The same of the monitors after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_mon_ports: Vec<u16>,
    /// The CPUs of each process.
    pub grid: Grid,
    /// Numbers of OSDs that were removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<u32>,
    /// How the drives were preconditioned before the stores were made.
    pub preconditioned: Vec<Preconditioned>,
    /// The part that only OSDs have that have joined a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinPlan>,
    /// The part that only a peer has.
    #[serde(flatten)]
    pub peer: Option<PeerPlan>,
}

/// A peer's plan is written without the settings that a peer does not have.
impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.peer.is_none() {
            return Plan::serialize(self, serializer);
        }
        let mut json = Plan::serialize(self, serde_json::value::Serializer).map_err(S::Error::custom)?;
        if let Value::Object(map) = &mut json {
            not_of_peers().for_each(|name| _ = map.remove(name));
        }
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Plan::deserialize(deserializer)
    }
}

impl Deref for Plan {
    type Target = TestbedSpec;

    fn deref(&self) -> &TestbedSpec {
        &self.spec
    }
}

/// Fails if a size is out of its range.
pub(crate) fn check_bytes(option: &str, bytes: u64, min_bytes: u64) -> Result<()> {
    refuse!(bytes < min_bytes, "{option} {}: at least {} is needed", mib(bytes), mib(min_bytes));
    refuse!(bytes > SIZE_MAX_BYTES, "{option} {}: at most {} is possible", mib(bytes), mib(SIZE_MAX_BYTES));
    Ok(())
}

/// The places for the logs, by their real names; only `blue` has logs.
fn wal_devs(spec: &TestbedSpec) -> Result<Vec<PathBuf>> {
    let devs: Vec<PathBuf> = spec.wal_devs.iter().map(real).collect();
    if devs.is_empty() {
        return Ok(devs);
    }
    refuse!(spec.store != StoreKind::Blue, "--wal-dev: the store {} has no log", spec.store);
    let is_one_folder = matches!(&devs[..], [dev] if dev.is_dir());
    refuse!(
        !is_one_folder && devs.len() != spec.osds as usize,
        "--wal-dev names {} for {}: one device or file each is needed, or one folder for all",
        counted(devs.len(), "place"),
        counted(spec.osds as usize, "OSD")
    );
    let mut taken: BTreeSet<_> = spec.devices.iter().map(real).collect();
    for dev in &devs {
        refuse!(!taken.insert(dev.clone()), "--wal-dev {}: it is named twice", dev.display());
    }
    Ok(devs)
}

/// A path by its real name; as it is if it does not exist.
pub(crate) fn real(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref().canonicalize().unwrap_or_else(|_| path.as_ref().to_owned())
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
        // The number belonged to an earlier confinement.
        spec.confine_cpus = None;
    }
    spec
}

impl Plan {
    /// Makes a plan on `topology`; every option that does not fit is an error that names it.
    pub fn new(wish: &Wish, topology: &Topology, fsid: &str) -> Result<Self> {
        let mut spec = wished(TestbedSpec::default(), wish);
        spec.check_ranges()?;
        spec.check_network()?;
        spec.check_modes()?;
        let pool = PoolPlan::settle(&mut spec)?;
        check_devices(&spec, wish.osd_size_bytes.is_some())?;
        refuse!(![1, 3].contains(&spec.mons), "--mons {}: take 1 or 3", spec.mons);
        refuse!(
            spec.mons > 1 && spec.mon == MonKind::Embedded,
            "--mons {}: the embedded monitor is always alone; take --mon ceph for several",
            spec.mons
        );
        refuse!(
            spec.namespaces && (wish.addr.is_some() || spec.osds > network::OSDS_MAX),
            "--namespaces: each daemon has an address of its own, so leave --addr out, and take at most {} OSDs",
            network::OSDS_MAX
        );
        if let Some(host) = &spec.host {
            refuse!(!is_name(host), "--host {host}: take letters, digits, `-`, `_` and `.`");
            refuse!(spec.namespaces, "--namespaces: other hosts do not reach them; leave --host out");
        }
        let cluster_ip = spec.settle_addresses(wish, topology.live)?;
        let ip = spec.addr.ip();
        refuse!(
            ip.is_unspecified(),
            "--addr {ip}: name one address of this machine; clients dial what the map says"
        );
        check_bytes("--osd-size", wish.osd_size_bytes.unwrap_or(spec.osd_size_bytes), OSD_SIZE_MIN_BYTES)?;
        let has_db = spec.store == StoreKind::Blue;
        refuse!(spec.db_dir.is_some() && !has_db, "--db-dir: the store {} has no database", spec.store);
        spec.wal_devs = wal_devs(&spec)?;
        let slices = slice::deal(&spec, OSD_SIZE_MIN_BYTES)?;
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
            cluster_ip,
            mon_port: 0,
            other_mon_ports: Vec::new(),
            grid,
            removed: BTreeSet::new(),
            preconditioned: Vec::new(),
            joined: None,
            peer: None,
        })
    }

    /// The plan for the next start of a stopped testbed. Settings that take effect at a start may change; another value of any
    /// other setting is refused, because the data depends on it.
    pub fn revise(&self, wish: &Wish, topology: &Topology) -> Result<Self> {
        if self.joined.is_some() {
            wish.refuse_of_clusters()?;
        }
        let mut spec = wished(self.spec.clone(), wish);
        spec.check_ranges()?;
        spec.check_network()?;
        spec.check_modes()?;
        if let Ok(devs) = wal_devs(&spec) {
            spec.wal_devs = devs;
        }
        self.spec.refuse_other_data(&spec, self.kind())?;
        let cluster_ip = spec.settle_addresses(wish, topology.live)?;
        let (new, old) = (spec.addr.ip(), self.addr.ip());
        refuse!(
            new != old && self.joined.is_none(),
            "--addr {new}: this {} was made with {old}; leave it out",
            self.kind()
        );
        let (cpu, grid) = settle(&mut spec, wish, &self.pool, topology)?;
        Ok(Self { spec, cluster_ip, cpu, grid, ..self.clone() }.numbered())
    }

    /// The kind of cluster that it plans.
    pub fn kind(&self) -> BedKind {
        if self.peer.is_some() { BedKind::Peer } else { BedKind::Testbed }
    }

    /// The named block device on which an OSD's data lies; `None`: a file in the folder.
    pub fn device_of(&self, osd: OsdId) -> Option<&Path> {
        let place = self.place_of(osd)?;
        self.devices.get(place / self.osds_per_device as usize).map(PathBuf::as_path)
    }

    /// An OSD's part of its device; `None`: all of it.
    pub fn slice_of(&self, osd: OsdId) -> Option<&SlicePlan> {
        self.slices.get(self.place_of(osd)?)
    }

    /// Bytes that all OSDs together can hold, metadata not counted.
    ///
    /// # Errors
    /// A named device that cannot be looked at.
    pub fn capacity_bytes(&self) -> Result<u64> {
        self.numbers().map(|osd| self.store_bytes(osd)).sum()
    }

    /// Length of the file, the device or the slice that an OSD has for its data.
    ///
    /// # Errors
    /// A named device that cannot be looked at.
    pub fn store_bytes(&self, osd: OsdId) -> Result<u64> {
        match (self.slice_of(osd), self.device_of(osd)) {
            (Some(slice), _) => Ok(slice.size_bytes),
            (None, Some(device)) => slice::share_of(device, 1, OSD_SIZE_MIN_BYTES),
            (None, None) => Ok(self.osd_size_bytes),
        }
    }

    /// The CPUs of an OSD.
    ///
    /// # Errors
    /// The testbed has no such OSD.
    pub fn row(&self, osd: OsdId) -> Result<&OsdRow> {
        let row = self.place_of(osd).and_then(|place| self.grid.osds.get(place));
        row.ok_or_else(|| failed!("the plan has no row for {osd}"))
    }

    /// The numbers of all OSDs that there are or were, in the order of their places.
    pub fn numbers(&self) -> impl Iterator<Item = OsdId> + '_ {
        let given = self.joined.as_ref().map_or(&[][..], |joined| &joined.ids);
        (0..self.osds()).map(|place| OsdId(given.get(place as usize).copied().unwrap_or(place)))
    }

    /// The place of an OSD among all: its row of the grid, its device, slice and log are those at this index.
    pub fn place_of(&self, osd: OsdId) -> Option<usize> {
        self.numbers().position(|own| own == osd)
    }

    /// True if the cluster has, or may get, OSDs that this folder knows nothing of: those of other hosts.
    pub fn is_part(&self) -> bool {
        self.joined.is_some() || self.host.is_some()
    }

    /// Fails if the cluster may have OSDs that are not in this folder.
    ///
    /// # Errors
    /// Names `what`, which needs a whole cluster.
    pub fn refuse_part(&self, what: &str) -> Result<()> {
        refuse!(
            self.is_part(),
            "{what}: these OSDs are a part of a cluster, and this needs a testbed that is a whole one (`carmine up` without --host)"
        );
        Ok(())
    }

    /// Numbers of the monitors; OSDs that have joined a cluster have none of their own.
    pub(crate) fn mon_numbers(&self) -> Range<u8> {
        0..if self.joined.is_some() { 0 } else { self.mons }
    }

    /// Where a monitor listens, or did; port 0: nowhere yet.
    pub(crate) fn mon_addr(&self, mon: u8) -> SocketAddr {
        let others = self.other_mon_ports.iter().copied();
        let port = iter::once(self.mon_port).chain(others).nth(mon.into()).unwrap_or(0);
        SocketAddr::new(self.ip_of(Daemon::Mon(mon)), port)
    }

    /// Gives the monitors these ports; true if one is new.
    pub(crate) fn set_mon_ports(&mut self, ports: &[u16]) -> bool {
        let Some((first, others)) = ports.split_first() else { return false };
        let old = (replace(&mut self.mon_port, *first), replace(&mut self.other_mon_ports, others.to_vec()));
        old != (*first, others.to_vec())
    }

    /// True if these daemons have enough monitors among them to serve, or need none of their own.
    pub fn have_quorum(&self, running: &[Daemon]) -> bool {
        let mons = running.iter().filter(|daemon| matches!(daemon, Daemon::Mon(_)));
        self.joined.is_some() || mons.count() > usize::from(self.mons / 2)
    }

    /// All daemons, OSDs first: the order in which they are stopped.
    pub fn daemons(&self) -> Vec<Daemon> {
        let has_mgr = self.kind() == BedKind::Testbed && self.mon == MonKind::Ceph && self.joined.is_none();
        let mgr = has_mgr.then_some(Daemon::Mgr);
        let mons = self.mon_numbers().map(Daemon::Mon);
        self.osd_ids().map(Daemon::Osd).chain(mgr).chain(mons).collect()
    }

    /// The OSDs that there are.
    pub fn osd_ids(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.numbers().filter(|osd| !self.removed.contains(&osd.0))
    }

    /// Fails unless there is this OSD.
    ///
    /// # Errors
    /// Names those that there are.
    pub fn require_osd(&self, osd: OsdId) -> Result<()> {
        let ids: CpuList = self.osd_ids().map(|own| own.0 as usize).collect();
        refuse!(self.osd_ids().all(|own| own != osd), "{osd}: there is no such OSD here, only {ids}");
        Ok(())
    }

    /// The same with the OSDs' numbers in the rows of the grid; how many PGs come to OSDs that have joined a cluster is not known.
    #[must_use]
    pub(crate) fn numbered(mut self) -> Self {
        if self.joined.is_some() {
            self.grid.pgs_per_reactor = None;
        }
        let numbers: Vec<OsdId> = self.numbers().collect();
        self.grid.osds.iter_mut().zip(numbers).for_each(|(row, osd)| row.osd = osd.0 as usize);
        self.grid = self.grid.marked();
        self
    }

    /// Identity of what is in the folder: the cluster's, or of OSDs that have joined a cluster one of their own.
    pub fn identity(&self) -> &str {
        self.joined.as_ref().map_or(&self.fsid, |joined| &joined.uuid)
    }

    /// Identity of an OSD's store: that of all, with the OSD's number mixed in. A store in memory keeps it over restarts,
    /// too.
    ///
    /// # Errors
    /// The plan is damaged: its identity cannot be read.
    pub fn store_uuid(&self, osd: OsdId) -> Result<Uuid> {
        let all: Uuid = self.identity().parse().map_err(|e| failed!("identity of the plan: {e}"))?;
        let mut bytes = all.0;
        // An odd factor: different numbers give different ids.
        let mix = (osd.0 + 1).wrapping_mul(0x9e37_79b1).to_be_bytes();
        bytes.iter_mut().rev().zip(mix).for_each(|(byte, mix)| *byte ^= mix);
        Ok(Uuid(bytes))
    }

    /// How many OSDs there are, and were.
    pub fn osds(&self) -> u32 {
        self.spec.osds
    }

    /// The grid, and what else was decided about the processes, as text for a terminal.
    pub fn render(&self) -> String {
        let mut text = self.grid.render();
        let mut put = |name: &str, value: &dyn Display| text += &format!("{name:<9} {value}\n");
        for (osd, slice) in self.numbers().zip(&self.slices) {
            let file = format!("file device.{}", slice.device);
            let device =
                self.devices.get(slice.device as usize).map_or(file, |path| path.display().to_string());
            let (from, size) = (mib(slice.offset_bytes), mib(slice.size_bytes));
            put("slice", &format!("{osd}: {device}, {size} from {from}"));
        }
        self.wal_devs.iter().for_each(|dev| put("log", &dev.display()));
        if self.confinement() != Confine::NONE {
            put("confine", &self.confinement());
        }
        if self.osd_wrap != NONE {
            put("wrapper", &self.osd_wrap);
        }
        self.osd_env.iter().for_each(|variable| put("env", variable));
        text
    }

    /// Cores that the OSDs have: the CPUs of the grid, or less where a quota gives them less time.
    pub fn allocated_cores(&self) -> f64 {
        self.confinement().cores(&self.grid)
    }

    /// The limit of each OSD's CPUs.
    pub fn confinement(&self) -> Confine {
        // It was read when the plan was made.
        Confine::from_spec(&self.spec, usize::MAX).unwrap_or(Confine::NONE)
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
    let (interval, grace) = (spec.osd_heartbeat_interval_s, spec.osd_heartbeat_grace_s);
    refuse!(interval == 0, "--osd-heartbeat-interval 0: take at least one second");
    refuse!(
        grace <= interval,
        "--osd-heartbeat-grace {grace}: take more than --osd-heartbeat-interval, which is {interval}"
    );
    spec.osd_wrap = daemons::found_wrapper(&spec.osd_wrap)?;
    spec.osd_env = daemons::env_words(&spec.osd_env)?;
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
        cpus_per_osd: Confine::from_spec(spec, topology.allowed().len())?.cpuset(),
        osds_per_device: spec.osds_per_device as usize,
        drives: drives(spec, topology),
    };
    let grid = Grid::plan(topology, &request).map_err(|e| usage!("{e}"))?;
    Ok((request, grid))
}

/// The drives of the OSDs by name: of named devices those below them; on a machine that is only described, its own in order.
fn drives(spec: &TestbedSpec, topology: &Topology) -> Vec<String> {
    if spec.store != StoreKind::Blue {
        return Vec::new();
    }
    match (&spec.devices[..], topology.live) {
        ([], true) => Vec::new(),
        ([], false) => topology.drives().map(|drive| drive.name.clone()).collect(),
        (devices, true) => devices.iter().map(|device| drive::name_of(device)).collect(),
        (devices, false) => devices.iter().map(|device| drive::own_name(device)).collect(),
    }
}

/// Fails unless the OSDs, their groups and the named devices fit together. `sized`: a size of block files is asked for.
fn check_devices(spec: &TestbedSpec, sized: bool) -> Result<()> {
    let (store, per_device, is_blue) = (spec.store, spec.osds_per_device, spec.store == StoreKind::Blue);
    refuse!(
        per_device > 1 && !is_blue,
        "--osds-per-device {per_device}: the store {store} uses no device; take --store blue"
    );
    refuse!(
        !spec.osds.is_multiple_of(per_device),
        "--osds-per-device {per_device}: {} cannot be dealt evenly; take a multiple of it as --osds",
        counted(spec.osds as usize, "OSD")
    );
    refuse!(
        spec.zero && spec.sparse,
        "--zero and --sparse: one writes zeros everywhere, the other nowhere; leave one of them out"
    );
    let (given, needed) = (spec.devices.len(), (spec.osds / per_device) as usize);
    if given == 0 {
        return Ok(());
    }
    refuse!(!is_blue, "--devs: the store {store} uses no device; take --store blue or leave --devs out");
    refuse!(sized, "--osd-size and --devs: a device is used whole; leave one of them out");
    let (what, of) = if per_device > 1 { ("group", " of --osds-per-device") } else { ("OSD", "") };
    refuse!(
        given != needed,
        "--devs names {} for {}{of}: one each is needed",
        counted(given, "device"),
        counted(needed, what)
    );
    let distinct: BTreeSet<_> = spec.devices.iter().map(real).collect();
    refuse!(distinct.len() != given, "--devs names the same device twice");
    Ok(())
}

/// Names of buckets in the CRUSH map.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// `--force-wipe` without devices to wipe, or with stores that exist, is a mistake.
///
/// # Errors
/// Says which.
pub fn check_wipe(wipe: bool, stores_exist: bool, devices: &[PathBuf]) -> Result<()> {
    refuse!(wipe && stores_exist, "--force-wipe: the stores exist; `destroy` removes them");
    refuse!(wipe && devices.is_empty(), "--force-wipe: there are no --devs to wipe");
    Ok(())
}

#[cfg(test)]
mod tests;
