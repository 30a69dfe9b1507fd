//! The `ceph.conf` of a cluster that OSDs join: which cluster it is, and where its monitors are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use carmine_types::Uuid;
use ipnet::IpNet;

use crate::error::{Result, usage};
use crate::spec::parse_network;

/// Port of a monitor's messenger v2.
const PORT: u16 = 3300;
/// Port of messenger v1.
const V1_PORT: u16 = 6789;
/// The options that name the methods of authentication; the first is an older name for the three others.
const AUTH: [&str; 4] =
    ["auth_supported", "auth_cluster_required", "auth_service_required", "auth_client_required"];

/// A cluster, by its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClusterConf {
    pub(super) fsid: Uuid,
    /// Addresses of the monitors.
    pub(super) mons: Vec<SocketAddr>,
    /// Networks on which its daemons listen; empty: it names none.
    pub(super) public_network: Vec<IpNet>,
    /// The same of its OSDs, for each other.
    pub(super) cluster_network: Vec<IpNet>,
    /// Seconds of silence after which an OSD reports another one, …
    pub(super) heartbeat_grace_s: Option<u32>,
    /// … and between two pings, if it says so.
    pub(super) heartbeat_interval_s: Option<u32>,
}

impl ClusterConf {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, lacks something, or is that of a cluster which requires authentication.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let wrong = |why: String| usage!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let options = global(text);
        check_auth(&options)?;
        let get = |name: &str| options.get(name).ok_or_else(|| format!("it has no {name} in [global]"));
        let fsid = get("fsid")?.parse().map_err(|e| format!("fsid: {e}"))?;
        let seconds = |name: &str| {
            let value = options.get(name).map(|text| text.parse::<u32>());
            value.transpose().map_err(|e| format!("{name}: {e}"))
        };
        let networks = |name: &str| networks(name, options.get(name).map_or("", String::as_str));
        Ok(Self {
            fsid,
            mons: mons(get("mon_host")?)?,
            public_network: networks("public_network")?,
            cluster_network: networks("cluster_network")?,
            heartbeat_grace_s: seconds("osd_heartbeat_grace")?,
            heartbeat_interval_s: seconds("osd_heartbeat_interval")?,
        })
    }
}

/// Networks in a list, which may be empty.
fn networks(name: &str, text: &str) -> Result<Vec<IpNet>, String> {
    let words = text.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    words.map(|word| parse_network(word).map_err(|e| format!("{name} has {word}: {e}"))).collect()
}

/// The options of the section `[global]`. As in Ceph, a name may have spaces or dashes in place of underscores.
fn global(text: &str) -> BTreeMap<String, String> {
    let text = text.replace("\\\n", " ");
    let (mut options, mut is_global) = (BTreeMap::new(), true);
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[') {
            is_global = section.trim_end_matches(']').trim() == "global";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_global) {
            let name = name.trim().replace([' ', '\t', '-'], "_");
            options.insert(name, value.trim().trim_matches(['"', '\'']).to_owned());
        }
    }
    options
}

/// Fails unless the cluster works without authentication.
fn check_auth(options: &BTreeMap<String, String>) -> Result<(), String> {
    let given: Vec<_> = AUTH.iter().filter_map(|name| Some((name, options.get(*name)?))).collect();
    let Some((name, value)) = given.iter().find(|(_, value)| value.trim() != "none") else {
        let is_default = "it does not set auth_client_required, so that the cluster requires cephx";
        return if given.is_empty() { Err(format!("{is_default}, {NO_CEPHX}")) } else { Ok(()) };
    };
    Err(format!("{name} = {value}: this cluster requires authentication, {NO_CEPHX}"))
}

const NO_CEPHX: &str = "which Carmine's OSDs do not have yet: they can join only a cluster with auth_cluster_required, \
                        auth_service_required and auth_client_required = none";

/// The addresses in `mon_host` at which monitors speak messenger v2.
fn mons(text: &str) -> Result<Vec<SocketAddr>, String> {
    let (mut v2, mut v1) = (Vec::new(), Vec::new());
    for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
        let (is_v1, addr) = mon(word).ok_or_else(|| {
            format!(
                "mon_host has {word}: write addresses such as 10.0.0.1, 10.0.0.1:3300 or [v2:10.0.0.1:3300/0]"
            )
        })?;
        let known = if is_v1 { &mut v1 } else { &mut v2 };
        if !known.contains(&addr) {
            known.push(addr);
        }
    }
    let has_v2 = |addr: &&SocketAddr| v2.iter().any(|other: &SocketAddr| other.ip() == addr.ip());
    if let Some(addr) = v1.iter().find(|addr| !has_v2(addr)) {
        return Err(format!(
            "mon_host names the monitor at {addr} by its address of messenger v1 only, which Carmine does not speak: add that of v2 \
             (`ceph mon dump` shows it, `ceph mon enable-msgr2` makes one), as in [v2:{}:{PORT},v1:{addr}]",
            addr.ip()
        ));
    }
    if v2.is_empty() { Err("mon_host is empty".to_owned()) } else { Ok(v2) }
}

