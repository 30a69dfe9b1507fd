//! The plan of a peer: that of a testbed, whose reactors are the OSDs' cores, and what only Ceph has.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;

use carmine_topology::{CpuList, OsdRow, Topology};
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::Flavour;
use crate::error::{Result, refuse, usage};
use crate::plan::{Plan, check_bytes};
use crate::spec::{Wish, not_of_peers, parse_path};

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
    /// Settings for solid-state drives, op shards and threads that fit the cores, no debug logs; say it at each `up`
    #[arg(long, help_heading = "Settings")]
    pub tuned: bool,
    /// A setting of the OSDs by Ceph's name, which overrides the profile's; repeatable; say them at each `up`
    #[arg(long = "opt", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Settings")]
    pub options: Vec<(String, String)>,
}

/// A peer as it is started; kept in `peer.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerPlan {
    /// The settings that it shares with a testbed: one "reactor" is one core of an OSD.
    #[serde(flatten, serialize_with = "of_peer")]
    pub plan: Plan,
    /// Version line of `ceph-osd`.
    pub version: String,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Folder of the build; the installed packages when absent.
    pub build: Option<PathBuf>,
    /// SSD settings, shards and threads fitted to the cores.
    pub tuned: bool,
    /// A flush of the drive waits for its medium; found out at every start.
    pub dear_flush: bool,
    /// Settings of the OSDs that were asked for, by Ceph's names.
    pub options: BTreeMap<String, String>,
}

/// Writes a plan without the settings that a peer does not have.
fn of_peer<S: Serializer>(plan: &Plan, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(plan).map_err(S::Error::custom)?;
    if let Value::Object(map) = &mut value {
        not_of_peers().for_each(|name| _ = map.remove(name));
    }
    value.serialize(serializer)
}

impl Deref for PeerPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

/// The settings that are asked for, with a reactor for each core that an OSD gets of `cpus`.
fn divided(wish: &Wish, osds: u32, cpus: Option<&CpuList>) -> Wish {
    let given = cpus.map_or(0, CpuList::len);
    let cores = u16::try_from(given / (osds as usize).max(1)).unwrap_or(u16::MAX);
    Wish { reactors: Some(cores.max(1)), ..wish.clone() }
}

impl PeerPlan {
    /// Plans a new peer.
    ///
    /// # Errors
    /// An option that does not fit, by its name.
    pub fn new(
        wish: &Wish,
        own: &PeerWish,
        topology: &Topology,
        fsid: &str,
        version: &str,
        flavour: Flavour,
    ) -> Result<Self> {
        let osds = wish.osds.unwrap_or(1);
        refuse!(osds > OSDS_MAX, "--osds {osds}: take 1 to {OSDS_MAX}");
        let memory = wish.osd_memory_bytes.unwrap_or(OSD_MEMORY_DEFAULT_BYTES);
        let wish = Wish { osd_memory_bytes: Some(memory), ..divided(wish, osds, wish.osd_cpus.as_ref()) };
        let plan = Plan::new(&wish, topology, fsid)?;
        check_bytes("--osd-size", plan.osd_size_bytes, OSD_SIZE_MIN_BYTES)?;
        let (build, options) = (own.build.clone(), BTreeMap::new());
        let version = version.into();
        let peer = Self { plan, version, flavour, build, tuned: false, dear_flush: false, options };
        peer.with(own)
    }

    /// The plan for the next start: CPU lists and memory stay unless given, the settings (`--tuned`, `--opt`) are taken
    /// anew; what the data depends on may not differ.
    ///
    /// # Errors
    /// An option that does not fit or may not change, by its name.
    pub fn revise(&self, wish: &Wish, own: &PeerWish, topology: &Topology) -> Result<Self> {
        if let Some(build) = own.build.as_ref().filter(|build| self.build.as_ref() != Some(*build)) {
            let (new, old) = (build.display(), self.build.as_ref().map(|old| old.display().to_string()));
            let old = old.unwrap_or_else(|| "the installed packages".into());
            return Err(usage!("--peer-build {new}: this peer was made with {old}; leave the option out"));
        }
        let cpus = wish.osd_cpus.as_ref().or(self.osd_cpus.as_ref());
        let wish = divided(wish, self.osds(), cpus);
        let plan = self.plan.revised::<Self>(&wish, topology)?;
        Self { plan, ..self.clone() }.with(own)
    }

