//! Less common operations on data, and class methods' access to data.

use std::ops::Range;

use carmine_reactor::{Buf, Payload};
use carmine_types::{SNAP_DIR, errno};
use carmine_wire::osd_op::{OsdOp, ops};

use super::omap::Missing;
use super::{Operation, compare};
use crate::config::WRITE_BYTES_MAX;
use crate::error::{OpError, refuse_if};
use crate::op::ClientOp;
use crate::pg::copies::Objects;
use crate::pg::family;
use crate::pg::op::exec::{ObjectState, read_bytes};
use crate::pg::op::{snaps, sparse};

/// Most bytes of an object that a class method may load: a map of 2 bits for each of 256 Mi objects.
pub(crate) const METHOD_BYTES_MAX: u64 = 64 << 20;
/// A pattern is repeated to about this length, and that block is written repeatedly.
const REPEAT_BYTES: usize = 64 << 10;

pub(super) async fn step(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<Payload, OpError> {
    let Operation { objects, client, op, input } = operation;
    match op.code {
        ops::CMPEXT => {
            // As a guard of a write, a missing object counts as zeros.
            if !client.is_write {
                state.must_exist()?;
            }
            let stored = state.bytes(objects, op).await?;
            compare::extent(input, &stored).map(|()| Payload::new())
        }
        ops::MAPEXT => {
            state.must_exist()?;
            sparse::map(objects, state.oid, state.stored_size().unwrap_or(0), op).await
        }
        ops::LIST_SNAPS => {
            // Only for SNAP_DIR: see `ClientOp::refusal`.
            refuse_if(client.request.snapid != SNAP_DIR, errno::EINVAL)?;
            state.must_exist()?;
            let set = state.was.as_ref().map(family::set_of).transpose()?.flatten().unwrap_or_default();
            Ok(Payload::from(snaps::list(&set, state.size)))
        }
        _ if op.write_same().length == 0 => Ok(Payload::new()),
        _ => {
            let wanted = op.write_same();
            // The store and other members hold all of it, though here it is one piece of memory.
            state.left = state.left.checked_sub(wanted.length).ok_or(OpError::new(errno::EMSGSIZE))?;
            state.write(wanted.offset, repeated(input, wanted.length, wanted.data_length)?)?;
            Ok(Payload::new())
        }
    }
}

/// The pattern over and over, `length` bytes in all.
fn repeated(pattern: &Payload, length: u64, data_length: u64) -> Result<Payload, OpError> {
    let is_whole = data_length > 0 && length.is_multiple_of(data_length);
    refuse_if(pattern.len() as u64 != data_length || !is_whole, errno::EINVAL)?;
    refuse_if(length > WRITE_BYTES_MAX, errno::EMSGSIZE)?;
    let times = (REPEAT_BYTES / pattern.len()).clamp(1, (length / data_length).max(1) as usize);
    // Aligned, so that the store can write it without a copy where whole blocks repeat.
    let mut block = Buf::heap(times * pattern.len());
    block.chunks_exact_mut(pattern.len()).for_each(|place| {
        pattern.copy_to(place);
    });
    let block = block.freeze();
    let mut out = Payload::new();
    while (out.len() as u64) < length {
        let left = (length - out.len() as u64).min(block.len() as u64) as usize;
        out.push(block.slice(..left));
    }
    Ok(out)
}

impl ObjectState<'_> {
    /// The bytes of an operation's range, up to the object's end, as they were before the request, as in Ceph: new ones are not
    /// in the store yet.
    pub(in crate::pg) async fn bytes(&self, objects: Objects<'_>, op: &OsdOp) -> Result<Payload, OpError> {
        read_bytes(objects, self.oid, self.stored_size().unwrap_or(0), op, self.left).await
    }

    /// The object's size before the request; `None`: it did not exist.
    pub(crate) fn stored_size(&self) -> Option<u64> {
        let was = self.was.as_ref().filter(|_| self.exists)?;
        Some(was.size.min(self.size))
    }

    /// For a class method: the object's bytes in `range` before the request, up to its end; empty if they are not loaded yet, as
    /// for [`ObjectState::known_value`].
    pub(crate) fn known_bytes(&mut self, range: Range<u64>) -> Vec<u8> {
        let extra = self.extra.get_or_insert_default();
        if let Some(data) = &extra.data {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
            return data.get(place(range.start)..place(range.end)).unwrap_or_default().to_vec();
        }
        let known = extra.parts.iter().find(|(of, _)| *of == range);
        if let Some((_, bytes)) = known {
            return bytes.to_vec();
        }
        if !range.is_empty() {
            self.omap().missing.get_or_insert(Missing::Bytes(range));
        }
        Vec::new()
    }

    /// Loads these bytes.
    pub(in crate::pg) async fn look_up_bytes(
        &mut self,
        objects: Objects<'_>,
        op: &ClientOp,
        range: Range<u64>,
    ) -> Result<(), OpError> {
        let known: usize = self.extra.iter().flat_map(|extra| &extra.parts).map(|(_, part)| part.len()).sum();
        let bytes = (range.end - range.start).saturating_add(known as u64);
        refuse_if(bytes > METHOD_BYTES_MAX, errno::EFBIG)?;
        op.acquire_for(objects.osd, bytes).await;
        let part = self.bytes(objects, &OsdOp::read(range.start, range.end - range.start)).await?;
        self.extra.get_or_insert_default().parts.push((range, part));
        Ok(())
    }

    /// Loads all of the object's bytes, for a class method.
    ///
    /// # Errors
    /// EFBIG: they are more than `max`; ENOENT; those of the store.
    pub(crate) async fn load_data(
        &mut self,
        objects: Objects<'_>,
        op: &ClientOp,
        max: u64,
    ) -> Result<(), OpError> {
        if self.extra.as_ref().is_some_and(|extra| extra.data.is_some()) {
            return Ok(());
        }
        refuse_if(self.was.is_none() && self.size > 0, errno::ENOENT)?;
        refuse_if(self.size > max, errno::EFBIG)?;
        op.acquire_for(objects.osd, self.size).await;
        let data = self.bytes(objects, &OsdOp::read(0, 0)).await?.to_vec();
        self.extra.get_or_insert_default().data = Some(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_repeated_to_the_length() {
        let pattern = || Payload::from(b"abc".to_vec());
        let long = repeated(&pattern(), 300_000, 3).unwrap();
        assert_eq!(long.to_vec(), b"abc".repeat(100_000));
        assert!(long.chunks().len() < 10);
        assert_eq!(repeated(&pattern(), 6, 3).unwrap().to_vec(), b"abcabc");
        assert_eq!(repeated(&pattern(), 0, 3).unwrap().len(), 0);
        assert_eq!(repeated(&pattern(), 7, 3), Err(OpError::new(errno::EINVAL)));
        assert_eq!(repeated(&pattern(), 8, 4), Err(OpError::new(errno::EINVAL)));
        assert_eq!(repeated(&Payload::new(), 8, 0), Err(OpError::new(errno::EINVAL)));
        assert_eq!(repeated(&pattern(), 3 << 40, 3), Err(OpError::new(errno::EMSGSIZE)));
    }
}
