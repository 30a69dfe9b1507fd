//! The cluster as a whole: `status` (which is `ceph -s`), `df`, and the one monitor, which always has a quorum.

use std::fmt::Write as _;

use carmine_wire::pg_stat::ObjectStatSum;
use carmine_wire::{EntityType, FEATURES};
use serde_json::{Value, json};

use super::dump::{joined, time};
use super::pools::{io_json, io_text, recovery_json, recovery_text};
use super::table::{Table, age, bytes, count, ratio};
use super::{dump, health, pg, service, share};
use crate::command::View;
use crate::stats::unsigned;

/// Sections and lines as Ceph has them.
pub(crate) fn status_text(view: &View<'_>) -> String {
    let (all, up, inside) = dump::counts(view.map);
    let mut health = health::lines(view).into_iter();
    let mut out = format!(
        "  cluster:\n    id:     {}\n    health: {}\n",
        view.map.fsid,
        health.next().unwrap_or_default()
    );
    for line in health {
        let _ = writeln!(out, "            {line}");
    }
    let _ = write!(
        out,
        " \n  services:\n    mon: 1 daemons, quorum a (age {})\n    mgr: a(active, the monitor itself)\n    osd: {all} osds: {up} up, \
         {inside} in",
        age(view.uptime_s)
    );
    if !view.map.pg_temp.is_empty() {
        let _ = write!(out, "; {} remapped pgs", view.map.pg_temp.len());
    }
    for line in service::lines(view) {
        let _ = write!(out, "\n    {line}");
    }
    let held = view.stats.held();
    let _ = write!(
        out,
        "\n \n  data:\n    pools:   {} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {}\n",
        view.map.pools.len(),
        pg::total(view.map),
        count(unsigned(held.num_objects)),
        bytes(unsigned(held.num_bytes)),
        usage(view)
    );
    let states = pg::by_state(view).into_iter().map(|(state, number)| format!("{number} {state}"));
    for (at, line) in share::lines(&held).into_iter().chain(states).enumerate() {
        let head = if at == 0 { "pgs:    " } else { "        " };
        let _ = writeln!(out, "    {head} {line}");
    }
    let rate = view.stats.rate_of_all();
    let io = [("client:  ", io_text(&rate)), ("recovery:", recovery_text(&rate))];
    for (at, (what, io)) in io.into_iter().filter_map(|(what, io)| Some((what, io?))).enumerate() {
        out.push_str(if at == 0 { " \n  io:\n" } else { "" });
        let _ = writeln!(out, "    {what} {io}");
    }
    out.push_str(" \n");
    out
}

/// Used, free and total bytes, in words.
pub(super) fn usage(view: &View<'_>) -> String {
    let (total, used) = view.stats.space();
    format!("{} used, {} / {} avail", bytes(used), bytes(total.saturating_sub(used)), bytes(total))
}

/// The keys that Ceph's has, as far as there is something to tell.
pub(crate) fn status_json(view: &View<'_>) -> Value {
    let map = view.map;
    let (all, up, inside) = dump::counts(map);
    let (total, used) = view.stats.space();
    let held = view.stats.held();
    let states: Vec<Value> = pg::by_state(view)
        .into_iter()
        .map(|(state, count)| json!({ "state_name": state, "count": count }))
        .collect();
    let mut out = json!({
        "fsid": map.fsid.to_string(),
        "health": health::json(view, false),
        "election_epoch": 1,
        "quorum": [0],
        "quorum_names": ["a"],
        "quorum_age": view.uptime_s,
        "monmap": { "epoch": 1, "min_mon_release_name": "pacific", "num_mons": 1 },
        "osdmap": {
            "epoch": map.epoch.0, "num_osds": all, "num_up_osds": up, "osd_up_since": map.last_up_change.sec,
            "num_in_osds": inside, "osd_in_since": map.last_in_change.sec, "num_remapped_pgs": map.pg_temp.len(),
        },
        "pgmap": {
            "pgs_by_state": states, "num_pgs": pg::total(map), "num_pools": map.pools.len(),
            "num_objects": held.num_objects, "data_bytes": held.num_bytes, "bytes_used": used,
            "bytes_avail": total.saturating_sub(used), "bytes_total": total,
        },
        "fsmap": { "epoch": 1, "by_rank": [], "up:standby": 0 },
        "mgrmap": { "available": true, "num_standbys": 0, "modules": [], "services": {} },
        "servicemap": service::json(view),
        "progress_events": {},
    });
    let (pgmap, rate) = (out["pgmap"].take(), view.stats.rate_of_all());
    out["pgmap"] = joined([pgmap, share::json(&held), recovery_json(&rate), io_json(&rate)]);
    out
}

/// Device class of all OSDs: the map names none.
const CLASS: &str = "ssd";

