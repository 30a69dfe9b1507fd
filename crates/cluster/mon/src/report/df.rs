//! `df`: space of the whole, and what pools hold.

use carmine_wire::private::PoolUse;
use serde_json::{Value, json};

use super::pg;
use super::table::Table;
use super::units::{bytes, count, ratio};
use crate::command::View;

/// Device class of all OSDs: the map names none.
const CLASS: &str = "ssd";

/// What is shown of one pool.
struct Pool<'a> {
    id: i64,
    name: &'a str,
    pgs: u32,
    held: PoolUse,
    /// With all replicas.
    used: u64,
    /// More bytes that it could take.
    max_avail: u64,
}

impl Pool<'_> {
    fn used_ratio(&self) -> f64 {
        let room = self.max_avail.saturating_add(self.held.bytes);
        ratio(self.held.bytes, room)
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
            held,
            used: held.bytes.saturating_mul(size),
            max_avail: full.saturating_sub(used) / size,
        })
    };
    view.map.pool_names.iter().filter_map(one).collect()
}

/// Two tables, as Ceph has them.
pub(crate) fn text(view: &View<'_>) -> String {
    let (total, used) = view.stats.space();
    let mut raw = Table::new("<CLASS|SIZE|AVAIL|USED|RAW USED|%RAW USED");
    for class in [CLASS, "TOTAL"] {
        let percent = format!("{:.2}", 100.0 * ratio(used, total));
        let avail = bytes(total.saturating_sub(used));
        raw.row([class.to_owned(), bytes(total), avail, bytes(used), bytes(used), percent]);
    }
    let mut table = Table::new("<POOL|ID|PGS|STORED|OBJECTS|USED|%USED|MAX AVAIL");
    for pool in pools(view) {
        table.row([
            pool.name.to_owned(),
            pool.id.to_string(),
            pool.pgs.to_string(),
            bytes(pool.held.bytes),
            count(pool.held.objects),
            bytes(pool.used),
            format!("{:.2}", 100.0 * pool.used_ratio()),
            bytes(pool.max_avail),
        ]);
    }
    format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}", raw.render(), table.render())
}

/// The same by name.
pub(crate) fn json(view: &View<'_>) -> Value {
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
    let one = |pool: Pool<'_>| {
        json!({ "name": pool.name, "id": pool.id, "stats": {
            "stored": pool.held.bytes, "objects": pool.held.objects, "kb_used": pool.used.div_ceil(1024),
            "bytes_used": pool.used, "percent_used": pool.used_ratio(), "max_avail": pool.max_avail,
        }})
    };
    json!({
        "stats": stats, "stats_by_class": { CLASS: raw },
        "pools": pools(view).into_iter().map(one).collect::<Vec<_>>(),
    })
}
