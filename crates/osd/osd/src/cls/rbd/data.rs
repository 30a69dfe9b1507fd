//! Methods of an image's data objects.

use carmine_types::errno;

use super::super::handle::{Handle, decode};
use super::super::{Done, Method, with_data, write};
use super::done;
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    write("copyup", copyup),
    write("sparse_copyup", sparse_copyup),
    with_data(write("sparsify", sparsify)),
    write("assert_snapc_seq", assert_context),
];

/// Least bytes that become a hole; librbd's are a power of two, too.
const STEP_MIN: usize = 4096;

/// ERANGE if the object was already written in a newer context than this one, or was not, whichever the input asserts.
fn assert_context(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (seq, wanted) = decode(input, |d| Ok((d.u64()?, d.u8()?)))?;
    let is_newer = h.snap_seq()?.is_none_or(|written| seq > written);
    match wanted {
        0 if is_newer => done(),
        1 if !is_newer => done(),
        0 | 1 => Err(OpError::new(errno::ERANGE)),
        _ => Err(OpError::new(errno::EOPNOTSUPP)),
    }
}

/// Writes the parent's bytes into a clone's object, unless it exists already.
fn copyup(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    if h.must_exist().is_err() {
        h.write(0, input.to_vec())?;
    }
    done()
}

/// The same with holes: lengths by offset, and the bytes of all.
fn sparse_copyup(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (extents, mut data) = decode(input, |d| Ok((d.map(16, |d| d.u64(), |d| d.u64())?, d.blob()?)))?;
    let mut parts = Vec::with_capacity(extents.len());
    for (at, len) in extents {
        let len = usize::try_from(len).ok().filter(|len| *len <= data.len());
        let (part, rest) = data.split_at(len.ok_or(OpError::new(errno::EINVAL))?);
        parts.push((at, part));
        data = rest;
    }
    if h.must_exist().is_ok() {
        return done();
    }
    h.touch();
    parts.into_iter().try_for_each(|(at, part)| h.write(at, part.to_vec()))?;
    done()
}

/// Turns zeros into holes, and removes an object of zeros only, if the input allows that.
fn sparsify(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (step, may_go) = decode(input, |d| Ok((d.u64()?, d.bool()?)))?;
    h.must_exist()?;
    let step = usize::try_from(step).ok().filter(|step| *step >= STEP_MIN && step.is_power_of_two());
    let step = step.ok_or(OpError::new(errno::EINVAL))?;
    let old = h.data().to_vec();
    if old.iter().all(|byte| *byte == 0) {
        if may_go {
            h.remove_object();
        } else {
            h.write_full(Vec::new())?;
        }
        return done();
    }
    h.write_full(Vec::new())?;
    let is_full = |part: &&[u8]| part.iter().any(|byte| *byte != 0);
    let mut at = 0;
    for run in old.chunks(step).collect::<Vec<_>>().chunk_by(|a, b| is_full(a) == is_full(b)) {
        let bytes = run.concat();
        let (begin, end) = (at, at + bytes.len());
        if run.first().is_some_and(is_full) {
            h.write(begin as u64, bytes)?;
        }
        at = end;
    }
    done()
}
