//! Sparse reads: the extents of an object that were written, and their bytes.
//!
//! A store knows which blocks are holes, and which were written only in part. In the latter a run of zeros counts as a hole,
//! unless the whole block is zeros: then it was written so. Zeros in all other blocks are data.

use std::ops::Range;

use carmine_reactor::Payload;
use carmine_types::{ObjectId, errno};
use carmine_wire::Encoder;
use carmine_wire::osd_op::OsdOp;

use crate::error::{OpError, refuse_if};
use crate::pg::copies::{IfUnfound, Objects};

/// Bytes of a block of the store.
const BLOCK_BYTES: u64 = 4096;
/// Shortest run of zeros between written bytes that counts as a hole: one more extent adds 16 bytes to the answer.
const HOLE_BYTES: usize = 64;
/// Bytes read at a time if only the extents are wanted.
const LOOK_BYTES: u64 = 1 << 20;

/// Runs of written bytes, in order, none touching the next.
type Extents = Vec<Range<u64>>;

/// The answer of a sparse read of an object of this size. A length of zero means nothing here, though a plain read then returns
/// all.
pub(in crate::pg) async fn read(
    objects: Objects<'_>,
    oid: &ObjectId,
    size: u64,
    op: &OsdOp,
    left: u64,
) -> Result<Payload, OpError> {
    let wanted = wanted(op, size);
    refuse_if(wanted.end - wanted.start > left, errno::EMSGSIZE)?;
    let (extents, data) = find_extents(objects, oid, size, wanted, true).await?;
    Ok(answer(&extents, &data))
}

/// The answer of a request for the extents alone.
pub(in crate::pg) async fn map(
    objects: Objects<'_>,
    oid: &ObjectId,
    size: u64,
    op: &OsdOp,
) -> Result<Payload, OpError> {
    let wanted = wanted(op, size);
    let mut extents = Extents::new();
    let mut at = wanted.start;
    while at < wanted.end {
        let end = (at / LOOK_BYTES + 1).saturating_mul(LOOK_BYTES).min(wanted.end);
        let (some, _) = find_extents(objects, oid, size, at..end, false).await?;
        some.into_iter().for_each(|extent| push(&mut extents, extent));
        at = end;
    }
    Ok(Payload::from(encoded(&extents)))
}

fn wanted(op: &OsdOp, size: u64) -> Range<u64> {
    let extent = op.extent();
    let start = extent.offset.min(size);
    start..start.saturating_add(extent.length).min(size)
}

/// Finds the written extents of a range, and returns their bytes if `wants_data`.
async fn find_extents(
    objects: Objects<'_>,
    oid: &ObjectId,
    size: u64,
    wanted: Range<u64>,
    wants_data: bool,
) -> Result<(Extents, Payload), OpError> {
    if wanted.is_empty() {
        return Ok((Extents::new(), Payload::new()));
    }
    // Whole blocks, since a part of one does not show whether the block was written in part.
    let start = wanted.start / BLOCK_BYTES * BLOCK_BYTES;
    let end = wanted.end.next_multiple_of(BLOCK_BYTES).min(size);
    let written = objects.written(oid, start, end - start).await?;
    let (Some(first), Some(last)) = (written.first(), written.last()) else {
        return Ok((Extents::new(), Payload::new()));
    };
    let (first, last) = (first.start, last.end);
    let in_part = objects.in_part(oid, start, end - start).await?;
    if in_part.is_empty() && !wants_data {
        let cut = |run: Range<u64>| run.start.max(wanted.start)..run.end.min(wanted.end);
        return Ok((written.into_iter().map(cut).filter(|run| !run.is_empty()).collect(), Payload::new()));
    }
    let data = objects.read(oid, first, last - first, IfUnfound::Wait).await;
    let data = data.map_err(|unhealed| unhealed.error)?;
    let extents = extents_of(&data, &written, &in_part, wanted, start..end);
    let bytes = gathered(&data, first, &extents);
    Ok((extents, bytes))
}

/// The extents in `data`, which begins at the first of the `written` runs, cut to the `wanted` range. `known` are the blocks that
/// were read; those of `in_part` have holes.
fn extents_of(
    data: &Payload,
    written: &[Range<u64>],
    in_part: &[u64],
    wanted: Range<u64>,
    known: Range<u64>,
) -> Extents {
    let mut extents = Extents::new();
    let mut runs = written.iter().peekable();
    let mut offset = written.first().map_or(0, |run| run.start);
    for block in data.iter().flat_map(|chunk| chunk.chunks(BLOCK_BYTES as usize)) {
        let end = offset + block.len() as u64;
        while runs.next_if(|run| run.end <= offset).is_some() {}
        if let Some(run) = runs.peek().filter(|run| run.start <= offset) {
            let after_hole = offset == run.start && offset > known.start;
            let before_hole = end == run.end && end < known.end;
            let mut found = |part: Range<usize>| {
                let part = offset + part.start as u64..offset + part.end as u64;
                push(&mut extents, part.start.max(wanted.start)..part.end.min(wanted.end));
            };
            match in_part.binary_search(&offset) {
                Ok(_) => written_parts(block, after_hole, before_hole, found),
                Err(_) => found(0..block.len()),
            }
        }
        offset = end;
    }
    extents
}

/// Appends a run to the extents.
fn push(extents: &mut Extents, run: Range<u64>) {
    match extents.last_mut() {
        _ if run.is_empty() => {}
        Some(last) if last.end == run.start => last.end = run.end,
        _ => extents.push(run),
    }
}

