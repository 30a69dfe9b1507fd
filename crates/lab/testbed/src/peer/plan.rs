//! The plan of a peer: settings that are fixed when its stores are made, and settings that are chosen anew at every start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use carmine_load::parse_bytes;
use carmine_topology::{ClientCpus, CpuList, Grid, OsdRow, PlanRequest, Topology};
use carmine_types::counted;
use serde::{Deserialize, Serialize};

use super::Flavour;
use crate::error::{Result, usage};
use crate::plan::{PoolPlan, fixed, names, whole_blocks};
use crate::spec::parse_path;

/// Format of `peer.json`.
pub const PEER_FORMAT: u32 = 1;

const OSDS_MAX: u32 = 64;
const OSD_SIZE_DEFAULT_BYTES: u64 = 4 << 30;
/// BlueStore refuses to make a file system in less.
const OSD_SIZE_MIN_BYTES: u64 = 512 << 20;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 4 << 30;
/// Ceph's own lower limit of `osd_memory_target`.
const OSD_MEMORY_MIN_BYTES: u64 = 896 << 20;

/// The options of `peer up` as given; `None`, an empty list or false is "not given".
#[derive(clap::Args, Clone, Default, Debug)]
pub struct PeerWish {
    /// Number of OSD processes [default: 1]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pub osds: Option<u32>,
    /// Replicas [default: 3, or the number of OSDs if that is less]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pub size: Option<u8>,
    /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pub pgs: Option<u32>,
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, instead of the installed packages
    #[arg(long = "peer-build", value_name = "FOLDER", value_parser = parse_path, help_heading = "Cluster")]
    pub build: Option<PathBuf>,
    /// Settings for solid-state drives, op shards and threads that fit the cores, no debug logs; say it at each `up`
    #[arg(long, help_heading = "Settings")]
    pub tuned: bool,
    /// A setting of the OSDs by Ceph's name, which overrides the profile's; repeatable; say them at each `up`
    #[arg(long = "opt", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Settings")]
    pub options: Vec<(String, String)>,
    /// osd_memory_target of each OSD, such as 2G [default: 4G]
    #[arg(long = "osd-memory", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Settings")]
    pub osd_memory_bytes: Option<u64>,
    /// Block devices, one per OSD; without them plain files in the folder
    #[arg(long = "devs", value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    pub devices: Vec<PathBuf>,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    pub force_wipe: bool,
    /// Size of each OSD's block file, such as 8G [default: 4G]
    #[arg(long = "osd-size", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
    pub osd_size_bytes: Option<u64>,
    /// Do not write the block files in advance: a quick start, but first writes also pay for the file system
    #[arg(long, help_heading = "Storage")]
    pub sparse: bool,
    /// CPUs of the OSDs, divided evenly among them, such as 0-7,16
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    pub cpus: Option<CpuList>,
    /// CPUs of clients and of the monitor: a list, count:N, or rest [default: a third of the CPUs]
    #[arg(long, value_name = "LIST|count:N|rest", help_heading = "CPUs")]
    pub client_cpus: Option<ClientCpus>,
    /// Let OSDs and clients share CPUs
    #[arg(long, help_heading = "CPUs")]
    pub overprovisioned: bool,
}

/// A peer as it is started; kept in `peer.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerPlan {
    /// [`PEER_FORMAT`].
    pub format: u32,
    /// Cluster id.
    pub fsid: String,
    /// True once the stores and the pool are made.
    pub complete: bool,
    /// Version line of `ceph-osd`.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// Replicas.
    pub size: u8,
    /// PGs of the pool `bench`.
    pub pgs: u32,
    /// Bytes of each OSD's block file.
    pub osd_size_bytes: u64,
    /// Block files are not written through.
    pub sparse: bool,
    /// Block devices; empty for files.
    pub devices: Vec<PathBuf>,
    /// `osd_memory_target`, bytes.
    pub osd_memory_bytes: u64,
    /// SSD settings, shards and threads fitted to the cores.
    pub tuned: bool,
    /// A flush of the drive waits for its medium; found out at every start.
    #[serde(default)]
    pub dear_flush: bool,
    /// Settings of the OSDs that were asked for, by Ceph's names.
    pub options: BTreeMap<String, String>,
    /// Port of the monitor on loopback.
    pub mon_port: u16,
    /// Placement that was asked for: one "reactor" is one core of an OSD.
    pub cpu: PlanRequest,
    /// The CPUs of each process.
    pub grid: Grid,
}

