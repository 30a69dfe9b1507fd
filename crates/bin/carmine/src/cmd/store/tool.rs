//! What the commands on an OSD's store have in common: which OSD, that it does not run, and its store, opened.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use carmine_bench::sample::device_of;
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_store::blue::{MountOptions, Places};
use carmine_store::{BlueShared, Kv};
use carmine_testbed::{Daemon, Testbed, running};
use carmine_types::{OsdId, StoreKind};
use clap::Args;

use crate::cmd::down;
use carmine_osd_daemon::store::{lock_slice, open_kv, places};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::spec::DirArgs;

/// Which store.
#[derive(Args)]
pub(super) struct WhichArgs {
    #[command(flatten)]
    pub(super) dir: DirArgs,
    /// Number of the OSD
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) osd: u32,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// An OSD's store, which nobody else uses as long as this is held.
pub(super) struct Tool {
    pub(super) testbed: Testbed,
    pub(super) osd: OsdId,
    pub(super) json: bool,
}

impl Tool {
    /// Finds the store of an OSD that does not run.
    pub(super) fn open(args: &WhichArgs) -> anyhow::Result<Tool> {
        let testbed = down::open(&args.dir)?;
        let osd = OsdId(args.osd);
        let osds = testbed.plan().osds();
        if osd.0 >= osds {
            return Err(Usage(format!("--osd {}: this testbed has {osds}", osd.0)).into());
        }
        if testbed.plan().store != StoreKind::Blue {
            let store = testbed.plan().store;
            return Err(Usage(format!(
                "the OSDs have the store {store}, which keeps nothing: there is nothing to look at"
            ))
            .into());
        }
        if running(testbed.layout(), testbed.plan())?.contains(&Daemon::Osd(osd)) {
            let dir = testbed.layout().dir().display();
            return Err(Usage(format!("{osd} runs: stop it with `carmine down --dir {dir}` first")).into());
        }
        Ok(Tool { testbed, osd, json: args.json })
    }

    /// Where its data lies, and its log may lie.
    pub(super) fn places(&self) -> Places {
        places(self.testbed.layout(), self.testbed.plan(), self.osd)
    }

    /// Its RocksDB.
    pub(super) fn kv(&self) -> anyhow::Result<Arc<dyn Kv>> {
        let kv = open_kv(self.testbed.layout(), self.testbed.plan(), self.osd)?;
        kv.ok_or_else(|| anyhow!("the store of {} has no database", self.osd))
    }

    /// Runs `work` on a reactor, with the store's slice locked.
    pub(super) fn on_reactor<R>(
        &self,
        work: impl AsyncFnOnce(Shard) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let _slice = lock_slice(self.testbed.layout(), self.testbed.plan(), self.osd)?;
        let config = Config { name: "store".into(), poll: PollPolicy::Sleep, ..Config::default() };
        block_on(config, work).context("cannot start a reactor")?
    }

    /// Mounts the store.
    pub(super) async fn mount(&self, shard: &Shard, kv: Arc<dyn Kv>) -> anyhow::Result<Arc<BlueShared>> {
        Ok(BlueShared::mount(shard, self.places(), kv, MountOptions::default()).await?)
    }

    /// The name of the drive under a path.
    pub(super) fn drive(path: &std::path::Path) -> String {
        device_of(path).unwrap_or_else(|| "unknown".to_owned())
    }

    /// The folder of its RocksDB, behind all links.
    pub(super) fn db(&self) -> PathBuf {
        carmine_testbed::db_place(self.testbed.layout(), self.osd)
    }
}
