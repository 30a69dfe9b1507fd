//! A Ceph cluster that is asked for the numbers of its OSDs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use carmine_client::Client;
use carmine_types::{OsdId, Uuid};
use serde_json::json;

use super::FIRST_LIMIT;
use super::conf::ClusterConf;
use crate::error::{Result, fail_if, failed, refuse};
use crate::plan::Plan;
use crate::real_mon::give_all;
use crate::status::{ANSWER_LIMIT, with_client};

/// A cluster whose monitors have answered.
pub(super) struct Cluster {
    pub(super) fsid: Uuid,
    pub(super) mons: Vec<SocketAddr>,
}

impl Cluster {
    /// Finds the cluster of a `ceph.conf`. Second: so many free numbers of OSDs, the smallest ones.
    ///
    /// # Errors
    /// The file cannot be used, no monitor answers, or they are of another cluster.
    pub(super) fn find(ceph_conf: &Path, osds: u32) -> Result<(Self, Vec<u32>)> {
        let ClusterConf { fsid, mons } = ClusterConf::read(ceph_conf)?;
        let (found, ids) = with_client(&mons, FIRST_LIMIT, ANSWER_LIMIT, async |_, client| {
            let found = client.osdmap().map(|map| map.fsid);
            (found, free_numbers(client, &BTreeSet::new()).take(osds as usize).collect())
        })
        .map_err(|e| failed!("{}: {e}", ceph_conf.display()))?;
        let is_other = found.is_some_and(|found| found != fsid);
        refuse!(
            is_other,
            "{}: it has fsid {fsid}, and the cluster of these monitors is {}",
            ceph_conf.display(),
            found.unwrap_or_default()
        );
        Ok((Self { fsid, mons }, ids))
    }
}

/// Numbers that no OSD has by the newest map and that are not in `taken`, the smallest first.
fn free_numbers(client: &Client, taken: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
    let map = client.osdmap();
    let exists = move |id: &u32| map.as_ref().is_some_and(|map| map.exists(OsdId(*id)));
    let taken = taken.clone();
    (0..).filter(move |id| !exists(id) && !taken.contains(id))
}

/// Identity of an OSD's store by the newest map; `None`: there is no such OSD.
pub(super) fn uuid_of(client: &Client, osd: OsdId) -> Option<Uuid> {
    let map = client.osdmap().filter(|map| map.exists(osd))?;
    map.osd_uuid.get(osd.0 as usize).copied()
}

/// Registers the OSDs at these places of a plan. A number that another host's OSD got meanwhile is replaced by a free one; `note` is
/// called with each version of the plan before the monitors are asked.
///
/// # Errors
/// The monitors refuse, or do not answer.
pub(super) async fn register(
    client: &Rc<Client>,
    plan: &mut Plan,
    mut places: Vec<usize>,
    note: impl Fn(&Plan) -> Result<()>,
) -> Result<()> {
    let mut tried = BTreeSet::new();
    while !places.is_empty() {
        note(plan)?;
        let ids: Vec<OsdId> = plan.numbers().collect();
        let new = |place: &usize| -> Result<_> {
            let (osd, uuid) = (ids[*place], plan.store_uuid(ids[*place])?.to_string());
            Ok(json!({ "prefix": "osd new", "uuid": uuid, "id": osd.0 }))
        };
        let answers = give_all(client, places.iter().map(new).collect::<Result<_>>()?).await?;
        client.wait_newest_map().await.map_err(|e| failed!("{e}"))?;
        let mut refused = Vec::new();
        for (place, answer) in places.into_iter().zip(answers) {
            let Err(e) = answer else { continue };
            let own = plan.store_uuid(ids[place])?;
            let is_taken = uuid_of(client, ids[place]).is_some_and(|uuid| uuid != own);
            fail_if!(!is_taken, "the monitor refuses a new OSD: {e}");
            refused.push(place);
        }
        tried.extend(plan.numbers().map(|osd| osd.0));
        let free: Vec<u32> = free_numbers(client, &tried).take(refused.len()).collect();
        let joined = plan.joined.as_mut().ok_or_else(|| failed!("these OSDs have joined no cluster"))?;
        refused.iter().zip(free).for_each(|(place, id)| joined.ids[*place] = id);
        *plan = plan.clone().numbered();
        places = refused;
    }
    Ok(())
}
