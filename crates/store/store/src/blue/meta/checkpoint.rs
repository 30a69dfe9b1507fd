//! The checkpoint of a clean unmount, which saves the next mount a scan of the block maps: which blocks are used, and how many
//! objects share them (FORMAT.md §5).
//!
//! A mount uses it only if it is complete, of this label and of the log's last epoch, and if the log has no transactions after
//! it; otherwise it scans the block maps, which are the truth. The change that begins the next epoch removes it, before anything
//! is written.

use carmine_codec::{Decoder, Encoder, Result as Decoded};
use carmine_reactor::Shard;

use crate::StoreError;
use crate::blue::device::label::Label;
use crate::blue::device::space::Space;
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::{codec, keys};
use crate::kv::KvBatch;

/// Words of the bitmap in a piece: 256 MiB of the device.
const PIECE_WORDS: usize = 1024;
const PIECE_BLOCKS: u64 = PIECE_WORDS as u64 * 64;
/// Bytes that are applied together.
const BATCH_BYTES: usize = 8 << 20;

/// Marks the pieces as complete, and identifies their epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clean {
    epoch: u64,
    label_revision: u64,
    used_blocks: u64,
    pieces: u32,
}

/// A part of the device: its words of the bitmap, and its shared blocks with their counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    words: Vec<u64>,
    shared: Vec<(u16, u64)>,
}

impl Clean {
    fn encode(&self, e: &mut Encoder<'_>) {
        e.u64(self.epoch);
        e.u64(self.label_revision);
        e.u64(self.used_blocks);
        e.u32(self.pieces);
    }

    fn decode(d: &mut Decoder<'_>) -> Decoded<Clean> {
        Ok(Clean { epoch: d.u64()?, label_revision: d.u64()?, used_blocks: d.u64()?, pieces: d.u32()? })
    }
}