/// The figures of one pool.
struct Pool<'a> {
    id: i64,
    name: &'a str,
    pgs: u32,
    size: u64,
    held: ObjectStatSum,
    /// Bytes of objects, and of omaps as far as they were counted.
    data: u64,
    omap: u64,
    /// Limits, 0 for none.
    quota_objects: u64,
    quota_bytes: u64,
    /// More bytes that it could take.
    max_avail: u64,
}

impl Pool<'_> {
    fn stored(&self) -> u64 {
        self.data.saturating_add(self.omap)
    }

    fn used_ratio(&self) -> f64 {
        ratio(self.stored(), self.max_avail.saturating_add(self.stored()))
    }

    /// With all replicas.
    fn raw(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.size)
    }
}

fn pools<'a>(view: &View<'a>) -> Vec<Pool<'a>> {
    let (total, used) = view.stats.space();
    let held = view.stats.pools();
    let full = (total as f64 * f64::from(view.map.full_ratio)) as u64;
    let one = |(id, name): (&i64, &'a String)| {
        let pool = view.map.pool(*id)?;
        let held = held.get(id).copied().unwrap_or_default();
        let size = u64::from(pool.size.max(1));
        Some(Pool {
            id: *id,
            name,
            pgs: pool.pg_num,
            size,
            held,
            data: unsigned(held.num_bytes),
            omap: unsigned(held.num_omap_bytes),
            quota_objects: pool.quota_max_objects,
            quota_bytes: pool.quota_max_bytes,
            max_avail: full.saturating_sub(used) / size,
        })
    };
    view.map.pool_names.iter().filter_map(one).collect()
}

/// Two tables, as Ceph has them.
pub(crate) fn df_text(view: &View<'_>, is_detailed: bool) -> String {
    let (total, used) = view.stats.space();
    let mut raw = Table::new("<CLASS|SIZE|AVAIL|USED|RAW USED|%RAW USED");
    let (size, avail, taken) = (bytes(total), bytes(total.saturating_sub(used)), bytes(used));
    for class in [CLASS, "TOTAL"] {
        raw.row(&format!("{class}|{size}|{avail}|{taken}|{taken}|{:.2}", 100.0 * ratio(used, total)));
    }
    let mut table = Table::new(if is_detailed { DF_DETAIL } else { DF });
    pools(view).iter().for_each(|pool| table.row(&df_line(pool, is_detailed)));
    format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}", raw.render(), table.render())
}

const DF: &str = "<POOL|ID|PGS|STORED|OBJECTS|USED|%USED|MAX AVAIL";
const DF_DETAIL: &str = "<POOL|ID|PGS|STORED|(DATA)|(OMAP)|OBJECTS|USED|(DATA)|(OMAP)|%USED|MAX AVAIL|QUOTA OBJECTS|QUOTA BYTES|\
                         DIRTY|USED COMPR|UNDER COMPR";

fn df_line(pool: &Pool<'_>, is_detailed: bool) -> String {
    let Pool { id, name, pgs, data, omap, quota_objects, quota_bytes, max_avail, .. } = pool;
    let (stored, used) = (pool.stored(), pool.raw(pool.stored()));
    let parts = |data: u64, omap: u64| match is_detailed {
        true => format!("|{}|{}", bytes(data), bytes(omap)),
        false => String::new(),
    };
    let limit = |limit: u64, text: fn(u64) -> String| if limit == 0 { "N/A".to_owned() } else { text(limit) };
    let quotas = match is_detailed {
        true => format!("|{}|{}|N/A|0 B|0 B", limit(*quota_objects, count), limit(*quota_bytes, bytes)),
        false => String::new(),
    };
    format!(
        "{name}|{id}|{pgs}|{}{}|{}|{}{}|{:.2}|{}{quotas}",
        bytes(stored),
        parts(*data, *omap),
        count(unsigned(pool.held.num_objects)),
        bytes(used),
        parts(pool.raw(*data), pool.raw(*omap)),
        100.0 * pool.used_ratio(),
        bytes(*max_avail)
    )
}

/// The same by name.
pub(crate) fn df_json(view: &View<'_>, is_detailed: bool) -> Value {
    let (total, used) = view.stats.space();
    let avail = total.saturating_sub(used);
    let osds = pg::per_osd(view).len();
    let raw = json!({
        "total_bytes": total, "total_avail_bytes": avail, "total_used_bytes": used,
        "total_used_raw_bytes": used, "total_used_raw_ratio": ratio(used, total),
    });
    let mut stats = raw.clone();
    stats["num_osds"] = json!(view.map.osds().count());
    stats["num_per_pool_osds"] = json!(osds);
    stats["num_per_pool_omap_osds"] = json!(osds);
    let one = |pool: Pool<'_>| {
        let mut stats = pool_df_json(&pool);
        if is_detailed {
            stats = joined([stats, pool_detail_json(&pool)]);
        }
        json!({ "name": pool.name, "id": pool.id, "stats": stats })
    };
    json!({
        "stats": stats, "stats_by_class": { CLASS: raw },
        "pools": pools(view).into_iter().map(one).collect::<Vec<_>>(),
    })
}

