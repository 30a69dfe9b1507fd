//! The monitors of a cluster: `MonMap`.

use std::collections::{BTreeMap, BTreeSet};

use carmine_codec::basic::size;
use carmine_codec::{Coded, layout};
use carmine_types::{Epoch, UTime, Uuid};

use crate::addr::EntityAddrVec;
use crate::osdmap::{Section, StringMap, put_section, section};
use crate::{Decoder, Encoder, Result};

/// One monitor.
#[derive(Clone, Debug, PartialEq)]
pub struct MonInfo {
    /// Its name again (the map's key).
    pub name: String,
    /// Where it listens. A client insists on finding the address it dialled.
    pub addrs: EntityAddrVec,
    /// DNS SRV priority.
    pub priority: u16,
    /// DNS SRV weight.
    pub weight: u16,
    /// Place in the crush tree.
    pub crush_loc: StringMap,
    /// Envelope.
    pub section: Section,
}

/// `MonMap`. `MonMap::single` makes the one of a testbed.
#[derive(Clone, Debug, PartialEq)]
pub struct MonMap {
    /// Identity of the cluster.
    pub fsid: Uuid,
    /// Number of this map, at least 1.
    pub epoch: Epoch,
    /// When this epoch was made.
    pub last_changed: UTime,
    /// When the cluster was made.
    pub created: UTime,
    /// Features every monitor must have; 0xff in Pacific.
    pub persistent_features: u64,
    /// Features that may be required.
    pub optional_features: u64,
    /// Monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Names by rank.
    pub ranks: Vec<String>,
    /// 16 = Pacific.
    pub min_mon_release: u8,
    /// Ranks that went away.
    pub removed_ranks: BTreeSet<u32>,
    /// Election strategy; 1 = classic.
    pub strategy: u8,
    /// Monitors that may not lead.
    pub disallowed_leaders: BTreeSet<String>,
    /// Two-site mode.
    pub stretch_mode: bool,
    /// Monitor that breaks ties in it.
    pub tiebreaker: String,
    /// Monitors marked down in it.
    pub stretch_marked_down: BTreeSet<String>,
    /// Envelope.
    pub section: Section,
}

impl MonInfo {
    /// A monitor at these addresses.
    pub fn new(name: &str, addrs: EntityAddrVec) -> Self {
        Self {
            name: name.to_owned(),
            addrs,
            priority: 0,
            weight: 0,
            crush_loc: StringMap::new(),
            section: Section::new(5, 1),
        }
    }
}

impl MonMap {
    /// Epoch 1 with one monitor, as Pacific would write it.
    pub fn single(fsid: Uuid, created: UTime, name: &str, addrs: EntityAddrVec) -> Self {
        Self {
            fsid,
            epoch: Epoch(1),
            last_changed: created,
            created,
            persistent_features: 0xff,
            optional_features: 0,
            mons: BTreeMap::from([(name.to_owned(), MonInfo::new(name, addrs))]),
            ranks: vec![name.to_owned()],
            min_mon_release: 16,
            removed_ranks: BTreeSet::new(),
            strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode: false,
            tiebreaker: String::new(),
            stretch_marked_down: BTreeSet::new(),
            section: Section::new(9, 6),
        }
    }
}

impl MonMap {
    /// Decodes a whole monmap, version 6 and up. Every byte of `bytes` must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Decoder::all(bytes, "monmap", |d| {
            let (mut map, section) = section(d, "monmap", 9, 6, |d, version| {
                let nobody = EntityAddrVec::default();
                let mut map = MonMap {
                    min_mon_release: 0,
                    ..MonMap::single(Uuid::default(), UTime::default(), "", nobody)
                };
                map.get_fields(d, version)?;
                Ok(map)
            })?;
            map.section = section;
            Ok(map)
        })
    }

    /// The binary form.
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| put_section(e, &self.section, |e| self.put_fields(e, self.section.version)))
    }
}

layout! { MonMap: put_fields, get_fields {
    fsid, epoch, last_changed, created, persistent_features = mon_features, optional_features = mon_features, mons, ranks,
    min_mon_release; since 7,
    removed_ranks; since 8, strategy; since 8, disallowed_leaders; since 8,
    stretch_mode; since 9, tiebreaker; since 9, stretch_marked_down; since 9,
} }

/// A feature mask in an envelope of its own.
mod mon_features {
    use super::*;

    pub(super) fn put(features: &u64, e: &mut Encoder<'_>) {
        e.envelope(1, 1, |e| e.u64(*features));
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<u64> {
        d.envelope("mon features", 1)?.body.u64()
    }
}

/// `mon_info`: versions 3 (weight) to 5 (crush location).
impl Coded for MonInfo {
    const BYTES_MIN: usize = size::ENVELOPE;

    fn put(&self, e: &mut Encoder<'_>) {
        put_section(e, &self.section, |e| self.put_fields(e, self.section.version));
    }

    fn get(d: &mut Decoder<'_>) -> Result<MonInfo> {
        let (mut mon, section) = section(d, "mon_info", 5, 3, |d, version| {
            let mut mon = MonInfo::new("", EntityAddrVec::default());
            mon.get_fields(d, version)?;
            Ok(mon)
        })?;
        mon.section = section;
        Ok(mon)
    }
}

layout! { MonInfo: put_fields, get_fields {
    name, addrs, priority, weight; since 4, crush_loc; since 5,
} }
