//! omap: sorted names and values, and a header.

use carmine_reactor::{Bytes, Payload};
use carmine_types::errno;
use carmine_wire::osd_op::{OsdOp, ops};
use carmine_wire::{DecodeError, Decoder, Encoder};

use super::{compare, decode};
use crate::attrs::{Kind, View};
use crate::pg::exec::State;

/// Most entries in one answer, whatever the client asks for (Ceph's osd_max_omap_entries_per_request).
const ENTRIES_MAX: u64 = 1024;
/// Bytes of names and values after which an answer ends.
const ANSWER_BYTES: usize = 8 << 20;

pub(super) fn step(state: &mut State<'_>, op: &OsdOp, input: &[u8]) -> Result<Payload, i32> {
    match op.code {
        ops::OMAP_SET_VALS => {
            let values = decode(input, |d| d.map(8, |d| d.blob(), |d| d.blob()))?;
            state.touch();
            let view = state.view();
            values
                .into_iter()
                .for_each(|(name, value)| view.set(Kind::Omap, name, Bytes::from(value.to_vec())));
            return Ok(Payload::new());
        }
        ops::OMAP_SET_HEADER => {
            state.touch();
            state.view().set_omap_header(Bytes::from(input.to_vec()));
            return Ok(Payload::new());
        }
        _ => state.must_exist()?,
    }
    let view = state.view();
    let output = match op.code {
        ops::OMAP_GET_KEYS => keys(view, input)?,
        ops::OMAP_GET_VALS => values(view, input)?,
        ops::OMAP_GET_HEADER => return Ok(Payload::from(view.omap_header())),
        ops::OMAP_GET_VALS_BY_KEYS => values_of(view, decode(input, names)?),
        ops::OMAP_CMP => {
            let value = |d: &mut Decoder<'_>| Ok((d.blob()?.to_vec(), d.i32()?));
            for (name, (given, cmp_op)) in decode(input, |d| d.map(12, |d| d.blob(), value))? {
                let stored = view.get(Kind::Omap, name).cloned().unwrap_or_default();
                compare::omap(cmp_op, &given, &stored)?;
            }
            Vec::new()
        }
        ops::OMAP_CLEAR => {
            view.clear(Kind::Omap);
            view.set_omap_header(Bytes::new());
            Vec::new()
        }
        ops::OMAP_RM_KEYS => {
            decode(input, names)?.into_iter().for_each(|name| view.remove(Kind::Omap, name));
            Vec::new()
        }
        ops::OMAP_RM_RANGE => {
            let (from, to) = decode(input, |d| Ok((d.blob()?, d.blob()?)))?;
            let inside = view.after(Kind::Omap, None, b"").map(|(name, _)| name);
            let inside = inside.filter(|name| *name >= from && *name < to);
            let gone: Vec<Vec<u8>> = inside.map(<[u8]>::to_vec).collect();
            gone.iter().for_each(|name| view.remove(Kind::Omap, name));
            Vec::new()
        }
        _ => return Err(errno::EOPNOTSUPP),
    };
    Ok(Payload::from(output))
}

fn names<'a>(d: &mut Decoder<'a>) -> Result<Vec<&'a [u8]>, DecodeError> {
    d.vec(4, |d| d.blob())
}

/// The entries of a page, and whether there are more.
fn page<'a>(view: &'a View, after: &[u8], max: u64, prefix: &'a [u8]) -> (Vec<(&'a [u8], &'a Bytes)>, bool) {
    let mut entries = view.after(Kind::Omap, (!after.is_empty()).then_some(after), prefix).peekable();
    let (mut page, mut bytes) = (Vec::new(), 0);
    while (page.len() as u64) < max.min(ENTRIES_MAX) && bytes < ANSWER_BYTES {
        let Some((name, value)) = entries.next() else { break };
        bytes += name.len() + value.len();
        page.push((name, value));
    }
    let more = entries.peek().is_some();
    (page, more)
}

fn keys(view: &View, input: &[u8]) -> Result<Vec<u8>, i32> {
    let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
    let (entries, more) = page(view, after, max, b"");
    Ok(Encoder::collect(|e| {
        e.vec(entries, |e, (name, _)| e.blob(name));
        e.bool(more);
    }))
}

fn values(view: &View, input: &[u8]) -> Result<Vec<u8>, i32> {
    let (after, max, prefix) = decode(input, |d| Ok((d.blob()?, d.u64()?, d.blob()?)))?;
    let (entries, more) = page(view, after, max, prefix);
    Ok(Encoder::collect(|e| {
        e.vec(entries, |e, (name, value)| {
            e.blob(name);
            e.blob(value);
        });
        e.bool(more);
    }))
}

/// Those of the names that are there, in order, each once: however often it was asked for.
fn values_of(view: &View, mut names: Vec<&[u8]>) -> Vec<u8> {
    names.sort_unstable();
    names.dedup();
    let found = names.iter().filter_map(|name| Some((*name, view.get(Kind::Omap, name)?)));
    let found: Vec<(&[u8], &Bytes)> = found.collect();
    Encoder::collect(|e| {
        e.vec(found, |e, (name, value)| {
            e.blob(name);
            e.blob(value);
        });
    })
}
