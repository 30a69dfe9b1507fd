//! A separate log device (FORMAT.md §2): its label, and finding the right one.

use std::path::Path;

use carmine_codec::{DecodeError, Decoder, Encoder, coded};
use carmine_reactor::Shard;
use carmine_types::{OsdId, Uuid, crc32c};

use crate::blue::device::data::{Device, Place, io_error, read_block};
use crate::blue::device::label::Label;
use crate::{BLOCK_BYTES, StoreError};

const MAGIC: &[u8; 16] = b"carmine-blue-wal";
const VERSION: u32 = 1;
/// Bytes before the checksum.
const BODY_BYTES: usize = 16 + 4 + 16 + 4 + 8 + 8;

coded! {
    /// The owner of the log that a device holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct WalLabel {
        pub(crate) fsid: Uuid,
        pub(crate) osd: OsdId,
        /// The store's generation.
        pub(crate) generation: u64,
        /// Which of the store's logs.
        pub(crate) log_id: u64,
    }
}

impl WalLabel {
    /// The label of a store's log.
    pub(crate) fn for_store(label: &Label) -> WalLabel {
        let Label { fsid, osd, generation, log_id, .. } = *label;
        WalLabel { fsid, osd, generation, log_id }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::collect(|e| {
            e.bytes(MAGIC);
            e.u32(VERSION);
            e.put(self);
        });
        out.extend_from_slice(&crc32c::raw(crc32c::SEED, &out).to_le_bytes());
        out
    }

    /// Reads a label; the error says what these bytes are instead.
    pub(crate) fn decode(bytes: &[u8]) -> Result<WalLabel, String> {
        let Some((body, rest)) = bytes.split_at_checked(BODY_BYTES) else {
            return Err("it is too short for a label".to_owned());
        };
        let mut d = Decoder::new(body, "label of a log");
        let cut_short = |error: DecodeError| error.to_string();
        if d.array().map_err(cut_short)? != *MAGIC {
            return Err("it holds no log of a store of type blue (the label's magic is missing)".to_owned());
        }
        let version = d.u32().map_err(cut_short)?;
        if version != VERSION {
            return Err(format!(
                "it holds a log in format {version}, and this program knows format {VERSION}"
            ));
        }
        let sum = rest.first_chunk().map(|sum| u32::from_le_bytes(*sum));
        if sum != Some(crc32c::raw(crc32c::SEED, body)) {
            return Err("its label is damaged (wrong checksum)".to_owned());
        }
        d.get().map_err(cut_short)
    }

    /// Why this is not the wanted label.
    fn describe_difference(&self, wanted: &WalLabel) -> String {
        if (self.fsid, self.osd) != (wanted.fsid, wanted.osd) {
            return format!("it holds the log of {} of cluster {}", self.osd, self.fsid);
        }
        if self.generation != wanted.generation {
            return format!("it holds the log of an earlier {}", self.osd);
        }
        format!("it held the log of {} once, which lies elsewhere now", self.osd)
    }
}

/// Opens a store's separate log device, if it has one: the first of the `candidates` with the right label.
pub(crate) async fn open(
    shard: &Shard,
    block: &Path,
    label: &Label,
    candidates: &[Place],
) -> Result<Option<(Place, Device)>, StoreError> {
    let Some((_, bytes)) = label.wal else { return Ok(None) };
    let mut refused = Vec::new();
    for place in candidates {
        match open_one(shard, place, label, bytes).await {
            Ok(device) => return Ok(Some((place.clone(), device))),
            Err(why) => refused.push(why),
        }
    }
    let why = match refused.as_slice() {
        [] => "no such device is attached".to_owned(),
        all => all.join("; "),
    };
    let why = format!(
        "its log lies on a device of its own, without which acknowledged writes would be lost: {why}. Attach the device \
         with the log of {}, or restore this store from its replicas",
        label.osd
    );
    Err(StoreError::unusable(block, why))
}

