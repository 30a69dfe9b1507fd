//! The plan of OSDs that join a Ceph cluster, and their places in its CRUSH map.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use carmine_topology::Topology;
use carmine_types::{MonKind, OsdId, StoreKind};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::conf::ClusterConf;
use crate::error::{Result, failed, refuse};
use crate::files::fresh_uuid;
use crate::plan::{Plan, is_name, real};
use crate::spec::Wish;

/// File with this machine's name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Weight of each OSD of a testbed, as with the embedded monitor.
const TESTBED_WEIGHT: f64 = 1.0;
/// An OSD's weight in a cluster is its size in these units, as Ceph has it.
const WEIGHT_BYTES: f64 = (1_u64 << 40) as f64;

/// The cluster that OSDs join, and their place in it, as options.
#[derive(clap::Args, Clone, Debug)]
pub struct JoinWish {
    /// Configuration of the cluster: `mon_host`, `fsid`, and auth_*_required = none. It is read at each start
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf", help_heading = "Cluster")]
    pub ceph_conf: PathBuf,
    /// Where the host is in the CRUSH map, such as root=default,rack=r1
    #[arg(
        long,
        value_name = "TYPE=NAME,…",
        value_delimiter = ',',
        default_value = "root=default",
        help_heading = "Cluster"
    )]
    pub location: Vec<String>,
}

/// The part of a plan that only OSDs have that have joined a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoinPlan {
    /// Identity of this folder: its stores get theirs from it, so that no two hosts of a cluster make the same.
    pub uuid: String,
    /// Configuration of the cluster.
    pub ceph_conf: PathBuf,
    /// The monitors' addresses when it was last read.
    pub mons: Vec<SocketAddr>,
    /// Place of the host in the CRUSH map: `host=NAME`, then what it is in.
    pub location: Vec<String>,
    /// Numbers of the OSDs, in the order of their places.
    pub ids: Vec<u32>,
}

impl Plan {
    /// Plans OSDs that join the cluster of `join`, whose monitors must answer. Their numbers are those that are free now.
    ///
    /// # Errors
    /// An option that does not fit, by its name; or the cluster cannot be joined.
    pub fn new_joined(wish: &Wish, join: &JoinWish, topology: &Topology) -> Result<Self> {
        wish.refuse_of_clusters()?;
        let store = wish.store.unwrap_or(StoreKind::Blue);
        refuse!(!store.is_durable(), "--store {store}: it keeps nothing, and an OSD of a cluster has to");
        let host = wish.host.clone().map_or_else(host_name, Ok)?;
        let location = location(&host, join)?;
        let ceph_conf = real(&join.ceph_conf);
        let (cluster, mon, ids) = ClusterConf::find(&ceph_conf, wish.osds.unwrap_or(1), &location)?;
        let wish = Wish { host: None, mon: Some(mon), ..with_settings_of(wish, &cluster)? };
        let joined = JoinPlan { uuid: fresh_uuid()?, ceph_conf, mons: cluster.mons, location, ids };
        let mut plan = Plan::new(&wish, topology, &cluster.fsid.to_string())?;
        plan.spec.host = Some(host);
        Ok(Plan { joined: Some(joined), ..plan }.numbered())
    }

    /// Place and weight of an OSD in the CRUSH map, where the OSD or this controller asks the monitor for them.
    ///
    /// # Errors
    /// Its device cannot be looked at.
    pub fn crush_place(&self, osd: OsdId) -> Result<(Vec<String>, f64)> {
        match &self.joined {
            Some(joined) => Ok((joined.location.clone(), self.crush_weight(osd)?)),
            // Each OSD of a testbed that is a whole cluster is a host, so that copies are on several.
            None => {
                let host = self.host.clone().unwrap_or_else(|| format!("host-{}", osd.0));
                Ok((vec![format!("host={host}"), "root=default".to_owned()], TESTBED_WEIGHT))
            }
        }
    }

    /// The weight of an OSD that joins: that of all others where a testbed's own monitor is, else by its size.
    fn crush_weight(&self, osd: OsdId) -> Result<f64> {
        match self.mon {
            MonKind::Embedded => Ok(TESTBED_WEIGHT),
            MonKind::Ceph => Ok(self.store_bytes(osd)? as f64 / WEIGHT_BYTES),
        }
    }
}

/// `wish` with the settings that the cluster's configuration has, and with an address on which the OSDs listen, unless there are networks
/// in which they have one.
fn with_settings_of(wish: &Wish, cluster: &ClusterConf) -> Result<Wish> {
    let mut wish = wish.clone();
    let of_cluster = |networks: &[IpNet]| Some(networks.to_vec()).filter(|networks| !networks.is_empty());
    wish.osd_heartbeat_grace_s = wish.osd_heartbeat_grace_s.or(cluster.heartbeat_grace_s);
    wish.osd_heartbeat_interval_s = wish.osd_heartbeat_interval_s.or(cluster.heartbeat_interval_s);
    wish.cluster_network = wish.cluster_network.or_else(|| of_cluster(&cluster.cluster_network));
    if wish.addr.is_none() {
        wish.public_network = wish.public_network.or_else(|| of_cluster(&cluster.public_network));
    }
    if wish.public_network.is_none() {
        let addr = wish.addr.map_or_else(|| local_addr(cluster.mons[0]), Ok)?;
        refuse!(addr.port() != 0, "--addr {addr}: OSDs choose their ports; name an address only");
        wish.addr = Some(addr);
    }
    Ok(wish)
}

