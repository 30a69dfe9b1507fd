//! `osd map`: the way of an object's name to its OSDs.

use carmine_crush::{Mapping, object_hash};
use carmine_types::PgId;
use serde_json::{Value, json};

use super::pg::list;
use crate::command::View;

/// Where an object would be, whether it exists or not.
pub(crate) struct Found<'a> {
    epoch: u32,
    pool: &'a str,
    pool_id: i64,
    /// With its namespace, as `ns/name`.
    object: String,
    hash: u32,
    pg: PgId,
    mapping: &'a Mapping,
}

/// `None` if there is no such pool.
pub(crate) fn find<'a>(view: &View<'a>, pool: &'a str, object: &str, nspace: &str) -> Option<Found<'a>> {
    let pool_id = view.map.pool_id(pool)?;
    let hash = object_hash(nspace.as_bytes(), b"", object.as_bytes());
    let pg = PgId::of_hash(pool_id, hash, view.map.pool(pool_id)?.pg_num);
    let object = if nspace.is_empty() { object.to_owned() } else { format!("{nspace}/{object}") };
    Some(Found {
        epoch: view.map.epoch.0,
        pool,
        pool_id,
        object,
        hash,
        pg,
        mapping: view.placement.mapping(pg),
    })
}

impl Found<'_> {
    /// `osdmap e13 pool 'rbd' (1) object 'o' -> pg 1.7fc1f406 (1.6) -> up ([0,1,2], p0) acting ([0,1,2], p0)`
    pub(crate) fn text(&self) -> String {
        let primary =
            |osd: Option<carmine_types::OsdId>| osd.map_or_else(|| "-1".into(), |osd| osd.0.to_string());
        let raw = PgId::new(self.pool_id, self.hash);
        let m = self.mapping;
        format!(
            "osdmap e{} pool '{}' ({}) object '{}' -> pg {raw} ({}) -> up ({}, p{}) acting ({}, p{})\n",
            self.epoch,
            self.pool,
            self.pool_id,
            self.object,
            self.pg,
            list(&m.up),
            primary(m.up_primary),
            list(&m.acting),
            primary(m.acting_primary),
        )
    }

    /// The same by name.
    pub(crate) fn json(&self) -> Value {
        let primary = |osd: Option<carmine_types::OsdId>| osd.map_or(-1, |osd| i64::from(osd.0));
        let m = self.mapping;
        json!({
            "epoch": self.epoch, "pool": self.pool, "pool_id": self.pool_id, "objname": self.object,
            "raw_pgid": PgId::new(self.pool_id, self.hash).to_string(), "pgid": self.pg.to_string(),
            "up": m.up.to_vec(), "up_primary": primary(m.up_primary),
            "acting": m.acting.to_vec(), "acting_primary": primary(m.acting_primary),
        })
    }
}
