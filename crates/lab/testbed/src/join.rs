//! OSDs of a folder that have joined a Ceph cluster (`carmine join`): the monitors and managers are the cluster's, and so are the
//! numbers of the OSDs.

mod cluster;
mod conf;
mod plan;

use std::time::{Duration, Instant};

use carmine_types::OsdId;
use serde_json::json;

use crate::Plan;
use crate::add_remove::keep_waiting;
use crate::error::{Result, failed, refuse};
use crate::files;
use crate::folder::{BedKind, Folder, Testbed, load};
use crate::status::{ANSWER_LIMIT, with_client};
use crate::testbed::{StartOptions, ceph_conf};
use conf::ClusterConf;

pub use plan::{JoinPlan, JoinWish};

/// Time for the first answer of a cluster: some of its monitors may be dead.
const FIRST_LIMIT: Duration = Duration::from_secs(15);
/// Pause between two questions whether an OSD is needed: the manager hears of PGs every five seconds.
const PAUSE: Duration = Duration::from_secs(1);
/// The errnos of "not yet": the manager does not know enough, or PGs are on the OSD.
const NOT_YET: [i32; 2] = [-11, -16];

impl Testbed {
    /// Registers the OSDs with the cluster that they join, and makes their stores. After a failure it removes them from the cluster again.
    ///
    /// # Errors
    /// The monitors refuse, or a store cannot be made.
    pub(crate) fn fill_joined(&mut self, wipe: bool, start: &mut StartOptions<'_>) -> Result<()> {
        let places = (0..self.plan.osds() as usize).collect();
        let filled = self.register_joined(places).and_then(|()| self.fill(wipe, start));
        filled.inspect_err(|_| self.forget_joined(&self.plan.osd_ids().collect::<Vec<_>>()))
    }

    /// Registers the OSDs at these places.
    pub(crate) fn register_joined(&mut self, places: Vec<usize>) -> Result<()> {
        let (access, mut plan) = (self.running()?, self.plan.clone());
        let path = self.layout().plan();
        let registered = with_client(&access, FIRST_LIMIT, ANSWER_LIMIT, async |_, client| {
            cluster::register(client, &mut plan, places, |plan| files::write_json(&path, plan)).await
        });
        self.plan = plan;
        registered?
    }

    /// After a failure: removes these OSDs, none of which runs, from the cluster's map. It drops its own errors, which would hide the failure.
    pub(crate) fn forget_joined(&self, osds: &[OsdId]) {
        for osd in in_map(&self.plan, osds).unwrap_or_default() {
            let _ = self.purge(osd);
        }
    }

    /// Reads where the cluster's monitors are now, and writes it down for the OSDs and for stock clients.
    ///
    /// # Errors
    /// The cluster's configuration cannot be used, or is another cluster's.
    pub(crate) fn find_mons(&mut self) -> Result<()> {
        let Some(joined) = &mut self.plan.joined else { return Ok(()) };
        let (path, fsid) = (joined.ceph_conf.display().to_string(), &self.plan.fsid);
        let conf = ClusterConf::read(&joined.ceph_conf)?;
        let is_other = conf.fsid.to_string() != *fsid;
        refuse!(is_other, "{path}: it is of the cluster {}, and these OSDs are of {fsid}", conf.fsid);
        joined.mons = conf.mons.clone();
        self.write_plan()?;
        let lines: String = conf.mons.iter().map(|mon| format!("{mon}\n")).collect();
        files::write_whole(&self.layout().mon_addr(), lines.as_bytes())?;
        let own = ceph_conf(&self.plan, &conf.mons, self.layout().dir());
        files::write_whole(&self.layout().ceph_conf(), own.as_bytes())
    }

    /// Waits until the cluster does not need an OSD that is out: its manager says so.
    ///
    /// # Errors
    /// That does not come in time, or the start is cancelled.
    pub(crate) fn wait_until_unneeded(
        &self,
        osd: OsdId,
        end: Instant,
        start: &mut StartOptions<'_>,
    ) -> Result<()> {
        let question = json!({ "prefix": "osd safe-to-destroy", "ids": [osd.0.to_string()] }).to_string();
        with_client(&self.running()?, FIRST_LIMIT, ANSWER_LIMIT, async |shard, client| {
            loop {
                let why = match client.mon_command(&question).await {
                    Ok(_) => return Ok(()),
                    Err(e) if NOT_YET.contains(&e.errno()) => e.to_string(),
                    Err(e) => return Err(failed!("{osd} is out, and stays: {e}")),
                };
                keep_waiting(osd, &why, end, start)?;
                shard.sleep(PAUSE).await;
            }
        })?
    }
}

impl Folder {
    /// Fails if OSDs of this folder are in the map of a cluster that they have joined: without their files its copies are lost.
    ///
    /// # Errors
    /// Says what to do first; or the cluster does not answer.
    pub fn refuse_joined_osds(&self) -> Result<()> {
        let Ok(Some(plan)) = load(BedKind::Testbed, self.layout()) else { return Ok(()) };
        let Some(joined) = &plan.joined else { return Ok(()) };
        let anyway = "`carmine destroy --yes-i-really-mean-it` removes the files all the same";
        let osds: Vec<OsdId> = plan.osd_ids().collect();
        let left = in_map(&plan, &osds).map_err(|e| {
            failed!(
                "{}: cannot ask whether the cluster has these OSDs: {e}; {anyway}",
                joined.ceph_conf.display()
            )
        })?;
        let dir = self.layout().dir().display();
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        let first: String =
            left.iter().map(|osd| format!("\n  carmine osd remove {} --dir {dir}", osd.0)).collect();
        refuse!(
            !left.is_empty(),
            "the cluster has {} of this folder, and may need their data. These commands take one out, wait until it is not needed any \
             more, and remove it:{first}\n(or Ceph's: `ceph osd out N`, `ceph osd safe-to-destroy N` until it is, `carmine osd stop \
             N`, `ceph osd purge N --yes-i-really-mean-it`.) {anyway}",
            names.join(", ")
        );
        Ok(())
    }
}

/// Those of these OSDs that are in the cluster's map, as those of this plan.
fn in_map(plan: &Plan, osds: &[OsdId]) -> Result<Vec<OsdId>> {
    let joined = plan.joined.as_ref().ok_or_else(|| failed!("these OSDs have joined no cluster"))?;
    if osds.is_empty() {
        return Ok(Vec::new());
    }
    with_client(&joined.mons.clone().into(), FIRST_LIMIT, ANSWER_LIMIT, async |_, client| {
        let is_own = |osd: &OsdId| plan.store_uuid(*osd).ok() == cluster::uuid_of(client, *osd);
        osds.iter().copied().filter(is_own).collect()
    })
}
