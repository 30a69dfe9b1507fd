//! Options of `carmine peer`.

use std::path::PathBuf;

use carmine_testbed::peer::PeerWish;
use clap::{Args, Subcommand};

/// A real Ceph on loopback, as a baseline to compare with.
#[derive(Args)]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    pub(crate) command: PeerCommand,
}

#[derive(Subcommand)]
pub(crate) enum PeerCommand {
    /// Start a peer: create it in an empty folder, or start a stopped one (also with other CPUs or settings)
    Up(Box<PeerUpArgs>),
    /// Show the state of a peer, its settings, and what it does not support
    Status(PeerStatusArgs),
    /// Stop a peer and keep its data
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
    #[command(flatten)]
    pub(crate) wish: PeerWish,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}