/// One address of a monitor, and whether it is of messenger v1. Brackets around several addresses, which belong to one monitor, are
/// skipped.
fn mon(word: &str) -> Option<(bool, SocketAddr)> {
    let word = if word.starts_with("[v") { &word[1..] } else { word };
    let is_open = word.matches(']').count() > word.matches('[').count();
    let word = if is_open { word.strip_suffix(']')? } else { word };
    let (kind, addr) = match word.split_once(':') {
        Some((kind @ ("v1" | "v2"), addr)) => (Some(kind), addr),
        _ => (None, word),
    };
    let addr = addr.split('/').next()?;
    let without_port = || addr.trim_matches(['[', ']']).parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    let addr: SocketAddr = addr.parse().or_else(|_| without_port()).ok()?;
    let is_v1 = kind.map_or(addr.port() == V1_PORT, |kind| kind == "v1");
    Some((is_v1, addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSID: &str = "2f3c1a52-0000-4000-8000-00000000000a";

    fn parsed(more: &str) -> Result<ClusterConf, String> {
        ClusterConf::parse(&format!("[global]\nfsid = {FSID}\nauth client required = none\n{more}"))
    }

    fn addrs(mon_host: &str) -> Result<Vec<String>, String> {
        Ok(mons(mon_host)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn monitors_are_named_in_many_ways() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:3300"),
            ("10.0.0.1:3300", "10.0.0.1:3300"),
            ("10.0.0.1:40000", "10.0.0.1:40000"),
            ("v2:10.0.0.1:3300", "10.0.0.1:3300"),
            ("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "10.0.0.1:3300"),
            ("[v1:10.0.0.1:6789/0,v2:10.0.0.1:3300/0]", "10.0.0.1:3300"),
            ("[v2:10.0.0.1:3300/0]", "10.0.0.1:3300"),
            ("10.0.0.1:3300 10.0.0.1:6789", "10.0.0.1:3300"),
            ("[::1]", "[::1]:3300"),
            ("::1", "[::1]:3300"),
            ("[fd00::1]:3300", "[fd00::1]:3300"),
            ("[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]", "[fd00::1]:3300"),
        ] {
            assert_eq!(addrs(text).as_deref(), Ok(&[expected.to_owned()][..]), "{text}");
        }
        let three =
            "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0] 10.0.0.3";
        assert_eq!(addrs(three).unwrap(), ["10.0.0.1:3300", "10.0.0.2:3300", "10.0.0.3:3300"]);
    }

    #[test]
    fn monitors_that_only_speak_v1_are_refused() {
        for text in ["10.0.0.1:6789", "v1:10.0.0.1:6789/0", "[v2:10.0.0.2:3300/0],[v1:10.0.0.1:6789/0]"] {
            let error = addrs(text).unwrap_err();
            assert!(error.contains("messenger v1 only") && error.contains("10.0.0.1:6789"), "{error}");
        }
        assert!(addrs("mon.example.org").unwrap_err().contains("mon.example.org"));
        assert!(addrs(" ").unwrap_err().contains("empty"));
    }

    #[test]
    fn a_file_is_read_as_ceph_reads_it() {
        let text = format!(
            "# a comment\nfsid = {FSID}\n[global]\n\tmon host = 10.0.0.1, \\\n 10.0.0.2 ; both\n auth-client-required = \"none\"\n\
             [mon]\nmon_host = 10.0.0.9\nauth_client_required = cephx\n"
        );
        let conf = ClusterConf::parse(&text).unwrap();
        assert_eq!(conf.fsid.to_string(), FSID);
        assert_eq!(conf.mons.len(), 2);
        assert!(conf.public_network.is_empty() && conf.cluster_network.is_empty());
        let apart = parsed(
            "mon_host = 10.0.0.1\npublic network = 10.0.0.0/24, fd00::/64\nosd heartbeat grace = 4\ncluster_network = 10.1.0.9/24",
        );
        let apart = apart.unwrap();
        assert_eq!((apart.heartbeat_grace_s, apart.heartbeat_interval_s), (Some(4), None));
        assert_eq!(
            (apart.public_network.len(), apart.cluster_network[0].to_string().as_str()),
            (2, "10.1.0.0/24")
        );
        for (more, part) in [
            ("", "no mon_host"),
            ("mon_host = 10.0.0.1\nfsid = x", "fsid"),
            (
                "mon_host = 10.0.0.1\npublic_network = 10.0.0.0",
                "public_network has 10.0.0.0: write a network",
            ),
            ("mon_host = 10.0.0.1\nauth_cluster_required = cephx", "auth_cluster_required = cephx"),
        ] {
            let error = parsed(more).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let error = ClusterConf::parse(&format!("fsid = {FSID}\nmon_host = 10.0.0.1\n")).unwrap_err();
        assert!(error.contains("cephx"), "{error}");
    }
}