/// `host=NAME`, and what the host is in.
fn location(host: &str, join: &JoinWish) -> Result<Vec<String>> {
    refuse!(!is_name(host), "--host {host}: take letters, digits, `-`, `_` and `.`");
    for part in &join.location {
        let named = part.split_once('=').filter(|(kind, name)| is_name(kind) && is_name(name));
        refuse!(named.is_none(), "--location {part}: write TYPE=NAME, such as rack=r1");
        refuse!(part.starts_with("host="), "--location {part}: --host names the host");
    }
    Ok([vec![format!("host={host}")], join.location.clone()].concat())
}

fn host_name() -> Result<String> {
    let name = std::fs::read_to_string(HOST_NAME)?;
    Ok(name.trim().split('.').next().unwrap_or_default().to_owned())
}

/// The address of this machine from which a monitor is reached.
fn local_addr(mon: SocketAddr) -> Result<SocketAddr> {
    let any = if mon.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let connected = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(mon)?;
        socket.local_addr()
    });
    let local =
        connected.map_err(|e| failed!("no way to the monitor at {mon}: {e}; --addr names an address"))?;
    Ok(SocketAddr::new(local.ip(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Two OSDs of a cluster in which others are.
    fn plan(ids: &[u32], wish: Wish) -> Plan {
        let topology = Topology::from_short("1x8x1").unwrap();
        let wish = Wish { osds: Some(ids.len() as u32), ..wish };
        let plan = Plan::new(&wish, &topology, "2f3c1a52-0000-4000-8000-00000000000a").unwrap();
        let joined = JoinPlan {
            uuid: "00000000-0000-4000-8000-000000000001".into(),
            ceph_conf: "/etc/ceph/ceph.conf".into(),
            mons: vec!["10.0.0.1:3300".parse().unwrap()],
            location: vec!["host=b".into(), "root=default".into()],
            ids: ids.to_vec(),
        };
        Plan { joined: Some(joined), ..plan }.numbered()
    }

    #[test]
    fn numbers_are_those_of_the_cluster() {
        let devices = ["/dev/a", "/dev/b", "/dev/c"].map(PathBuf::from);
        let mut plan = plan(&[4, 2, 9], Wish { devices: Some(devices.to_vec()), ..Wish::default() });
        assert_eq!(plan.osd_ids().collect::<Vec<_>>(), [4, 2, 9].map(OsdId));
        assert_eq!(plan.grid.osds.iter().map(|row| row.osd).collect::<Vec<_>>(), [4, 2, 9]);
        assert_eq!(plan.row(OsdId(9)).unwrap(), &plan.grid.osds[2]);
        assert_eq!(plan.device_of(OsdId(2)), Some(Path::new("/dev/b")));
        assert!(plan.row(OsdId(0)).is_err() && plan.device_of(OsdId(0)).is_none());
        plan.removed.insert(2);
        assert_eq!(plan.osd_ids().collect::<Vec<_>>(), [4, 9].map(OsdId));
        assert_eq!(plan.place_of(OsdId(9)), Some(2));
        let error = plan.require_osd(OsdId(2)).unwrap_err().to_string();
        assert!(error.contains("osd.2") && error.contains("4,9"), "{error}");
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn a_revised_plan_keeps_the_numbers_and_has_no_settings_of_the_cluster() {
        let topology = Topology::from_short("1x8x1").unwrap();
        let plan = plan(&[4, 2], Wish::default());
        let again = plan.revise(&Wish { reactors: Some(2), ..Wish::default() }, &topology).unwrap();
        assert_eq!(again.grid.osds.iter().map(|row| row.osd).collect::<Vec<_>>(), [4, 2]);
        let error = plan.revise(&Wish { pool_size: Some(2), ..Wish::default() }, &topology).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("--size"), "{error}");
    }

    #[test]
    fn two_folders_of_a_cluster_have_different_stores() {
        let (first, mut second) = (plan(&[4], Wish::default()), plan(&[4], Wish::default()));
        assert_eq!(first.fsid, second.fsid);
        second.joined.as_mut().unwrap().uuid = "00000000-0000-4000-8000-000000000002".into();
        assert_ne!(first.store_uuid(OsdId(4)).unwrap(), second.store_uuid(OsdId(4)).unwrap());
    }

    #[test]
    fn a_weight_is_the_size_in_tib() {
        let half = |mon| Wish { osd_size_bytes: Some(1 << 39), mon: Some(mon), ..Wish::default() };
        let of = |mon| plan(&[4], half(mon)).crush_place(OsdId(4)).unwrap();
        let (location, weight) = of(MonKind::Ceph);
        assert_eq!((location.join(" ").as_str(), weight), ("host=b root=default", 0.5));
        assert_eq!(of(MonKind::Embedded).1, 1.0, "as all OSDs of a testbed");
    }

    #[test]
    fn a_location_has_types_and_names() {
        let of = |host: &str, location: &[&str]| {
            let location = location.iter().map(|part| (*part).to_owned()).collect();
            super::location(host, &JoinWish { ceph_conf: PathBuf::new(), location })
        };
        assert_eq!(of("b", &["root=default", "rack=r1"]).unwrap(), ["host=b", "root=default", "rack=r1"]);
        for (host, part, said) in [
            ("b c", "root=default", "--host b c"),
            ("b", "default", "--location default"),
            ("b", "rack=", "--location rack="),
            ("b", "host=c", "--host names"),
        ] {
            let error = of(host, &[part]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_local_address_is_the_one_towards_the_monitor() {
        assert_eq!(local_addr("127.0.0.1:3300".parse().unwrap()).unwrap().to_string(), "127.0.0.1:0");
    }
}
