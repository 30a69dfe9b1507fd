//! The plan of a peer: that of a testbed, whose reactors are the OSDs' cores, and what only Ceph has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use carmine_topology::{CpuList, OsdRow, Topology};
use carmine_types::OsdId;
use serde::{Deserialize, Serialize};

use super::Flavour;
use crate::error::{Result, failed, refuse, usage};
use crate::plan::{Plan, check_bytes};
use crate::spec::{Wish, parse_path};

const OSDS_MAX: u32 = 64;
/// BlueStore refuses to make a file system in less.
const OSD_SIZE_MIN_BYTES: u64 = 512 << 20;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 4 << 30;
/// Ceph's own lower limit of `osd_memory_target`.
const OSD_MEMORY_MIN_BYTES: u64 = 896 << 20;

/// The options of `peer up` that `up` does not have.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct PeerWish {
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, instead of the installed packages
    #[arg(long = "peer-build", value_name = "FOLDER", value_parser = parse_path, help_heading = "Cluster")]
    pub build: Option<PathBuf>,
    /// Settings for solid-state drives, op shards and threads that fit the cores, no debug logs; give it at each `up`
    #[arg(long, help_heading = "Settings")]
    pub tuned: bool,
    /// A setting of the OSDs by Ceph's name, which overrides the profile's; repeatable; give it at each `up`
    #[arg(long = "opt", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Settings")]
    pub options: Vec<(String, String)>,
}

/// The part of a plan that only a peer has.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerPlan {
    /// Version line of `ceph-osd`.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// SSD settings, shards and threads fitted to the cores.
    pub tuned: bool,
    /// A flush of the drive waits for its medium; this is found out at every start.
    pub dear_flush: bool,
    /// Settings of the OSDs that were asked for, by Ceph's names.
    pub options: BTreeMap<String, String>,
}

/// The settings that are asked for, with a reactor for each core that an OSD gets of `cpus`.
fn divided(wish: &Wish, osds: u32, cpus: Option<&CpuList>) -> Wish {
    let given = cpus.map_or(0, CpuList::len);
    let cores = u16::try_from(given / (osds as usize).max(1)).unwrap_or(u16::MAX);
    Wish { reactors: Some(cores.max(1)), ..wish.clone() }
}

impl PeerPlan {
    /// `stock` or `tuned`.
    pub fn profile(&self) -> &'static str {
        if self.tuned { "tuned" } else { "stock" }
    }
}

