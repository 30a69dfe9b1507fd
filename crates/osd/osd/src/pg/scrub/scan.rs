//! Scans a range of objects in this copy. Any member answers such requests, a few megabytes at a time and without keeping state:
//! a lost request is repeated.

use std::rc::Rc;

use carmine_messenger::Message;
use carmine_pgtypes::{ObjectMeta, Xattrs};
use carmine_store::{OmapRange, StoreError};
use carmine_types::crc32c::{SEED, raw};
use carmine_types::{ObjectId, errno};

use super::OMAP_PAGE_BYTES;
use crate::error::{OpError, refuse_if};
use crate::messages::{PgFetch, PgObject, PgScrub, PgScrubMap, ScanCursor, Scanned};
use crate::pg::copies::own_store;
use crate::pg::{Pg, family};
use crate::shard::OsdShard;

/// Objects in one answer.
const OBJECTS: usize = 32;
/// Bytes read for one answer, about; fewer if the limit is low, so that an answer does not take too long.
const ANSWER_BYTES: u64 = 4 << 20;
const ANSWER_BYTES_MIN: u64 = 1 << 20;
/// Bytes read at once (Ceph's osd_deep_scrub_stride).
const STRIDE_BYTES: u64 = 512 << 10;
/// What an object's metadata counts for in the limit of bytes.
const META_BYTES: u64 = 4096;

/// Objects in order, and where to continue.
pub(super) type Page = (Vec<Scanned>, Option<ScanCursor>);

/// Scans the objects from `from` to `to` (exclusive), or to the end of the PG, as many as fit in one answer.
pub(super) async fn scan(
    osd: &OsdShard,
    pg: &Pg,
    from: ScanCursor,
    to: Option<&ObjectId>,
    deep: bool,
) -> Result<Page, StoreError> {
    let mut scan =
        Scan { osd, deep, left: (osd.pace.bytes_per_second() / 2).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES) };
    let page = own_store(osd).list(pg.id, pg.peer.bits(), Some(&from.oid), OBJECTS + 1).await?;
    let mut from = Some(from);
    let mut found = Vec::new();
    for (at, oid) in page.into_iter().enumerate() {
        if !family::mapper::is_mapper(&oid) && to.is_none_or(|to| oid < *to) {
            if at == OBJECTS || scan.left == 0 {
                return Ok((found, Some(ScanCursor::at(oid))));
            }
            let begun = from.take().filter(|from| from.oid == oid);
            match scan.object(begun.unwrap_or_else(|| ScanCursor::at(oid))).await? {
                Looked::Whole(object) => found.push(object),
                Looked::Part(cursor) => return Ok((found, Some(cursor))),
                Looked::Gone => {}
            }
        }
    }
    Ok((found, None))
}

/// A scan under way.
struct Scan<'a> {
    osd: &'a OsdShard,
    deep: bool,
    /// Bytes that may still be read.
    left: u64,
}

/// The result of scanning an object.
enum Looked {
    Whole(Scanned),
    /// There is more of it.
    Part(ScanCursor),
    Gone,
}

impl Scan<'_> {
    async fn object(&mut self, mut at: ScanCursor) -> Result<Looked, StoreError> {
        self.spend(META_BYTES).await;
        let meta = match own_store(self.osd).stat(&at.oid).await {
            Ok(None) => return Ok(Looked::Gone),
            Ok(Some(meta)) => meta,
            Err(error) => return bad(&error).map(|()| Looked::Whole(unknown(at.oid))).ok_or(error),
        };
        let read_error = match self.content(&mut at, &meta).await {
            Ok(true) => false,
            Ok(false) => return Ok(Looked::Part(at)),
            Err(StoreError::NotFound(_)) => return Ok(Looked::Gone),
            Err(error) => bad(&error).map(|()| true).ok_or(error)?,
        };
        at.data = if self.deep { at.data } else { 0 };
        Ok(Looked::Whole(Scanned { read_error, ..scanned(at, &meta) }))
    }

    /// Continues to read where `at` says; true: all of the object has been read.
    async fn content(&mut self, at: &mut ScanCursor, meta: &ObjectMeta) -> Result<bool, StoreError> {
        if at.off.is_none() {
            if meta.has_omap && !self.omap(at).await? {
                return Ok(false);
            }
            at.off = Some(0);
        }
        let mut off = at.off.unwrap_or(0);
        while self.deep && off < meta.size {
            if self.left == 0 {
                return Ok(false);
            }
            let data = own_store(self.osd).read(&at.oid, off, STRIDE_BYTES.min(meta.size - off)).await?;
            if data.is_empty() {
                break; // it was truncated meanwhile
            }
            at.data = data.crc32c(at.data);
            off += data.len() as u64;
            at.off = Some(off);
            self.spend(data.len() as u64).await;
        }
        Ok(true)
    }

    async fn omap(&mut self, at: &mut ScanCursor) -> Result<bool, StoreError> {
        let store = own_store(self.osd);
        if at.key.is_none() {
            at.omap = of_header(store.omap_header(&at.oid).await?.as_slice());
        }
        let mut range = OmapRange::all(OMAP_PAGE_BYTES);
        if let Some(key) = &at.key {
            range = OmapRange { start: key.clone(), is_after: true, ..range };
        }
        loop {
            let page = store.omap_page(&at.oid, &range).await?;
            range = range.after(&page);
            let mut bytes = 0;
            for (key, value) in &page.entries {
                at.omap = part(part(at.omap, key), value.as_slice());
                bytes += (key.len() + value.len()) as u64;
                at.omap_size.keys += 1;
                at.omap_size.bytes += value.len() as u64;
            }
            self.spend(bytes).await;
            if !page.more {
                return Ok(true);
            }
            if self.left == 0 {
                at.key = Some(range.start);
                return Ok(false);
            }
        }
    }

    async fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.osd.pace.throttle(&self.osd.shard, bytes).await;
    }
}

