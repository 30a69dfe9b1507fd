//! A dump of a store's metadata, for debugging.

use carmine_pgtypes::ObjectMeta;
use carmine_types::{ObjectId, SpgId};

use crate::blue::meta::{codec, keys};
use crate::kv::Kv;
use crate::{BLOCK_BYTES, StoreError};

/// A run of an object's bytes that lies in one piece on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpedExtent {
    /// Offset in the object, bytes.
    pub offset: u64,
    /// Offset on the device, bytes.
    pub device_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// One entry of a dump.
#[derive(Clone, Debug)]
pub enum Dumped {
    /// A PG that has a log or an info.
    Pg {
        /// The PG.
        pg: SpgId,
        /// Entries of its log.
        log_entries: u64,
    },
    /// An object.
    Object {
        /// Its name.
        oid: Box<ObjectId>,
        /// Size, versions, time.
        meta: ObjectMeta,
        /// Where its bytes are; all others are zeros.
        extents: Vec<DumpedExtent>,
    },
    /// A damaged key or value.
    Damaged(StoreError),
}

/// Calls `each` for all pairs in a range, until it fails.
fn scan(
    kv: &dyn Kv,
    (start, end): (Vec<u8>, Vec<u8>),
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut result = Ok(());
    kv.scan(&start, &end, &mut |key, value| {
        result = each(key, value);
        result.is_ok()
    })?;
    result
}

/// Calls `each` for all PGs, then for all objects in their order. Blocks: call it on an alien thread, or in a tool.
///
/// # Errors
/// If the key-value store cannot be read.
pub fn dump(kv: &dyn Kv, each: &mut dyn FnMut(Dumped)) -> Result<(), StoreError> {
    dump_pgs(kv, each)?;
    scan(kv, keys::kind_range(keys::ONODE), |key, value| {
        let object = keys::decode_onode(key).and_then(|oid| Ok((oid, codec::decode_onode(key, value)?)));
        match object {
            Ok((oid, meta)) => {
                let extents = extents(kv, &oid, each)?;
                each(Dumped::Object { oid: Box::new(oid), meta, extents });
            }
            Err(error) => each(Dumped::Damaged(error)),
        }
        Ok(())
    })
}

fn dump_pgs(kv: &dyn Kv, each: &mut dyn FnMut(Dumped)) -> Result<(), StoreError> {
    let mut pgs = std::collections::BTreeMap::<SpgId, u64>::new();
    scan(kv, keys::kind_range(keys::PG_INFO), |key, _| {
        pgs.entry(keys::decode_pg(key)?).or_default();
        Ok(())
    })?;
    scan(kv, keys::kind_range(keys::PREFIX_PG_LOG), |key, value| {
        let log_entries = pgs.entry(keys::decode_pg(key)?).or_default();
        match codec::decode_log(key, value) {
            Ok(entries) => *log_entries += entries.len() as u64,
            Err(error) => each(Dumped::Damaged(error)),
        }
        Ok(())
    })?;
    pgs.into_iter().for_each(|(pg, log_entries)| each(Dumped::Pg { pg, log_entries }));
    Ok(())
}

fn extents(
    kv: &dyn Kv,
    oid: &ObjectId,
    each: &mut dyn FnMut(Dumped),
) -> Result<Vec<DumpedExtent>, StoreError> {
    let name = keys::oid_bytes(oid);
    let mut end = keys::extents(&name, u32::MAX);
    end.push(0);
    let mut runs: Vec<DumpedExtent> = Vec::new();
    scan(kv, (keys::extents(&name, 0), end), |key, value| {
        let piece =
            keys::decode_extents(key).and_then(|(_, index)| Ok((index, codec::decode_extents(key, value)?)));
        let (index, piece) = match piece {
            Ok(piece) => piece,
            Err(error) => {
                each(Dumped::Damaged(error));
                return Ok(());
            }
        };
        let first = u64::from(index) * crate::blue::meta::extents::PIECE_BYTES;
        for (n, entry) in (0u64..).zip(piece.entries()).filter(|(_, entry)| entry.has_block()) {
            let (offset, device_offset) = (first + n * BLOCK_BYTES, entry.block() * BLOCK_BYTES);
            match runs.last_mut() {
                Some(last)
                    if last.offset + last.len == offset && last.device_offset + last.len == device_offset =>
                {
                    last.len += BLOCK_BYTES;
                }
                _ => runs.push(DumpedExtent { offset, device_offset, len: BLOCK_BYTES }),
            }
        }
        Ok(())
    })?;
    Ok(runs)
}