impl Plan {
    /// Plans a new peer.
    ///
    /// # Errors
    /// An option that does not fit, by its name.
    pub fn new_peer(
        wish: &Wish,
        own: &PeerWish,
        topology: &Topology,
        fsid: &str,
        version: String,
        flavour: Flavour,
    ) -> Result<Self> {
        let osds = wish.osds.unwrap_or(1);
        refuse!(osds > OSDS_MAX, "--osds {osds}: take 1 to {OSDS_MAX}");
        let memory = wish.osd_memory_bytes.unwrap_or(OSD_MEMORY_DEFAULT_BYTES);
        let wish = Wish { osd_memory_bytes: Some(memory), ..divided(wish, osds, wish.osd_cpus.as_ref()) };
        let plan = Plan::new(&wish, topology, fsid)?;
        check_bytes("--osd-size", plan.osd_size_bytes, OSD_SIZE_MIN_BYTES)?;
        check_bytes("--osd-memory", plan.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
        let (build, tuned, options) = (own.build.clone(), own.tuned, own.options.iter().cloned().collect());
        let peer = PeerPlan { version, flavour, build, tuned, dear_flush: false, options };
        Ok(Self { peer: Some(peer), ..plan })
    }

    /// A peer's plan for the next start: CPU lists and memory stay unless given, the settings (`--tuned`, `--opt`) and the version
    /// are taken anew; what the data depends on may not differ.
    ///
    /// # Errors
    /// An option that does not fit or may not change, by its name.
    pub fn revise_peer(
        &self,
        wish: &Wish,
        own: &PeerWish,
        topology: &Topology,
        version: String,
    ) -> Result<Self> {
        let peer = self.peer()?;
        if let Some(build) = own.build.as_ref().filter(|build| peer.build.as_ref() != Some(*build)) {
            let (new, old) = (build.display(), peer.build.as_ref().map(|old| old.display().to_string()));
            let old = old.unwrap_or_else(|| "the installed packages".into());
            return Err(usage!("--peer-build {new}: this peer was made with {old}; leave the option out"));
        }
        let cpus = wish.osd_cpus.as_ref().or(self.osd_cpus.as_ref());
        let plan = self.revise(&divided(wish, self.osds(), cpus), topology)?;
        check_bytes("--osd-memory", plan.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
        let (tuned, options) = (own.tuned, own.options.iter().cloned().collect());
        Ok(Self { peer: Some(PeerPlan { version, tuned, options, ..peer.clone() }), ..plan })
    }

    /// The part that only a peer has.
    ///
    /// # Errors
    /// This is not the plan of a peer.
    pub fn peer(&self) -> Result<&PeerPlan> {
        self.peer.as_ref().ok_or_else(|| failed!("this is not the plan of a peer"))
    }

    /// CPUs that a peer's OSD is confined to.
    pub fn osd_cpus(&self, osd: OsdId) -> Vec<usize> {
        self.row(osd).map(OsdRow::reactor_cpus).unwrap_or_default()
    }
}

/// A setting goes into `ceph.conf` as one line, and must not be able to add another.
fn parse_option(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || value.chars().any(char::is_control) {
        return Err("write a setting as NAME=VALUE on one line, such as osd_op_num_shards=4".into());
    }
    if ["public_", "cluster_"].iter().any(|begin| name.starts_with(begin)) {
        return Err(format!("{name}: a peer listens on loopback only, where no other machine reaches it"));
    }
    Ok((name.to_owned(), value.to_owned()))
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

    fn plan(wish: &Wish, own: &PeerWish) -> Result<Plan> {
        Plan::new_peer(wish, own, &machine(), "id", "16.2".into(), Flavour::Classic)
    }

    #[test]
    fn cores_are_divided_evenly_among_the_osds() {
        let client_cpus = "6,7".parse().ok();
        let wish = Wish { osds: Some(2), osd_cpus: list("0-5"), client_cpus, ..Wish::default() };
        let plan = plan(&wish, &PeerWish::default()).unwrap();
        assert_eq!(
            (plan.cpu.reactors, plan.osd_cpus(OsdId(0)), plan.osd_cpus(OsdId(1))),
            (3, vec![0, 1, 2], vec![3, 4, 5])
        );
        assert_eq!(
            (plan.pool.size, plan.pool.pg_num, plan.grid.client_cpus().to_string()),
            (2, 128, "6-7".to_owned())
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        type Change = fn(&mut Wish);
        let cases: [(&str, Change); 6] = [
            ("--osds 0", |w| w.osds = Some(0)),
            ("--size 2", |w| w.pool_size = Some(2)),
            ("--pgs 33", |w| w.pgs = Some(33)),
            ("--devs names 2", |w| w.devices = Some(vec!["/dev/a".into(), "/dev/b".into()])),
            ("--osd-size 256M", |w| w.osd_size_bytes = Some(256 << 20)),
            ("--osd-memory 1M", |w| w.osd_memory_bytes = Some(1 << 20)),
        ];
        for (part, change) in cases {
            let mut wish = Wish::default();
            change(&mut wish);
            let error = plan(&wish, &PeerWish::default()).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_restart_changes_cpus_and_settings_but_not_the_data() {
        let options = [("osd_op_num_shards".to_owned(), "2".to_owned())].into();
        let (none, own) = (PeerWish::default(), PeerWish { tuned: true, options, ..PeerWish::default() });
        let cpus = |text| Wish { osd_cpus: list(text), ..Wish::default() };
        let made = plan(&cpus("0"), &own).unwrap();
        let revise = |made: &Plan, wish: Wish| made.revise_peer(&wish, &none, &machine(), "17.1".into());
        let next = revise(&made, cpus("0-3")).unwrap();
        let peer = next.peer().unwrap();
        assert_eq!((next.cpu.reactors, peer.tuned, peer.options.len()), (4, false, 0));
        assert_eq!((made.peer().unwrap().version.as_str(), peer.version.as_str()), ("16.2", "17.1"));
        // Fields that only Carmine has are not written, and not missed.
        let json = serde_json::to_value(&made).unwrap();
        assert!(
            json["osds"] == 1 && ["store", "poll", "tuning"].iter().all(|name| json.get(*name).is_none()),
            "{json}"
        );
        assert_eq!((&json["version"], &json["options"]["osd_op_num_shards"]), (&"16.2".into(), &"2".into()));
        let made: Plan = serde_json::from_value(json).unwrap();
        let same = revise(&made, Wish::default()).unwrap();
        assert_eq!(same.osd_cpus(OsdId(0)), [0]);
        let refused = revise(&made, Wish { pgs: Some(64), ..Wish::default() });
        assert!(refused.unwrap_err().to_string().contains("--pgs 64: this peer was made with 128"));
    }

    #[test]
    fn settings() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_option("osd_op_num_shards=4"), pair("osd_op_num_shards", "4"));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        for text in ["=4", "a", "a=1\n[mon]", "osd op=1", "a\n[mon]=1", ""] {
            assert!(parse_option(text).is_err(), "{text}");
        }
    }
}