fn pool_df_json(pool: &Pool<'_>) -> Value {
    let (stored, used) = (pool.stored(), pool.raw(pool.stored()));
    let ObjectStatSum { num_read, num_read_kb, num_write, num_write_kb, .. } = pool.held;
    json!({
        "stored": stored, "objects": pool.held.num_objects, "kb_used": used.div_ceil(1024), "bytes_used": used,
        "percent_used": pool.used_ratio(), "max_avail": pool.max_avail,
        "rd": num_read, "rd_bytes": num_read_kb.saturating_mul(1024),
        "wr": num_write, "wr_bytes": num_write_kb.saturating_mul(1024),
    })
}

/// What `df detail` has more. Only pools with cache tiers have dirty objects.
fn pool_detail_json(pool: &Pool<'_>) -> Value {
    json!({
        "stored_data": pool.data, "stored_omap": pool.omap, "stored_raw": pool.raw(pool.stored()),
        "data_bytes_used": pool.raw(pool.data), "omap_bytes_used": pool.raw(pool.omap),
        "quota_objects": pool.quota_objects, "quota_bytes": pool.quota_bytes, "dirty": 0,
        "compress_bytes_used": 0, "compress_under_bytes": 0, "avail_raw": pool.raw(pool.max_avail),
    })
}

/// The MonMap has never changed.
pub(crate) const MONMAP_EPOCH: u32 = 1;

fn addrs(view: &View<'_>) -> Value {
    json!({ "addrvec": [{ "type": "v2", "addr": view.addr, "nonce": 0 }] })
}

fn monmap(view: &View<'_>) -> Value {
    json!({
        "epoch": 1, "fsid": view.map.fsid.to_string(), "modified": time(view.map.created),
        "created": time(view.map.created), "min_mon_release": 16, "min_mon_release_name": "pacific",
        "election_strategy": 1, "stretch_mode": false, "tiebreaker_mon": "",
        "mons": [{
            "rank": 0, "name": "a", "public_addrs": addrs(view), "addr": format!("{}/0", view.addr),
            "public_addr": format!("{}/0", view.addr), "priority": 0, "weight": 0, "crush_location": "{}",
        }],
    })
}

/// The MonMap and the quorum.
pub(crate) fn mon_dump_json(view: &View<'_>) -> Value {
    let mut out = monmap(view);
    out["quorum"] = json!([0]);
    out
}

/// The MonMap in lines.
pub(crate) fn mon_dump_text(view: &View<'_>) -> String {
    let created = time(view.map.created);
    format!(
        "epoch 1\nfsid {}\nlast_changed {created}\ncreated {created}\nmin_mon_release 16 (pacific)\nelection_strategy: 1\n\
         0: v2:{}/0 mon.a\n",
        view.map.fsid, view.addr
    )
}

/// One line.
pub(crate) fn mon_stat_text(view: &View<'_>) -> String {
    format!("e1: 1 mons at {{a=v2:{}/0}}, election epoch 1, leader 0 a, quorum 0 a\n", view.addr)
}

/// The same by name.
pub(crate) fn mon_stat_json() -> Value {
    json!({
        "epoch": 1, "min_mon_release_name": "pacific", "num_mons": 1, "leader": "a",
        "quorum": [{ "rank": 0, "name": "a" }],
    })
}

/// `mon_status`: the one monitor of itself.
pub(crate) fn mon_status_json(view: &View<'_>) -> Value {
    json!({
        "name": "a", "rank": 0, "state": "leader", "election_epoch": 1, "quorum": [0], "quorum_age": view.uptime_s,
        "outside_quorum": [], "extra_probe_peers": [], "sync_provider": [], "monmap": monmap(view),
        "feature_map": feature_map(view), "stretch_mode": false,
    })
}

/// `features`: all speak as Pacific does, whose features have the name of an older release.
pub(crate) fn feature_map(view: &View<'_>) -> Value {
    let up = view.map.osds().filter(|osd| view.map.is_up(*osd)).count();
    let of =
        |num: usize| json!([{ "features": format!("{FEATURES:#x}"), "release": "luminous", "num": num }]);
    let clients = (view.sessions)().iter().filter(|peer| peer.entity != EntityType::OSD).count();
    json!({ "mon": of(1), "osd": of(up), "client": of(clients) })
}

/// `mon metadata`: of one monitor, or of all of them.
pub(crate) fn mon_metadata_json(view: &View<'_>, is_one: bool) -> Value {
    let mut one = json!(view.facts);
    one["addrs"] = json!(format!("v2:{}/0", view.addr));
    if is_one {
        return one;
    }
    one["name"] = json!("a");
    json!([one])
}

/// `quorum_status`: the leader.
pub(crate) fn quorum_json(view: &View<'_>) -> Value {
    json!({
        "election_epoch": 1, "quorum": [0], "quorum_names": ["a"], "quorum_leader_name": "a",
        "quorum_age": view.uptime_s, "monmap": monmap(view),
    })
}