async fn open_one(shard: &Shard, place: &Place, label: &Label, bytes: u64) -> Result<Device, String> {
    let device =
        Device::open(shard, place, place.slice.is_none()).await.map_err(|error| error.to_string())?;
    let path = place.path.display();
    let wanted = WalLabel::for_store(label);
    let mut why = String::new();
    for block in [0, bytes / BLOCK_BYTES - 1] {
        let found = read_block(shard, &place.path, &device, block).await.map_err(|error| error.to_string());
        match found.and_then(|bytes| WalLabel::decode(&bytes)) {
            Ok(found) if found == wanted => {
                let length = device.len().await.map_err(|error| error.to_string())?;
                return if length < bytes {
                    Err(format!("{path} has {length} bytes, and its store's label says {bytes}: was it cut?"))
                } else {
                    Ok(device)
                };
            }
            Ok(other) => return Err(format!("{path}: {}", other.describe_difference(&wanted))),
            Err(error) if why.is_empty() => why = format!("{path}: {error}"),
            Err(_) => {}
        }
    }
    Err(why)
}

/// Rewrites a damaged label of a separate log device, if the other one is good; returns a description.
pub(crate) async fn repair(
    shard: &Shard,
    block: &Path,
    label: &Label,
    candidates: &[Place],
) -> Result<Option<String>, StoreError> {
    // A device that is missing or foreign cannot be repaired: the mount reports it.
    let Ok(Some((place, device))) = open(shard, block, label, candidates).await else { return Ok(None) };
    let Some(block) = damaged(shard, &place, &device, label).await.into_iter().next() else {
        return Ok(None);
    };
    let bytes = label.wal_bytes().unwrap_or_default();
    write_label(shard, &place, &device, &WalLabel::for_store(label), bytes).await?;
    let path = place.path.display();
    Ok(Some(format!("the label of the log in block {block} of {path} is written again")))
}

/// Blocks of the separate log device that should have the label of this store's log and do not.
pub(crate) async fn damaged(shard: &Shard, place: &Place, device: &Device, label: &Label) -> Vec<u64> {
    let (wanted, bytes) = (WalLabel::for_store(label), label.wal_bytes().unwrap_or_default());
    let mut damaged = Vec::new();
    for block in [0, bytes / BLOCK_BYTES - 1] {
        let found = read_block(shard, &place.path, device, block).await;
        if !found.is_ok_and(|found| WalLabel::decode(&found) == Ok(wanted)) {
            damaged.push(block);
        }
    }
    damaged
}

/// Writes the label into the last block of a device of `bytes` and into the first, and makes it durable.
pub(crate) async fn write_label(
    shard: &Shard,
    place: &Place,
    device: &Device,
    label: &WalLabel,
    bytes: u64,
) -> Result<(), StoreError> {
    write_blocks(shard, &place.path, device, bytes, &label.encode()).await
}

/// Wipes the labels, so that the device is no longer mistaken for a log.
pub(crate) async fn wipe_label(
    shard: &Shard,
    place: &Place,
    device: &Device,
    bytes: u64,
) -> Result<(), StoreError> {
    write_blocks(shard, &place.path, device, bytes, &[]).await
}

/// Writes these bytes, padded with zeros, into the last block of a device of `size_bytes`, then into the first one.
pub(crate) async fn write_blocks(
    shard: &Shard,
    path: &Path,
    device: &Device,
    size_bytes: u64,
    bytes: &[u8],
) -> Result<(), StoreError> {
    for block in [size_bytes / BLOCK_BYTES - 1, 0] {
        let mut buf = shard.buf(BLOCK_BYTES as usize);
        buf.fill(0);
        buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let result = device.write_at(vec![buf.freeze()], block * BLOCK_BYTES, false).await;
        result.map_err(|error| io_error(path, "write the label of", &error))?;
        device.fdatasync().await.map_err(|error| io_error(path, "flush", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label() -> WalLabel {
        WalLabel { fsid: Uuid([7; 16]), osd: OsdId(3), generation: 1 << 60, log_id: 9 }
    }

    #[test]
    fn labels_round_trip_and_every_bit_counts() {
        let good = label().encode();
        let mut block = good.clone();
        block.resize(4096, 0);
        assert_eq!(WalLabel::decode(&block), Ok(label()));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(WalLabel::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_label_is_called_by_its_name() {
        for (other, words) in [
            (WalLabel { osd: OsdId(4), ..label() }, "the log of osd.4 of cluster"),
            (WalLabel { generation: 8, ..label() }, "of an earlier osd.3"),
            (WalLabel { log_id: 8, ..label() }, "lies elsewhere now"),
        ] {
            let why = other.describe_difference(&label());
            assert!(why.contains(words), "{why}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(WalLabel::decode(&bytes).is_err());
        }
    }
}
