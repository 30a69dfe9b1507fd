//! Pieces that the codecs of maps share: sections that keep unknown tails, sorted maps, snapshot ranges, strings.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{Epoch, Eversion, OsdId, PgId, UTime};

use super::{IntervalSet, OsdInfo, OsdXinfo, Section, StringMap};
use crate::{Decoder, Encoder, Result, WireError};

/// Number of OSDs (and of crush devices) above which a map is refused: it bounds what a map can make us allocate.
pub(crate) const OSD_LIMIT: u32 = 65_536;

/// Smallest encoding of a `str`: its length.
pub(crate) const STR_MIN: usize = 4;
/// Encoded size of `pg_t`.
pub(crate) const PG_SIZE: usize = 17;

/// Reads an envelope whose unknown tail is to be kept: `fields` reads what it knows of the body, given the version.
pub(crate) fn section<'a, T>(
    d: &mut Decoder<'a>,
    what: &'static str,
    known: u8,
    oldest: u8,
    fields: impl FnOnce(&mut Decoder<'a>, u8) -> Result<T>,
) -> Result<(T, Section)> {
    let envelope = d.envelope(what, known)?;
    envelope.at_least(oldest)?;
    let (version, compat, mut body) = (envelope.version, envelope.compat, envelope.body);
    let value = fields(&mut body, version)?;
    Ok((value, Section { version, compat, tail: body.rest().to_vec() }))
}

/// Writes what [`section`] reads.
pub(crate) fn put_section(e: &mut Encoder<'_>, section: &Section, fields: impl FnOnce(&mut Encoder<'_>)) {
    e.envelope(section.version, section.compat, |e| {
        fields(e);
        e.bytes(&section.tail);
    });
}

/// Refuses a number of OSDs that no real cluster has.
pub(crate) fn check_osds(what: &'static str, n: i64) -> Result<u32> {
    match u32::try_from(n) {
        Ok(n) if n <= OSD_LIMIT => Ok(n),
        _ => Err(WireError::BadValue { what, value: n as u64 }),
    }
}

