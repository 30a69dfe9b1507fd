//! Operations on data that are not asked for all the time, and what class methods see of it.

use carmine_reactor::{Buf, Payload};
use carmine_types::{SNAP_DIR, errno};
use carmine_wire::osd_op::{ANSWER_BYTES, OsdOp, ops};

use super::compare;
use crate::config::WRITE_BYTES_MAX;
use crate::error::OpError;
use crate::op::ClientOp;
use crate::pg::exec::{ObjectState, read_bytes};
use crate::pg::{snaps, sparse};
use crate::shard::OsdShard;

/// Longest object that a class method gets as a whole: a map of 2 bits for each of 64 Mi objects.
const METHOD_BYTES_MAX: u64 = 16 << 20;
/// A pattern is repeated up to this length, and that is written again and again.
const REPEAT_BYTES: usize = 64 << 10;

pub(super) async fn step(
    osd: &OsdShard,
    client_op: &ClientOp,
    state: &mut ObjectState<'_>,
    op: &OsdOp,
    input: Payload,
) -> Result<Payload, OpError> {
    match op.code {
        ops::CMPEXT => {
            // As a guard of a write: an object that does not exist is all zeros.
            if !client_op.is_write {
                state.must_exist()?;
            }
            let stored = state.bytes(osd, op).await?;
            compare::extent(&input, &stored).map(|()| Payload::new())
        }
        ops::MAPEXT => {
            state.must_exist()?;
            match state.stored_size() {
                Some(size) => sparse::map(osd, state.oid, size, op).await,
                None => Ok(sparse::no_extents()),
            }
        }
        ops::LIST_SNAPS => {
            // All of them together: see `ClientOp::refusal`.
            if client_op.request.snapid != SNAP_DIR {
                return Err(OpError::of(errno::EINVAL));
            }
            state.must_exist()?;
            let set = state.was.as_ref().map(snaps::set_of).transpose()?.flatten().unwrap_or_default();
            Ok(Payload::from(snaps::list(&set, state.size)))
        }
        _ if op.write_same().length == 0 => Ok(Payload::new()),
        _ => {
            let wanted = op.write_same();
            // The store and other members hold all of it, though it is one piece of memory here.
            state.left = state.left.checked_sub(wanted.length).ok_or(OpError::of(errno::EMSGSIZE))?;
            state.write(wanted.offset, repeated(&input, wanted.length, wanted.data_length)?)?;
            Ok(Payload::new())
        }
    }
}

/// The pattern over and over, `length` bytes in all.
fn repeated(pattern: &Payload, length: u64, data_length: u64) -> Result<Payload, OpError> {
    let is_whole = data_length > 0 && length.is_multiple_of(data_length);
    if pattern.len() as u64 != data_length || !is_whole {
        return Err(OpError::of(errno::EINVAL));
    }
    if length > WRITE_BYTES_MAX {
        return Err(OpError::of(errno::EMSGSIZE));
    }
    let times = (REPEAT_BYTES / pattern.len()).clamp(1, (length / data_length).max(1) as usize);
    // Aligned, so that the store writes these bytes themselves where whole blocks repeat.
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
    /// The bytes of an operation's range up to the object's end, each as it was before the request, as in Ceph: new ones are in
    /// no store yet.
    pub(in crate::pg) async fn bytes(&self, osd: &OsdShard, op: &OsdOp) -> Result<Payload, OpError> {
        match self.stored_size() {
            Some(size) => read_bytes(osd, self.oid, size, op, self.left).await,
            None => Ok(Payload::new()),
        }
    }

    /// The end of those bytes; `None`: there are none.
    pub(in crate::pg) fn stored_size(&self) -> Option<u64> {
        let was = self.was.as_ref().filter(|_| self.exists)?;
        Some(was.size.min(self.size))
    }

    /// Makes the object's bytes known, for a class method.
    pub(crate) async fn load_data(&mut self, osd: &OsdShard, op: &ClientOp) -> Result<(), OpError> {
        if self.extra.as_ref().is_some_and(|extra| extra.data.is_some()) {
            return Ok(());
        }
        if self.was.is_none() && self.size > 0 {
            return Err(OpError::of(errno::ENOENT));
        }
        if self.size > METHOD_BYTES_MAX {
            return Err(OpError::of(errno::EFBIG));
        }
        if self.size > ANSWER_BYTES {
            op.take_more(osd).await;
        }
        let data = self.bytes(osd, &OsdOp::read(0, 0)).await?.to_vec();
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
        assert_eq!(repeated(&pattern(), 7, 3), Err(OpError::of(errno::EINVAL)));
        assert_eq!(repeated(&pattern(), 8, 4), Err(OpError::of(errno::EINVAL)));
        assert_eq!(repeated(&Payload::new(), 8, 0), Err(OpError::of(errno::EINVAL)));
        assert_eq!(repeated(&pattern(), 3 << 40, 3), Err(OpError::of(errno::EMSGSIZE)));
    }
}
