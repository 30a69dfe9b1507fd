//! omap: sorted keys and values, and a header.

use carmine_codec::{DecodeError, Decoder, Encoder};
use carmine_pgtypes::Step;
use carmine_reactor::{Bytes, Payload};
use carmine_store::{OmapPage, OmapRange};
use carmine_types::errno;
use carmine_wire::osd_op::{ANSWER_BYTES, OsdOp, ops};

use super::{compare, decode};
use crate::error::OpError;
use crate::op::ClientOp;
use crate::pg::exec::State;
use crate::shard::OsdShard;

/// Most entries in one answer, whatever the client asks for (Ceph's osd_max_omap_entries_per_request).
const ENTRIES_MAX: u64 = 1024;
/// Keys that are looked up at a time.
const LOOKUPS: usize = 64;

type Key = Box<[u8]>;

pub(super) async fn step(
    osd: &OsdShard,
    client_op: &ClientOp,
    state: &mut State<'_>,
    op: &OsdOp,
    input: &[u8],
) -> Result<Payload, OpError> {
    match op.code {
        ops::OMAP_SET_VALS => {
            let own = |d: &mut Decoder<'_>| Ok(Bytes::from(d.blob()?.to_vec()));
            let entries = decode(input, |d| d.map(8, key, own))?;
            state.touch();
            state.change_omap(Step::SetOmap { entries });
            return Ok(Payload::new());
        }
        ops::OMAP_SET_HEADER => {
            state.touch();
            state.change_omap(Step::SetOmapHeader { header: Bytes::from(input.to_vec()) });
            return Ok(Payload::new());
        }
        _ => state.must_exist()?,
    }
    match op.code {
        ops::OMAP_GET_KEYS => {
            let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
            let page = page(osd, state, after, max, b"").await?;
            Ok(encode_page(&page, |e, (key, _)| e.blob(key)))
        }
        ops::OMAP_GET_VALS => {
            let (after, max, prefix) = decode(input, |d| Ok((d.blob()?, d.u64()?, d.blob()?)))?;
            let page = page(osd, state, after, max, prefix).await?;
            Ok(encode_page(&page, put_entry))
        }
        ops::OMAP_GET_HEADER => Ok(Payload::from(state.omap_header(osd).await?)),
        ops::OMAP_GET_VALS_BY_KEYS => values_of(osd, client_op, state, decode(input, keys)?).await,
        ops::OMAP_CMP => compare_values(osd, state, input).await.map(|()| Payload::new()),
        ops::OMAP_CLEAR => change(state, Step::ClearOmap),
        ops::OMAP_RM_KEYS => {
            let keys = decode(input, keys)?;
            change(state, Step::RemoveOmap { keys })
        }
        ops::OMAP_RM_RANGE => {
            let (from, to) = decode(input, |d| Ok((key(d)?, key(d)?)))?;
            change(state, Step::RemoveOmapRange { from, to })
        }
        _ => Err(OpError::of(errno::EOPNOTSUPP)),
    }
}

fn key(d: &mut Decoder<'_>) -> Result<Key, DecodeError> {
    Ok(d.blob()?.into())
}

fn keys(d: &mut Decoder<'_>) -> Result<Vec<Key>, DecodeError> {
    d.vec(4, key)
}

fn change(state: &mut State<'_>, step: Step) -> Result<Payload, OpError> {
    state.change_omap(step);
    Ok(Payload::new())
}

async fn page(
    osd: &OsdShard,
    state: &mut State<'_>,
    after: &[u8],
    max: u64,
    prefix: &[u8],
) -> Result<OmapPage, OpError> {
    let range = OmapRange {
        start: after.to_vec(),
        is_after: !after.is_empty(),
        prefix: prefix.to_vec(),
        entries_max: max.min(ENTRIES_MAX) as usize,
        bytes_max: ANSWER_BYTES as usize,
    };
    state.omap_page(osd, &range).await
}

/// The entries of a page, and whether there are more.
fn encode_page(page: &OmapPage, entry: impl Fn(&mut Encoder<'_>, &(Key, Bytes))) -> Payload {
    Payload::from(Encoder::collect(|e| {
        e.vec(&page.entries, entry);
        e.bool(page.more);
    }))
}

fn put_entry(e: &mut Encoder<'_>, (key, value): &(Key, Bytes)) {
    e.blob(key);
    e.blob(value);
}

/// Those of the keys that are there, in order, each once: however often it was asked for.
async fn values_of(
    osd: &OsdShard,
    client_op: &ClientOp,
    state: &mut State<'_>,
    mut keys: Vec<Key>,
) -> Result<Payload, OpError> {
    keys.sort_unstable();
    keys.dedup();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for keys in keys.chunks(LOOKUPS) {
        let values = state.omap_values(osd, keys).await?;
        let there = keys.iter().cloned().zip(values).filter_map(|(key, value)| Some((key, value?)));
        found.extend(there.inspect(|(key, value)| bytes += (key.len() + value.len()) as u64));
        if bytes > state.left {
            return Err(OpError::of(errno::EMSGSIZE));
        }
        if bytes > ANSWER_BYTES {
            client_op.take_more(osd).await;
        }
    }
    Ok(Payload::from(Encoder::collect(|e| e.vec(&found, put_entry))))
}

/// OMAP_CMP: all values must compare as they are asked to.
async fn compare_values(osd: &OsdShard, state: &mut State<'_>, input: &[u8]) -> Result<(), OpError> {
    let wanted = |d: &mut Decoder<'_>| Ok((d.blob()?.to_vec(), d.i32()?));
    for (key, (given, cmp_op)) in decode(input, |d| d.map(12, key, wanted))? {
        let stored = state.omap_values(osd, &[key]).await?.pop().flatten().unwrap_or_default();
        compare::omap(cmp_op, &given, &stored)?;
    }
    Ok(())
}