impl Piece {
    /// Whether none of its blocks is used.
    fn is_free(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn encode(&self, e: &mut Encoder<'_>) {
        e.count(self.words.len());
        self.words.iter().for_each(|word| e.u64(*word));
        e.count(self.shared.len());
        for (block, more) in &self.shared {
            e.u16(*block);
            e.u64(*more);
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Decoded<Piece> {
        let words = d.count(8)?;
        let words = d.items(words, |d| d.u64())?;
        let shared = d.count(10)?;
        Ok(Piece { words, shared: d.items(shared, |d| Ok((d.u16()?, d.u64()?)))? })
    }
}

/// Writes the checkpoint durably, after the last write, when everything is in the key-value store.
///
/// # Errors
/// If the key-value store cannot be written.
pub(crate) async fn write(
    index: &MetaIndex,
    shard: &Shard,
    space: &Space,
    (epoch, label): (u64, &Label),
) -> Result<(), StoreError> {
    let mut shared = space.references().all().peekable();
    let (mut batch, mut pieces) = (KvBatch::default(), 0);
    let mut words = space.words().peekable();
    for number in 0.. {
        let (first, end) = (number * PIECE_BLOCKS, (number + 1) * PIECE_BLOCKS);
        if words.peek().is_none() {
            break;
        }
        let piece = Piece {
            words: words.by_ref().take(PIECE_WORDS).collect(),
            shared: std::iter::from_fn(|| shared.next_if(|(block, _)| *block < end))
                .map(|(block, more)| ((block - first) as u16, more))
                .collect(),
        };
        if piece.is_free() {
            continue;
        }
        pieces += 1;
        let key = keys::space(number as u32);
        batch
            .put_with(|out| out.extend_from_slice(&key), |out, at| codec::push(out, at, |e| piece.encode(e)));
        if batch.bytes() > BATCH_BYTES {
            index.apply(shard, vec![std::mem::take(&mut batch)], false).await?;
        }
    }
    let clean = Clean { epoch, label_revision: label.revision, used_blocks: space.used_blocks(), pieces };
    batch.put_with(
        |out| out.extend_from_slice(keys::CLEAN),
        |out, at| codec::push(out, at, |e| clean.encode(e)),
    );
    Ok(index.apply(shard, vec![batch], true).await?)
}

/// Removes it, together with other changes.
pub(crate) fn remove(batch: &mut KvBatch) {
    let (start, end) = keys::space_range();
    batch.delete(keys::CLEAN);
    batch.delete_range(&start, &end);
}

/// Reads the checkpoint; `None` if there is no usable one.
///
/// # Errors
/// If metadata cannot be read.
pub(crate) async fn read(
    index: &MetaIndex,
    shard: &Shard,
    label: &Label,
) -> Result<Option<Space>, StoreError> {
    let mut values =
        index.load(shard, vec![keys::LOG_EPOCH.to_vec(), keys::CLEAN.to_vec()]).await?.into_iter();
    let (Some(epoch), Some(clean)) = (values.next().flatten(), values.next().flatten()) else {
        return Ok(None);
    };
    let epoch = codec::decode_epoch(keys::LOG_EPOCH, &epoch)?;
    match codec::open(keys::CLEAN, &clean, Clean::decode) {
        Ok(clean) if clean.epoch == epoch && clean.label_revision == label.revision => {
            let read = read_pieces(index, shard, label, &clean).await;
            read.map(Some).or_else(|why| refused(index, &why))
        }
        Ok(_) => Ok(None),
        Err(why) => refused(index, &why),
    }
}

fn refused(index: &MetaIndex, why: &StoreError) -> Result<Option<Space>, StoreError> {
    tracing::warn!("the map of free space in {} is of no use, and is made anew: {why}", index.place());
    Ok(None)
}

async fn read_pieces(
    index: &MetaIndex,
    shard: &Shard,
    label: &Label,
    clean: &Clean,
) -> Result<Space, StoreError> {
    let (mut space, mut pieces) = (Space::for_label(label), 0);
    let each = async |key: &[u8], value: &[u8]| {
        let piece = codec::open(key, value, Piece::decode)?;
        let number = keys::decode_space(key)?;
        mark_taken(&space, number, &piece).ok_or_else(|| {
            StoreError::damaged(
                keys::printable(key),
                "it has blocks behind the device, or shared ones that are free",
            )
        })?;
        pieces += 1;
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, keys::space_range(), each).await?;
    let (expected, found) = ((clean.pieces, clean.used_blocks), (pieces, space.used_blocks()));
    if expected != found {
        let why = format!(
            "{} pieces with {} taken blocks, not {} with {}",
            found.0, found.1, expected.0, expected.1
        );
        return Err(StoreError::damaged(keys::printable(keys::CLEAN), why));
    }
    space.references_mut().shrink();
    Ok(space)
}

/// Marks the used blocks of a piece; `None` if it cannot be of this device.
fn mark_taken(space: &Space, number: u32, piece: &Piece) -> Option<()> {
    let first = number as usize * PIECE_WORDS;
    for (at, bits) in piece.words.iter().enumerate() {
        space.mark_word(first + at, *bits)?;
    }
    for (block, more) in &piece.shared {
        let block = u64::from(number) * PIECE_BLOCKS + u64::from(*block);
        (space.is_taken(block) && space.references().set(block, *more)).then_some(())?;
    }
    Some(())
}

/// Checks one key and value of a checkpoint.
///
/// # Errors
/// If it is invalid.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key == keys::CLEAN {
        return codec::open(key, value, Clean::decode).map(drop);
    }
    keys::decode_space(key)?;
    codec::open(key, value, Piece::decode).map(drop)
}

/// Decodes any key and value, for the fuzzer.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn decode_any(key: &[u8], value: &[u8]) {
    if let (Ok(number), Ok(piece)) = (keys::decode_space(key), codec::open(key, value, Piece::decode)) {
        let _ = mark_taken(&Space::new(PIECE_BLOCKS), number, &piece);
    }
    let _ = codec::open(key, value, Clean::decode);
}
