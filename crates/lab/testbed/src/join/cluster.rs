//! A Ceph cluster that is asked for the numbers of its OSDs.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use carmine_client::Client;
use carmine_types::{Epoch, MonKind, OsdId, Uuid};
use serde_json::{Value, json};

use super::FIRST_LIMIT;
use super::conf::ClusterConf;
use crate::error::{Result, fail_if, failed, refuse};
use crate::plan::Plan;
use crate::status::{ANSWER_LIMIT, with_client};

impl ClusterConf {
    /// Finds the cluster of a `ceph.conf`. Second: the kind of its monitors. Third: so many free numbers of OSDs, the smallest ones.
    ///
    /// # Errors
    /// The file cannot be used, no monitor answers, they are of another cluster, or pools of classic OSDs would get PGs on these, too. Or the
    /// monitor is that of a testbed to which no others can come.
    pub(super) fn find(
        ceph_conf: &Path,
        osds: u32,
        location: &[String],
    ) -> Result<(Self, MonKind, Vec<u32>)> {
        let conf = Self::read(ceph_conf)?;
        let (found, mon, ids, pools) =
            with_client(&conf.mons.clone().into(), FIRST_LIMIT, ANSWER_LIMIT, async |_, client| {
                let found = client.osdmap().map(|map| map.fsid);
                let ids = free_numbers(client, &BTreeSet::new()).take(osds as usize).collect();
                let mon = kind_of_mon(client).await;
                let pools = match mon {
                    Ok(MonKind::Ceph) => pools_at_risk(client, location).await,
                    _ => Ok(Vec::new()),
                };
                (found, mon, ids, pools)
            })
            .map_err(|e| failed!("{}: {e}", ceph_conf.display()))?;
        let is_other = found.is_some_and(|found| found != conf.fsid);
        refuse!(
            is_other,
            "{}: it has fsid {}, and the cluster of these monitors is {}",
            ceph_conf.display(),
            conf.fsid,
            found.unwrap_or_default()
        );
        let (mon, pools) = (mon?, pools?);
        refuse!(
            !pools.is_empty(),
            "the cluster has classic OSDs, and PGs of these pools would get OSDs of both kinds, which serve nobody: {}. Give each a rule for \
             one device class first: `ceph osd crush rule create-replicated classic default host CLASS`, `ceph osd pool set POOL \
             crush_rule classic`",
            pools.join(", ")
        );
        Ok((conf, mon, ids))
    }
}

/// Whether the monitors are Ceph's, or a testbed's own.
///
/// # Errors
/// It is that of a testbed whose pool does not know of hosts.
async fn kind_of_mon(client: &Rc<Client>) -> Result<MonKind> {
    let version = ask(client, "version").await?;
    if version["release"] != "carmine" {
        return Ok(MonKind::Ceph);
    }
    let crush = ask(client, "osd crush dump").await?;
    let steps = crush["rules"].as_array().into_iter().flatten().filter_map(|rule| rule["steps"].as_array());
    let knows_hosts = steps.flatten().any(|step| step["type"] == "host");
    refuse!(
        !knows_hosts,
        "this is a testbed of one host, whose copies may be on any OSDs: to let others join it, make it with `carmine up --host NAME`"
    );
    Ok(MonKind::Embedded)
}

/// The answer of a monitor to a question without arguments.
async fn ask(client: &Rc<Client>, prefix: &str) -> Result<Value> {
    let question = json!({ "prefix": prefix, "format": "json" }).to_string();
    let answer = client.mon_command(&question).await.map_err(|e| failed!("`{prefix}`: {e}"))?;
    serde_json::from_slice(&answer.data).map_err(|e| failed!("`{prefix}`: {e}"))
}

/// Pools of a cluster with classic OSDs whose CRUSH rules take any OSDs at this location, whatever their device class.
async fn pools_at_risk(client: &Rc<Client>, location: &[String]) -> Result<Vec<String>> {
    let Some(map) = client.osdmap() else { return Ok(Vec::new()) };
    let has_booted =
        |osd: OsdId| map.osd_info.get(osd.0 as usize).is_some_and(|info| info.up_from > Epoch(0));
    if !map.osds().any(|osd| has_booted(osd) && !map.is_carmine(osd)) {
        return Ok(Vec::new());
    }
    let crush = ask(client, "osd crush dump").await?;
    let takes_any = |rule: u64| takes_any_class(&crush, rule, location);
    let pools = map.pools.iter().filter(|(_, pool)| takes_any(pool.crush_rule.into()));
    Ok(pools.map(|(id, _)| map.pool_names.get(id).cloned().unwrap_or_else(|| id.to_string())).collect())
}

/// A rule of `osd crush dump` takes a bucket with the OSDs of all classes, and the location may lie in this bucket: the location names
/// it, or it is no root, so that any host may be in it. (The OSDs of one class have a bucket of their own, such as `default~ssd`.)
fn takes_any_class(crush: &Value, rule: u64, location: &[String]) -> bool {
    let all = |name: &str| crush[name].as_array().into_iter().flatten();
    let is_root =
        |item: &Value| all("buckets").any(|bucket| bucket["id"] == *item && bucket["type_name"] == "root");
    let is_named =
        |name: &str| location.iter().any(|part| part.split_once('=').is_some_and(|(_, own)| own == name));
    let takes =
        all("rules").filter(|found| found["rule_id"] == rule).flat_map(|rule| rule["steps"].as_array());
    let takes = takes.flatten().filter(|step| step["op"] == "take");
    let mut taken = takes.filter_map(|step| Some((&step["item"], step["item_name"].as_str()?)));
    taken.any(|(item, name)| !name.contains('~') && (is_named(name) || !is_root(item)))
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
            Ok(json!({ "prefix": "osd new", "uuid": uuid, "id": osd.0 }).to_string())
        };
        let commands: Vec<String> = places.iter().map(new).collect::<Result<_>>()?;
        let answers = client.mon_commands(&commands).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_one_class_or_another_root_is_no_risk() {
        let rule = |id: u32, item: i32, name: &str| {
            json!({ "rule_id": id, "steps": [
                { "op": "take", "item": item, "item_name": name },
                { "op": "chooseleaf_firstn", "num": 0, "type": "host" },
            ] })
        };
        let rules =
            [rule(0, -1, "default"), rule(1, -2, "default~ssd"), rule(2, -3, "archive"), rule(3, -4, "row1")];
        let bucket = |id: i32, kind: &str| json!({ "id": id, "type_name": kind });
        let buckets = [bucket(-1, "root"), bucket(-2, "root"), bucket(-3, "root"), bucket(-4, "row")];
        let crush = json!({ "rules": rules, "buckets": buckets });
        let location = ["host=a".to_owned(), "root=default".to_owned()];
        let at_risk = [0, 1, 2, 3, 9].map(|rule| takes_any_class(&crush, rule, &location));
        assert_eq!(at_risk, [true, false, false, true, false]);
    }
}