/// Reads a map into a sorted one; each pair takes at least `pair_min` bytes.
pub(crate) fn btree<K: Ord, V>(
    d: &mut Decoder<'_>,
    pair_min: usize,
    mut key: impl FnMut(&mut Decoder<'_>) -> Result<K>,
    mut value: impl FnMut(&mut Decoder<'_>) -> Result<V>,
) -> Result<BTreeMap<K, V>> {
    let mut map = BTreeMap::new();
    for _ in 0..d.count(pair_min)? {
        let k = key(d)?;
        map.insert(k, value(d)?);
    }
    Ok(map)
}

/// Writes a sorted map.
pub(crate) fn put_btree<K, V>(
    e: &mut Encoder<'_>,
    map: &BTreeMap<K, V>,
    mut key: impl FnMut(&mut Encoder<'_>, &K),
    mut value: impl FnMut(&mut Encoder<'_>, &V),
) {
    e.count(map.len());
    for (k, v) in map {
        key(e, k);
        value(e, v);
    }
}

/// Reads a set; each item takes at least `item_min` bytes.
pub(crate) fn btset<T: Ord>(
    d: &mut Decoder<'_>,
    item_min: usize,
    mut item: impl FnMut(&mut Decoder<'_>) -> Result<T>,
) -> Result<BTreeSet<T>> {
    let mut set = BTreeSet::new();
    for _ in 0..d.count(item_min)? {
        set.insert(item(d)?);
    }
    Ok(set)
}

impl Decoder<'_> {
    pub(crate) fn epoch(&mut self) -> Result<Epoch> {
        self.u32().map(Epoch)
    }

    pub(crate) fn osd(&mut self) -> Result<OsdId> {
        self.u32().map(OsdId)
    }

    pub(crate) fn string_map(&mut self) -> Result<StringMap> {
        btree(self, 2 * STR_MIN, |d| d.string(), |d| d.string())
    }

    pub(crate) fn string_maps(&mut self) -> Result<BTreeMap<String, StringMap>> {
        btree(self, 2 * STR_MIN, |d| d.string(), |d| d.string_map())
    }

    pub(crate) fn intervals(&mut self) -> Result<IntervalSet> {
        self.map(16, |d| d.u64(), |d| d.u64())
    }

    pub(crate) fn pool_intervals(&mut self) -> Result<BTreeMap<i64, IntervalSet>> {
        btree(self, 12, |d| d.i64(), |d| d.intervals())
    }

    pub(crate) fn pg_osds(&mut self) -> Result<BTreeMap<PgId, Vec<i32>>> {
        btree(self, PG_SIZE + 4, |d| d.pg(), |d| d.vec(4, |d| d.i32()))
    }

    pub(crate) fn pg_osd(&mut self) -> Result<BTreeMap<PgId, i32>> {
        btree(self, PG_SIZE + 4, |d| d.pg(), |d| d.i32())
    }

    pub(crate) fn pg_osd_pairs(&mut self) -> Result<BTreeMap<PgId, Vec<(i32, i32)>>> {
        btree(self, PG_SIZE + 4, |d| d.pg(), |d| d.map(8, |d| d.i32(), |d| d.i32()))
    }

    pub(crate) fn i32_flags(&mut self) -> Result<BTreeMap<i32, u32>> {
        btree(self, 8, |d| d.i32(), |d| d.u32())
    }

    pub(crate) fn osd_info(&mut self) -> Result<OsdInfo> {
        match self.u8()? {
            1 => Ok(OsdInfo {
                last_clean_begin: self.epoch()?,
                last_clean_end: self.epoch()?,
                up_from: self.epoch()?,
                up_thru: self.epoch()?,
                down_at: self.epoch()?,
                lost_at: self.epoch()?,
            }),
            version => Err(WireError::BadValue { what: "osd_info version", value: version.into() }),
        }
    }

    /// An `osd_xinfo`: newer fields are skipped and lost, as in Ceph itself.
    pub(crate) fn osd_xinfo(&mut self) -> Result<OsdXinfo> {
        let envelope = self.envelope("osd_xinfo", 4)?;
        envelope.at_least(3)?;
        let (version, mut d) = (envelope.version, envelope.body);
        Ok(OsdXinfo {
            down_stamp: d.utime()?,
            laggy_probability: d.u32()?,
            laggy_interval_s: d.u32()?,
            features: d.u64()?,
            old_weight: d.u32()?,
            last_purged_snaps_scrub: if version >= 4 { d.utime()? } else { UTime::default() },
            dead_epoch: if version >= 4 { d.epoch()? } else { Epoch::default() },
        })
    }
}

impl Encoder<'_> {
    pub(crate) fn epoch(&mut self, epoch: Epoch) {
        self.u32(epoch.0);
    }

    pub(crate) fn osd(&mut self, osd: &OsdId) {
        self.u32(osd.0);
    }

    pub(crate) fn string_map(&mut self, map: &StringMap) {
        put_btree(self, map, |e, k| e.str(k), |e, v| e.str(v));
    }

    pub(crate) fn string_maps(&mut self, maps: &BTreeMap<String, StringMap>) {
        put_btree(self, maps, |e, k| e.str(k), |e, v| e.string_map(v));
    }

    pub(crate) fn intervals(&mut self, set: &IntervalSet) {
        self.pairs(set, |e, (start, len)| {
            e.u64(*start);
            e.u64(*len);
        });
    }

    fn pairs<T>(&mut self, items: &[T], put: impl FnMut(&mut Self, &T)) {
        self.vec(items, put);
    }

    pub(crate) fn pool_intervals(&mut self, map: &BTreeMap<i64, IntervalSet>) {
        put_btree(self, map, |e, k| e.i64(*k), |e, v| e.intervals(v));
    }

    pub(crate) fn pg_osds(&mut self, map: &BTreeMap<PgId, Vec<i32>>) {
        put_btree(self, map, |e, k| e.pg(*k), |e, v| e.vec(v, |e, osd| e.i32(*osd)));
    }

    pub(crate) fn pg_osd(&mut self, map: &BTreeMap<PgId, i32>) {
        put_btree(self, map, |e, k| e.pg(*k), |e, v| e.i32(*v));
    }

    pub(crate) fn pg_osd_pairs(&mut self, map: &BTreeMap<PgId, Vec<(i32, i32)>>) {
        put_btree(
            self,
            map,
            |e, k| e.pg(*k),
            |e, v| {
                e.pairs(v, |e, (from, to)| {
                    e.i32(*from);
                    e.i32(*to);
                })
            },
        );
    }

    pub(crate) fn i32_flags(&mut self, map: &BTreeMap<i32, u32>) {
        put_btree(self, map, |e, k| e.i32(*k), |e, v| e.u32(*v));
    }

    pub(crate) fn osd_info(&mut self, info: &OsdInfo) {
        self.u8(1);
        for epoch in [
            info.last_clean_begin,
            info.last_clean_end,
            info.up_from,
            info.up_thru,
            info.down_at,
            info.lost_at,
        ] {
            self.epoch(epoch);
        }
    }

    pub(crate) fn osd_xinfo(&mut self, info: &OsdXinfo) {
        self.envelope(4, 1, |e| {
            e.utime(info.down_stamp);
            e.u32(info.laggy_probability);
            e.u32(info.laggy_interval_s);
            e.u64(info.features);
            e.u32(info.old_weight);
            e.utime(info.last_purged_snaps_scrub);
            e.epoch(info.dead_epoch);
        });
    }

    pub(crate) fn versions(&mut self, versions: [Eversion; 2]) {
        versions.into_iter().for_each(|version| self.eversion(version));
    }
}
