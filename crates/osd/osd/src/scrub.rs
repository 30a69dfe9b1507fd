//! A digest of every object of every PG, for comparing copies.

use std::rc::Rc;

use carmine_reactor::ShardId;
use carmine_types::crc32c;
use serde_json::{Map, Value, json};

use crate::pg::Pg;
use crate::shard::OsdShard;

/// Objects listed at a time.
const PAGE: usize = 512;
/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// `{"pgs": {"1.3": {"last_update": …, "objects": {"name": "size version crc", …}}, …}}` of all shards. Takes as long as
/// reading the store: a command of tests, not of measurements.
pub(crate) async fn contents(osd: &Rc<OsdShard>) -> Result<Value, String> {
    let mut all = Map::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part = osd.shard.call(to, |shard| async move {
            let Some(osd) = OsdShard::of(&shard) else { return Ok(Map::new()) };
            let pgs: Vec<Rc<Pg>> = osd.pgs.borrow().values().cloned().collect();
            let mut found = Map::new();
            for pg in pgs {
                found.insert(pg.id.to_string(), one_pg(&osd, &pg).await?);
            }
            Ok::<_, String>(found)
        });
        all.extend(part.await?);
    }
    Ok(json!({ "pgs": all }))
}

async fn one_pg(osd: &Rc<OsdShard>, pg: &Pg) -> Result<Value, String> {
    let mut objects = Map::new();
    let mut from = None;
    loop {
        let page = osd.store.list(pg.id, pg.bits(), from.as_ref(), PAGE + 1).await;
        let page = page.map_err(|e| e.to_string())?;
        for oid in page.iter().take(PAGE) {
            let Some(meta) = osd.store.stat(oid).await.map_err(|e| e.to_string())? else { continue };
            let (mut off, mut crc) = (0, crc32c::SEED);
            while off < meta.size {
                let data = osd.store.read(oid, off, READ_BYTES).await.map_err(|e| e.to_string())?;
                crc = data.crc32c(crc);
                off += READ_BYTES;
            }
            objects.insert(oid.to_string(), json!(format!("{} {} {crc:08x}", meta.size, meta.version)));
        }
        from = page.into_iter().nth(PAGE);
        if from.is_none() {
            break;
        }
    }
    Ok(json!({ "last_update": pg.last_update().to_string(), "objects": objects }))
}