/// `Some` if the error concerns only this object: the rest of the store can be read.
fn bad(error: &StoreError) -> Option<()> {
    let is_bad = error.lost_block().is_some() || matches!(error, StoreError::Damaged { .. });
    is_bad.then_some(())
}

/// An object whose metadata cannot be read.
fn unknown(oid: ObjectId) -> Scanned {
    Scanned { stat_error: true, ..scanned(ScanCursor::at(oid), &ObjectMeta::default()) }
}

/// An object with this metadata, and the checksums of a scan that has come to its end.
fn scanned(at: ScanCursor, meta: &ObjectMeta) -> Scanned {
    let (attr_names, attrs) = checksums(&meta.xattrs);
    let ScanCursor { oid, omap, omap_size, data, .. } = at;
    let ObjectMeta { size, version, user_version, mtime, .. } = *meta;
    let (stat_error, read_error) = (false, false);
    Scanned {
        oid,
        size,
        version,
        user_version,
        mtime,
        attr_names,
        attrs,
        omap,
        omap_size,
        data,
        stat_error,
        read_error,
    }
}

/// Extends a checksum by a string with its length.
pub(super) fn part(crc: u32, bytes: &[u8]) -> u32 {
    raw(raw(crc, &(bytes.len() as u32).to_le_bytes()), bytes)
}

/// The checksum of an omap header; a missing one counts as empty.
pub(super) fn of_header(header: &[u8]) -> u32 {
    if header.is_empty() { SEED } else { part(SEED, header) }
}

/// Checksums of the names of all xattrs, and of names and values.
pub(super) fn checksums(xattrs: &Xattrs) -> (u32, u32) {
    xattrs.iter().fold((SEED, SEED), |(names, all), (name, value)| {
        (part(names, name), part(part(all, name), value.as_slice()))
    })
}

impl Pg {
    /// Answers a primary that scrubs.
    pub(crate) async fn answer_scrub(self: &Rc<Self>, osd: &OsdShard, ask: PgScrub) -> Message {
        let PgScrub { head, version, deep, from, to } = ask;
        let page = async {
            refuse_if(!self.peer.follows(&head) || self.peer.last_update() < version, errno::EAGAIN)?;
            Ok::<_, OpError>(scan(osd, self, from, to.as_ref(), deep).await?)
        };
        Message::encode(&match page.await {
            Ok((objects, next)) => PgScrubMap { head, result: 0, objects, next },
            Err(error) => PgScrubMap { head, result: error.report(), objects: Vec::new(), next: None },
        })
    }

    /// Answers a primary that needs an object's metadata and omap.
    pub(crate) async fn answer_fetch(self: &Rc<Self>, osd: &OsdShard, ask: PgFetch) -> Message {
        let PgFetch { head, oid, from } = ask;
        let object = async {
            refuse_if(!self.peer.follows(&head), errno::EAGAIN)?;
            refuse_if(!self.peer.contains(&oid), errno::EINVAL)?;
            let meta = own_store(osd).stat(&oid).await?.ok_or(OpError::new(errno::ENOENT))?;
            let has_omap = meta.has_omap;
            let object = |header, entries, more| PgObject { head, result: 0, meta, header, entries, more };
            let Some(start) = from else {
                // The header alone may be as long as a message.
                let header = own_store(osd).omap_header(&oid).await?.as_slice().to_vec();
                return Ok(object(header, Vec::new(), has_omap));
            };
            let range = OmapRange { start, ..OmapRange::all(OMAP_PAGE_BYTES) };
            let page = own_store(osd).omap_page(&oid, &range).await?;
            let entries =
                page.entries.into_iter().map(|(key, value)| (key.into(), value.as_slice().to_vec()));
            Ok::<_, OpError>(object(Vec::new(), entries.collect(), page.more))
        };
        Message::encode(&object.await.unwrap_or_else(|error| PgObject {
            head,
            result: error.report(),
            meta: ObjectMeta::default(),
            header: Vec::new(),
            entries: Vec::new(),
            more: false,
        }))
    }
}