    /// With the settings that are taken anew at every start.
    fn with(mut self, own: &PeerWish) -> Result<Self> {
        check_bytes("--osd-memory", self.osd_memory_bytes, OSD_MEMORY_MIN_BYTES)?;
        for (name, value) in &own.options {
            // It goes into `ceph.conf` as one line: it must not be able to add another.
            let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            refuse!(!is_plain, "--opt {name}: write Ceph's name with underscores, as osd_op_num_shards");
            let is_line = !value.chars().any(char::is_control);
            refuse!(!is_line, "--opt {name}: its value has a line break or another control character");
        }
        (self.tuned, self.options) = (own.tuned, own.options.iter().cloned().collect());
        Ok(self)
    }

    /// Cores of each OSD.
    pub fn cores_per_osd(&self) -> usize {
        self.cpu.reactors
    }

    /// CPUs that an OSD is confined to.
    pub fn osd_cpus(&self, osd: u32) -> Vec<usize> {
        self.grid.osds.get(osd as usize).map(OsdRow::reactor_cpus).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Topology {
        Topology::from_short("1x8x1").expect("a shape")
    }

    fn list(text: &str) -> Option<CpuList> {
        Some(text.parse().expect("a CPU list"))
    }

    fn plan(wish: &Wish, own: &PeerWish) -> Result<PeerPlan> {
        PeerPlan::new(wish, own, &machine(), "id", "16.2", Flavour::Classic)
    }

    #[test]
    fn cores_are_divided_evenly_among_the_osds() {
        let client_cpus = "6,7".parse().ok();
        let wish = Wish { osds: Some(2), osd_cpus: list("0-5"), client_cpus, ..Wish::default() };
        let plan = plan(&wish, &PeerWish::default()).unwrap();
        assert_eq!(
            (plan.cores_per_osd(), plan.osd_cpus(0), plan.osd_cpus(1)),
            (3, vec![0, 1, 2], vec![3, 4, 5])
        );
        assert_eq!(
            (plan.pool.size, plan.pool.pg_num, plan.client_cpus().to_string()),
            (2, 128, "6-7".to_owned())
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        type Change = fn(&mut Wish, &mut PeerWish);
        let cases: [(&str, Change); 7] = [
            ("--osds 0", |w, _| w.osds = Some(0)),
            ("--size 2", |w, _| w.pool_size = Some(2)),
            ("--pgs 33", |w, _| w.pgs = Some(33)),
            ("--devs names 2", |w, _| w.devices = Some(vec!["/dev/a".into(), "/dev/b".into()])),
            ("--osd-size 256M", |w, _| w.osd_size_bytes = Some(256 << 20)),
            ("--osd-memory 1M", |w, _| w.osd_memory_bytes = Some(1 << 20)),
            ("--opt", |_, w| w.options = [("a".to_owned(), "1\n[mon]".to_owned())].into()),
        ];
        for (part, change) in cases {
            let (mut wish, mut own) = (Wish::default(), PeerWish::default());
            change(&mut wish, &mut own);
            let error = plan(&wish, &own).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_restart_changes_cpus_and_settings_but_not_the_data() {
        let options = [("osd_op_num_shards".to_owned(), "2".to_owned())].into();
        let (none, own) = (PeerWish::default(), PeerWish { tuned: true, options, ..PeerWish::default() });
        let cpus = |text| Wish { osd_cpus: list(text), ..Wish::default() };
        let made = plan(&cpus("0"), &own).unwrap();
        let next = made.revise(&cpus("0-3"), &none, &machine()).unwrap();
        assert_eq!((next.cores_per_osd(), next.tuned, next.options.len()), (4, false, 0));
        // Fields that only Carmine has are not written, and not missed.
        let json = serde_json::to_value(&made).unwrap();
        assert!(
            json["osds"] == 1 && ["store", "poll", "tuning"].iter().all(|name| json.get(*name).is_none()),
            "{json}"
        );
        let made: PeerPlan = serde_json::from_value(json).unwrap();
        let same = made.revise(&Wish::default(), &none, &machine()).unwrap();
        assert_eq!(same.osd_cpus(0), [0]);
        let refused = made.revise(&Wish { pgs: Some(64), ..Wish::default() }, &none, &machine());
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