fn in_range<T: PartialOrd + std::fmt::Display>(option: &str, value: T, min: T, max: T) -> Result<T> {
    if value < min || value > max {
        return Err(usage!("{option} {value}: take {min} to {max}"));
    }
    Ok(value)
}

impl PeerPlan {
    /// Plans a new peer.
    ///
    /// # Errors
    /// An option that does not fit, by its name.
    pub fn new(
        wish: &PeerWish,
        topology: &Topology,
        fsid: &str,
        version: &str,
        flavour: Flavour,
    ) -> Result<Self> {
        let osds = in_range("--osds", wish.osds.unwrap_or(1), 1, OSDS_MAX)?;
        let pool = PoolPlan::new(osds, wish.size, None, wish.pgs)?;
        let (size, pgs) = (pool.size, pool.pg_num);
        if !wish.devices.is_empty() && wish.devices.len() != osds as usize {
            let (devices, osds) = (counted(wish.devices.len(), "device"), counted(osds as usize, "OSD"));
            return Err(usage!("--devs names {devices} for {osds}"));
        }
        let cpu = PlanRequest { osds: osds as usize, pgs, size: u32::from(size), ..PlanRequest::default() };
        let mut plan = Self {
            format: PEER_FORMAT,
            fsid: fsid.into(),
            complete: false,
            version: version.into(),
            flavour,
            build: wish.build.clone(),
            size,
            pgs,
            osd_size_bytes: in_range(
                "--osd-size (bytes)",
                wish.osd_size_bytes.unwrap_or(OSD_SIZE_DEFAULT_BYTES),
                OSD_SIZE_MIN_BYTES,
                1 << 50,
            )? / 4096
                * 4096,
            sparse: wish.sparse,
            devices: wish.devices.clone(),
            osd_memory_bytes: OSD_MEMORY_DEFAULT_BYTES,
            tuned: false,
            dear_flush: false,
            options: BTreeMap::new(),
            mon_port: 0,
            grid: Grid::plan(topology, &PlanRequest { overprovisioned: true, ..cpu.clone() })
                .map_err(|e| usage!("{e}"))?,
            cpu,
        };
        plan.apply(wish, topology)?;
        Ok(plan)
    }

    /// The plan for the next start: CPU lists and memory stay unless given, the settings (`--tuned`, `--opt`) are taken
    /// anew; what the data depends on may not differ.
    ///
    /// # Errors
    /// An option that does not fit or may not change, by its name.
    pub fn revise(&self, wish: &PeerWish, topology: &Topology) -> Result<Self> {
        fixed::<Self, _>("--osds", wish.osds, self.osds())?;
        fixed::<Self, _>("--size", wish.size, self.size)?;
        fixed::<Self, _>("--pgs", wish.pgs, self.pgs)?;
        let bytes = wish.osd_size_bytes.map(whole_blocks);
        fixed::<Self, _>("--osd-size", bytes, whole_blocks(self.osd_size_bytes))?;
        let devices = (!wish.devices.is_empty()).then(|| names(&wish.devices));
        fixed::<Self, _>("--devs", devices, names(&self.devices))?;
        let build = wish.build.as_ref().map(|build| build.display().to_string());
        let stored = self.build.as_ref().map_or("the installed packages".into(), |b| b.display().to_string());
        fixed::<Self, _>("--peer-build", build, stored)?;
        if wish.force_wipe {
            return Err(usage!(
                "--force-wipe: the stores of this peer exist; `carmine peer destroy` removes them"
            ));
        }
        let mut plan = self.clone();
        plan.apply(wish, topology)?;
        Ok(plan)
    }

    /// Takes over what may change at every start, and places the OSDs anew.
    fn apply(&mut self, wish: &PeerWish, topology: &Topology) -> Result<()> {
        self.cpu.cpus = wish.cpus.clone().or(self.cpu.cpus.take());
        self.cpu.client_cpus = wish.client_cpus.clone().or(self.cpu.client_cpus.take());
        self.cpu.overprovisioned |= wish.overprovisioned;
        let given = self.cpu.cpus.as_ref().map_or(0, CpuList::len);
        self.cpu.reactors = (given / self.cpu.osds).max(1);
        if let Some(bytes) = wish.osd_memory_bytes {
            let option = "--osd-memory (bytes)";
            self.osd_memory_bytes = in_range(option, bytes, OSD_MEMORY_MIN_BYTES, 1 << 50)?;
        }
        for (name, value) in &wish.options {
            check_option(name, value)?;
        }
        self.tuned = wish.tuned;
        self.options = wish.options.iter().cloned().collect();
        self.grid = Grid::plan(topology, &self.cpu).map_err(|e| usage!("{e}"))?;
        Ok(())
    }

