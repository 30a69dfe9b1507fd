//! The monitors of a cluster: `MonMap`.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{Epoch, UTime, Uuid};

use crate::addr::EntityAddrVec;
use crate::osdmap::coding::{STR_MIN, btree, btset, put_btree, put_section, section};
use crate::osdmap::{Section, StringMap};
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

/// Oldest versions we read, by the field they end with.
mod version {
    /// Ends after the ranks.
    pub(super) const RANKS: u8 = 6;
    /// ... after `min_mon_release`.
    pub(super) const RELEASE: u8 = 7;
    /// ... after `disallowed_leaders`.
    pub(super) const STRATEGY: u8 = 8;
    /// ... after `stretch_marked_down`.
    pub(super) const STRETCH: u8 = 9;
}

impl MonMap {
    /// Decodes a whole monmap, version 6 and up. Every byte of `bytes` must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Decoder::all(bytes, "monmap", |d| {
            let (mut map, section) = section(d, "monmap", version::STRETCH, version::RANKS, get_map)?;
            map.section = section;
            Ok(map)
        })
    }

    /// The binary form.
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| put_section(e, &self.section, |e| put_map(e, self)))
    }
}

fn get_map(d: &mut Decoder<'_>, version: u8) -> Result<MonMap> {
    let mut map = MonMap::single(d.uuid()?, UTime::default(), "", EntityAddrVec::default());
    map.epoch = d.epoch()?;
    map.last_changed = d.utime()?;
    map.created = d.utime()?;
    map.persistent_features = get_features(d)?;
    map.optional_features = get_features(d)?;
    map.mons = btree(d, STR_MIN + 6, |d| d.string(), get_mon)?;
    map.ranks = d.vec(STR_MIN, |d| d.string())?;
    map.min_mon_release = if version >= version::RELEASE { d.u8()? } else { 0 };
    if version >= version::STRATEGY {
        map.removed_ranks = btset(d, 4, |d| d.u32())?;
        map.strategy = d.u8()?;
        map.disallowed_leaders = btset(d, STR_MIN, |d| d.string())?;
    }
    if version >= version::STRETCH {
        map.stretch_mode = d.bool()?;
        map.tiebreaker = d.string()?;
        map.stretch_marked_down = btset(d, STR_MIN, |d| d.string())?;
    }
    Ok(map)
}

fn put_map(e: &mut Encoder<'_>, map: &MonMap) {
    e.uuid(map.fsid);
    e.epoch(map.epoch);
    e.utime(map.last_changed);
    e.utime(map.created);
    e.envelope(1, 1, |e| e.u64(map.persistent_features));
    e.envelope(1, 1, |e| e.u64(map.optional_features));
    put_btree(e, &map.mons, |e, name| e.str(name), put_mon);
    e.vec(&map.ranks, |e, name| e.str(name));
    if map.section.version >= version::RELEASE {
        e.u8(map.min_mon_release);
    }
    if map.section.version >= version::STRATEGY {
        e.vec(&map.removed_ranks, |e, rank| e.u32(*rank));
        e.u8(map.strategy);
        e.vec(&map.disallowed_leaders, |e, name| e.str(name));
    }
    if map.section.version >= version::STRETCH {
        e.bool(map.stretch_mode);
        e.str(&map.tiebreaker);
        e.vec(&map.stretch_marked_down, |e, name| e.str(name));
    }
}

fn get_features(d: &mut Decoder<'_>) -> Result<u64> {
    d.envelope("mon features", 1)?.body.u64()
}

/// `mon_info`: versions 3 (weight) to 5 (crush location).
fn get_mon(d: &mut Decoder<'_>) -> Result<MonInfo> {
    let (mut mon, section) = section(d, "mon_info", 5, 3, |d, version| {
        let mut mon = MonInfo::new(d.str()?, d.addrvec()?);
        mon.priority = d.u16()?;
        if version >= 4 {
            mon.weight = d.u16()?;
        }
        if version >= 5 {
            mon.crush_loc = d.string_map()?;
        }
        Ok(mon)
    })?;
    mon.section = section;
    Ok(mon)
}

fn put_mon(e: &mut Encoder<'_>, mon: &MonInfo) {
    put_section(e, &mon.section, |e| {
        e.str(&mon.name);
        e.addrvec(&mon.addrs);
        e.u16(mon.priority);
        if mon.section.version >= 4 {
            e.u16(mon.weight);
        }
        if mon.section.version >= 5 {
            e.string_map(&mon.crush_loc);
        }
    });
}