/// The written parts of a partly written block, judged by its bytes.
fn written_parts(block: &[u8], after_hole: bool, before_hole: bool, mut found: impl FnMut(Range<usize>)) {
    let zeros = |bytes: &mut dyn Iterator<Item = &u8>| bytes.take_while(|byte| **byte == 0).count();
    let (mut at, mut end) = (0, block.len());
    if after_hole {
        at = zeros(&mut block.iter());
    }
    if before_hole {
        end -= zeros(&mut block.iter().rev());
    }
    if at >= end || hole(block, 0).is_some_and(|zeros| zeros == (0..block.len())) {
        return found(0..block.len());
    }
    while let Some(zeros) = hole(block.get(..end).unwrap_or_default(), at) {
        if at < zeros.start {
            found(at..zeros.start);
        }
        at = zeros.end;
    }
    if at < end {
        found(at..end);
    }
}

/// The next run of zeros from `from` on that is long enough.
fn hole(block: &[u8], from: usize) -> Option<Range<usize>> {
    // A run that long covers every `HOLE_BYTES`th byte: in blocks without one, no other bytes are checked.
    let mut probe = from + HOLE_BYTES - 1;
    while let Some(byte) = block.get(probe) {
        if *byte == 0 {
            let zeros_before = block.get(from..probe)?.iter().rev().take_while(|byte| **byte == 0).count();
            let zeros_after = block.get(probe..)?.iter().take_while(|byte| **byte == 0).count();
            if zeros_before + zeros_after >= HOLE_BYTES {
                return Some(probe - zeros_before..probe + zeros_after);
            }
            probe += zeros_after;
        }
        probe += HOLE_BYTES;
    }
    None
}

/// The bytes of the extents, of data that begins at this offset.
fn gathered(data: &Payload, first: u64, extents: &[Range<u64>]) -> Payload {
    if let [one] = extents {
        return data.slice((one.start - first) as usize, (one.end - one.start) as usize);
    }
    let mut out = Vec::new();
    let mut extents = extents.iter().peekable();
    let mut offset = first;
    for chunk in data {
        let end = offset + chunk.len() as u64;
        while let Some(extent) = extents.peek().filter(|extent| extent.start < end) {
            let part = extent.start.max(offset) - offset..extent.end.min(end) - offset;
            out.extend_from_slice(chunk.get(part.start as usize..part.end as usize).unwrap_or_default());
            if extent.end > end {
                break;
            }
            extents.next();
        }
        offset = end;
    }
    Payload::from(out)
}

fn encoded(extents: &[Range<u64>]) -> Vec<u8> {
    Encoder::collect(|e| {
        e.vec(extents.iter(), |e, extent| {
            e.u64(extent.start);
            e.u64(extent.end - extent.start);
        });
    })
}

fn answer(extents: &[Range<u64>], data: &Payload) -> Payload {
    let mut head = encoded(extents);
    head.extend_from_slice(&(data.len() as u32).to_le_bytes());
    let mut out = Payload::from(head);
    out.append(data);
    out
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of extents that are one extent long
mod tests {
    use super::*;

    /// A block of `x` in these places, and zeros elsewhere.
    fn block(places: &[Range<usize>]) -> Vec<u8> {
        let mut block = vec![0; 4096];
        places.iter().for_each(|place| block[place.clone()].fill(b'x'));
        block
    }

    fn parts_of(block: &[u8], after_hole: bool, before_hole: bool) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        written_parts(block, after_hole, before_hole, |part| out.push(part));
        out
    }

    #[test]
    fn runs_of_zeros_split_a_block() {
        for places in [vec![0..100, 200..300], vec![100..164, 228..4096], vec![64..4032], vec![4032..4096]] {
            assert_eq!(parts_of(&block(&places), false, false), places);
            assert_eq!(parts_of(&block(&places), true, true), places);
        }
    }

    #[test]
    fn short_runs_do_not_but_beside_holes() {
        let short = block(&[10..100, 163..4090]);
        assert_eq!(parts_of(&short, false, false), [0..4096]);
        assert_eq!(parts_of(&short, true, false), [10..4096]);
        assert_eq!(parts_of(&short, true, true), [10..4090]);
    }

    #[test]
    fn a_block_of_zeros_was_written_so() {
        for len in [4096, 100, 10] {
            for (after, before) in [(false, false), (true, true)] {
                assert_eq!(parts_of(&vec![0; len], after, before), [0..len]);
            }
        }
    }

    #[test]
    fn holes_end_extents_and_bytes_are_those_of_the_extents() {
        let full = block(&[0..4096]);
        let data = Payload::from([&full[..], &vec![0; 4096], &full, &block(&[100..120])].concat());
        let written = [4096..8192, 12_288..20_480];
        let extents = extents_of(&data, &written, &[16_384], 5000..18_000, 0..40_960);
        assert_eq!(extents, [5000..8192, 12_288..16_384, 16_484..16_504]);
        let bytes = gathered(&data, 4096, &extents);
        assert_eq!(bytes.to_vec(), vec![b'x'; 3192 + 4096 + 20]);
        let whole = extents_of(&data, &written, &[], 5000..18_000, 0..40_960);
        assert_eq!(whole, [5000..8192, 12_288..18_000], "zeros that were written are data");
        let one = extents_of(&data, &written, &[], 4096..8192, 4096..8192);
        assert_eq!(gathered(&data, 4096, &one).to_vec(), full);
    }
}