    /// OSD processes.
    pub fn osds(&self) -> u32 {
        self.cpu.osds as u32
    }

    /// Cores of each OSD.
    pub fn cores_per_osd(&self) -> usize {
        self.cpu.reactors
    }

    /// CPUs that an OSD is confined to.
    pub fn osd_cpus(&self, osd: u32) -> Vec<usize> {
        self.grid.osds.get(osd as usize).map(OsdRow::reactor_cpus).unwrap_or_default()
    }

    /// CPUs of clients and of the monitor.
    pub fn client_cpus(&self) -> CpuList {
        self.grid.client_cpus()
    }

    /// `stock` or `tuned`.
    pub fn profile(&self) -> &'static str {
        if self.tuned { "tuned" } else { "stock" }
    }
}

fn parse_option(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write a setting as NAME=VALUE, such as osd_op_num_shards=4".into()),
    }
}

/// A setting goes into `ceph.conf` as one line: it must not be able to add another.
fn check_option(name: &str, value: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(usage!("--opt {name}: write Ceph's name with underscores, as osd_op_num_shards"));
    }
    if value.chars().any(char::is_control) {
        return Err(usage!("--opt {name}: its value has a line break or another control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Topology {
        Topology::from_short("1x8x1").expect("a shape")
    }

    fn list(text: &str) -> Option<CpuList> {
        Some(text.parse().expect("a CPU list"))
    }

    fn plan(wish: &PeerWish) -> Result<PeerPlan> {
        PeerPlan::new(wish, &machine(), "id", "16.2", Flavour::Classic)
    }

    #[test]
    fn cores_are_divided_evenly_among_the_osds() {
        let wish = PeerWish {
            osds: Some(2),
            cpus: list("0-5"),
            client_cpus: "6,7".parse().ok(),
            ..PeerWish::default()
        };
        let plan = plan(&wish).unwrap();
        assert_eq!(
            (plan.cores_per_osd(), plan.osd_cpus(0), plan.osd_cpus(1)),
            (3, vec![0, 1, 2], vec![3, 4, 5])
        );
        assert_eq!((plan.size, plan.pgs, plan.client_cpus().to_string()), (2, 128, "6-7".to_owned()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        type Change = fn(&mut PeerWish);
        let cases: [(&str, Change); 6] = [
            ("--osds 0", |w| w.osds = Some(0)),
            ("--size 2", |w| w.size = Some(2)),
            ("--pgs 33", |w| w.pgs = Some(33)),
            ("--devs names 2", |w| w.devices = vec!["/dev/a".into(), "/dev/b".into()]),
            ("--osd-size", |w| w.osd_size_bytes = Some(1)),
            ("--opt", |w| w.options = [("a".to_owned(), "1\n[mon]".to_owned())].into()),
        ];
        for (part, change) in cases {
            let mut wish = PeerWish::default();
            change(&mut wish);
            let error = plan(&wish).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_restart_changes_cpus_and_settings_but_not_the_data() {
        let options = [("osd_op_num_shards".to_owned(), "2".to_owned())].into();
        let wish = PeerWish { cpus: list("0"), tuned: true, options, ..PeerWish::default() };
        let made = plan(&wish).unwrap();
        let next = made.revise(&PeerWish { cpus: list("0-3"), ..PeerWish::default() }, &machine()).unwrap();
        assert_eq!((next.cores_per_osd(), next.tuned, next.options.len()), (4, false, 0));
        let same = made.revise(&PeerWish::default(), &machine()).unwrap();
        assert_eq!(same.osd_cpus(0), [0]);
        let refused = made.revise(&PeerWish { pgs: Some(64), ..PeerWish::default() }, &machine());
        assert!(refused.unwrap_err().to_string().contains("--pgs 64: this peer was made with 128"));
    }

    #[test]
    fn settings() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_option("osd_op_num_shards=4"), pair("osd_op_num_shards", "4"));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        assert!(parse_option("=4").is_err() && parse_option("a").is_err());
    }
}
