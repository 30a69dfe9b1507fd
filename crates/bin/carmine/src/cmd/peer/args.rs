//! Options of `carmine peer`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use carmine_peer::PeerWish;
use carmine_topology::CpuList;
use clap::{Args, Subcommand};

use crate::args::{parse_bytes, parse_path};

/// A real Ceph on loopback, to measure beside.
#[derive(Args)]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    pub(crate) command: PeerCommand,
}

#[derive(Subcommand)]
pub(crate) enum PeerCommand {
    /// Start a peer: make it if the folder is empty, start it again (with other CPUs or settings) if it is stopped
    Up(Box<PeerUpArgs>),
    /// Show the state of a peer, its settings and what it leaves undone
    Status(PeerStatusArgs),
    /// Stop a peer; its data stays
    Down(PeerDirArgs),
    /// Stop a peer and remove its data
    Destroy(PeerDirArgs),
}

/// Where a peer lives.
#[derive(Args, Clone, Debug)]
pub(crate) struct PeerDirArgs {
    /// Folder of the peer
    #[arg(long, value_name = "FOLDER", default_value = "carmine-peer")]
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct PeerStatusArgs {
    #[command(flatten)]
    pub(crate) dir: PeerDirArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct PeerUpArgs {
    #[command(flatten)]
    pub(crate) dir: PeerDirArgs,
    /// Number of OSD processes [default: 1]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    osds: Option<u32>,
    /// Replicas [default: 3, or the number of OSDs if that is less]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    size: Option<u8>,
    /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pgs: Option<u32>,
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, instead of the installed packages
    #[arg(long, value_name = "FOLDER", help_heading = "Cluster")]
    peer_build: Option<PathBuf>,
    /// Solid-state settings, op shards and threads fitted to the cores, no debug logs; each `up` says it anew
    #[arg(long, help_heading = "Settings")]
    tuned: bool,
    /// A setting of the OSDs by Ceph's name, over the profile's; repeatable, each `up` says them anew
    #[arg(long = "opt", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Settings")]
    options: Vec<(String, String)>,
    /// osd_memory_target of each OSD, such as 2G [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Settings")]
    osd_memory: Option<u64>,
    /// Block devices, one per OSD; without them plain files in the folder
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    devs: Vec<PathBuf>,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    /// Size of each OSD's block file, such as 8G [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
    osd_size: Option<u64>,
    /// Do not write the block files through: quick, but first writes also pay the file system
    #[arg(long, help_heading = "Storage")]
    sparse: bool,
    /// CPUs of the OSDs, divided evenly among them, such as 0-7,16
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    cpus: Option<CpuList>,
    /// CPUs of clients and of the monitor
    #[arg(long, value_name = "LIST", help_heading = "CPUs")]
    client_cpus: Option<CpuList>,
    /// Let OSDs and clients share CPUs
    #[arg(long, help_heading = "CPUs")]
    overprovisioned: bool,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

impl PeerUpArgs {
    /// What is asked for.
    pub(crate) fn wish(&self) -> PeerWish {
        PeerWish {
            osds: self.osds,
            size: self.size,
            pgs: self.pgs,
            osd_size_bytes: self.osd_size,
            sparse: self.sparse,
            devices: self.devs.clone(),
            force_wipe: self.force_wipe,
            cpus: self.cpus.clone(),
            client_cpus: self.client_cpus.clone(),
            overprovisioned: self.overprovisioned,
            osd_memory_bytes: self.osd_memory,
            tuned: self.tuned,
            build: self
                .peer_build
                .as_ref()
                .map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            options: self.options.iter().cloned().collect::<BTreeMap<_, _>>(),
        }
    }
}

fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write a setting as NAME=VALUE, such as osd_op_num_shards=4".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_option("osd_op_num_shards=4"), pair("osd_op_num_shards", "4"));
        assert_eq!(parse_option("a=b=c"), pair("a", "b=c"));
        assert!(parse_option("=4").is_err() && parse_option("a").is_err());
    }
}
