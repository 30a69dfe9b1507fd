//! omap: sorted keys and values, and a header.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use carmine_codec::{DecodeError, Decoder, Encoder};
use carmine_pgtypes::{KEY_BYTES, Step};
use carmine_reactor::{Bytes, Payload};
use carmine_store::{OmapPage, OmapRange};
use carmine_types::errno;
use carmine_wire::osd_op::{ANSWER_BYTES, ops};

use super::{Operation, compare, decode, put_pairs};
use crate::config::TXN_BYTES_MAX;
use crate::error::{OpError, refuse_if};
use crate::op::ClientOp;
use crate::pg::copies::Objects;
use crate::pg::op::exec::ObjectState;

/// Most entries in one answer, whatever the client asks for (Ceph's osd_max_omap_entries_per_request).
const ENTRIES_MAX: u64 = 1024;
/// Keys looked up at a time.
const LOOKUPS: usize = 64;

type Key = Box<[u8]>;

pub(super) async fn step(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<Payload, OpError> {
    let Operation { objects, client, op, input } = operation;
    let input = &input.to_vec();
    match op.code {
        ops::OMAP_SET_VALS => {
            let own = |d: &mut Decoder<'_>| Ok(Bytes::from(d.blob()?.to_vec()));
            check_keys(input)?;
            let entries = decode(input, |d| d.map(8, key, own))?;
            state.touch();
            return change(state, Step::SetOmap { entries });
        }
        ops::OMAP_SET_HEADER => {
            state.touch();
            return change(state, Step::SetOmapHeader { header: Bytes::from(input.to_vec()) });
        }
        // An empty object has no entries.
        ops::OMAP_GET_KEYS | ops::OMAP_GET_VALS | ops::OMAP_GET_HEADER | ops::OMAP_GET_VALS_BY_KEYS => {}
        _ => state.must_exist()?,
    }
    match op.code {
        ops::OMAP_GET_KEYS => {
            let (after, max) = decode(input, |d| Ok((d.blob()?, d.u64()?)))?;
            let page = page(operation, state, (after, max, b"")).await?;
            Ok(encode_page(&page, |e, all| e.vec(all, |e, (key, _)| e.blob(key))))
        }
        ops::OMAP_GET_VALS => {
            let (after, max, prefix) = decode(input, |d| Ok((d.blob()?, d.u64()?, d.blob()?)))?;
            let page = page(operation, state, (after, max, prefix)).await?;
            Ok(encode_page(&page, put_pairs))
        }
        ops::OMAP_GET_HEADER => {
            let header = state.omap_header(objects).await?;
            client.acquire_for(objects.osd, header.len() as u64).await;
            Ok(Payload::from(header))
        }
        ops::OMAP_GET_VALS_BY_KEYS => values_of(operation, state, keys(input)?).await,
        ops::OMAP_CMP => compare_values(objects, state, input).await.map(|()| Payload::new()),
        ops::OMAP_CLEAR if state.omap().is_none() => Ok(Payload::new()),
        ops::OMAP_CLEAR => change(state, Step::ClearOmap),
        ops::OMAP_RM_KEYS => {
            let keys = keys(input)?;
            change(state, Step::RemoveOmap { keys })
        }
        ops::OMAP_RM_RANGE => {
            let (from, to) = decode(input, |d| Ok((key(d)?, key(d)?)))?;
            change(state, Step::RemoveOmapRange { from, to })
        }
        _ => Err(OpError::new(errno::EOPNOTSUPP)),
    }
}

fn key(d: &mut Decoder<'_>) -> Result<Key, DecodeError> {
    Ok(d.blob()?.into())
}

fn keys(input: &[u8]) -> Result<Vec<Key>, OpError> {
    check_keys(input)?;
    decode(input, |d| d.vec(4, key))
}

/// Refuses an input with more keys, whose number comes first, than may be loaded into memory: EMSGSIZE.
fn check_keys(input: &[u8]) -> Result<(), OpError> {
    let count = Decoder::new(input, "number of keys").u32().unwrap_or(0);
    let bytes = u64::from(count).min(input.len() as u64 / 4) * KEY_BYTES + input.len() as u64;
    if bytes > TXN_BYTES_MAX { Err(OpError::new(errno::EMSGSIZE)) } else { Ok(()) }
}

fn change(state: &mut ObjectState<'_>, step: Step) -> Result<Payload, OpError> {
    state.change_omap(step);
    Ok(Payload::new())
}

async fn page(
    Operation { objects, client, .. }: Operation<'_>,
    state: &mut ObjectState<'_>,
    (after, max, prefix): (&[u8], u64, &[u8]),
) -> Result<OmapPage, OpError> {
    let range = OmapRange {
        start: after.to_vec(),
        // As in Ceph, the empty key is not listed, because it does not come after any.
        is_after: true,
        prefix: prefix.to_vec(),
        entries_max: max.clamp(1, ENTRIES_MAX) as usize,
        bytes_max: ANSWER_BYTES as usize,
    };
    let mut page = state.omap_page(objects, &range).await?;
    // Counts the last value, too, which may be longer than all others.
    let bytes: usize = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    client.acquire_for(objects.osd, (bytes as u64).saturating_sub(ANSWER_BYTES)).await;
    if max == 0 {
        page.more = !page.entries.is_empty();
        page.entries.clear();
    }
    Ok(page)
}

/// The entries of a page, and whether there are more.
fn encode_page(page: &OmapPage, put: impl Fn(&mut Encoder<'_>, &[(Key, Bytes)])) -> Payload {
    Payload::from(Encoder::collect(|e| {
        put(e, &page.entries);
        e.bool(page.more);
    }))
}

/// The existing ones of these keys, in order, each once however often it was asked for.
async fn values_of(
    Operation { objects, client, .. }: Operation<'_>,
    state: &mut ObjectState<'_>,
    mut keys: Vec<Key>,
) -> Result<Payload, OpError> {
    keys.sort_unstable();
    keys.dedup();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for keys in keys.chunks(LOOKUPS) {
        let values = state.omap_values(objects, keys).await?;
        let there = keys.iter().cloned().zip(values).filter_map(|(key, value)| Some((key, value?)));
        found.extend(there.inspect(|(key, value)| bytes += (key.len() + value.len()) as u64));
        refuse_if(bytes > state.left, errno::EMSGSIZE)?;
        client.acquire_for(objects.osd, bytes).await;
    }
    Ok(Payload::from(Encoder::collect(|e| put_pairs(e, &found))))
}

/// OMAP_CMP: all comparisons must hold for the values before the request, as in Ceph.
async fn compare_values(
    objects: Objects<'_>,
    state: &mut ObjectState<'_>,
    input: &[u8],
) -> Result<(), OpError> {
    if !state.omap().is_none() {
        state.must_be_stored()?;
    }
    let wanted = |d: &mut Decoder<'_>| Ok((d.blob()?.to_vec(), d.i32()?));
    check_keys(input)?;
    let (keys, wanted): (Vec<Key>, Vec<_>) = decode(input, |d| d.map(12, key, wanted))?.into_iter().unzip();
    let wanted = wanted.into_iter().map(|(given, cmp_op)| Ok((given, compare::omap_op(cmp_op)?)));
    let wanted = wanted.collect::<Result<Vec<_>, OpError>>()?;
    let changed = state.extra.as_mut().and_then(|extra| extra.omap.take());
    let stored = state.omap_values(objects, &keys).await;
    state.extra.get_or_insert_default().omap = changed;
    wanted
        .iter()
        .zip(stored?)
        .try_for_each(|((given, cmp_op), stored)| compare::omap(*cmp_op, given, &stored.unwrap_or_default()))
}

/// An object's omap as a request sees it: the stored entries, with the changes that the request itself has made so far.
type Entries = BTreeMap<Box<[u8]>, Option<Bytes>>;

/// A range of keys: the first, and the first after the range.
type KeyRange = (Box<[u8]>, Box<[u8]>);

/// A request's changes, and the stored values loaded for its class methods.
#[derive(Default)]
pub(crate) struct OmapView {
    /// Set if stored entries are void: the object was removed, or did not exist.
    is_hidden: bool,
    /// New values; `None` removes.
    changes: Entries,
    /// Ranges in which stored entries are void.
    removed: Vec<KeyRange>,
    header: Option<Bytes>,
    /// Values loaded for a method, …
    values: Entries,
    pages: Vec<(OmapRange, OmapPage)>,
    /// … and what it asked for that was not loaded.
    pub(in crate::pg) missing: Option<Missing>,
}

/// The part of the object that a class method needs before it can be called again.
pub(crate) enum Missing {
    Value(Box<[u8]>),
    Page(OmapRange),
    Header,
    /// A range of the object's bytes.
    Bytes(Range<u64>),
}

impl OmapView {
    /// The omap of an object that was just removed.
    pub(crate) fn removed() -> OmapView {
        OmapView { is_hidden: true, ..OmapView::default() }
    }

    /// Whether it is empty.
    fn is_none(&self) -> bool {
        self.is_hidden
            && self.changes.is_empty()
            && self.header.as_ref().is_none_or(|header| header.is_empty())
    }

    /// The value of a key, if it is known without the store.
    fn known(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let is_removed = || self.removed.iter().any(|(from, to)| **from <= *key && *key < **to);
        match self.changes.get(key) {
            Some(changed) => Some(changed.clone()),
            None if self.is_hidden || is_removed() => Some(None),
            None => self.values.get(key).cloned(),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::SetOmap { entries } => {
                self.changes.extend(entries.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
            }
            Step::RemoveOmap { keys } => {
                self.changes.extend(keys.iter().map(|key| (key.clone(), None)));
            }
            Step::RemoveOmapRange { from, to } => {
                self.changes.retain(|key, _| key < from || key >= to);
                self.removed.push((from.clone(), to.clone()));
            }
            Step::SetOmapHeader { header } => self.header = Some(header.clone()),
            _ => *self = OmapView { header: Some(Bytes::new()), ..OmapView::removed() },
        }
    }

    /// Adds the store's page of `range` to `out`, with the changes within it. `Some`: the rest of the range.
    fn merge(&self, range: OmapRange, page: OmapPage, out: &mut OmapPage) -> Option<OmapRange> {
        let last = page.entries.last().map(|(key, _)| key.clone()).filter(|_| page.more);
        let rest = last.is_some().then(|| range.clone().after(&page));
        let stored = page.entries.into_iter().filter(|(key, _)| self.known(key).is_none_or(|v| v.is_some()));
        let mut merged: Entries = stored.map(|(key, value)| (key, Some(value))).collect();
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&range.first()), Bound::Unbounded);
        let inside = |key: &[u8]| key.starts_with(&range.prefix) && last.as_ref().is_none_or(|l| *key <= **l);
        let changed = self.changes.range::<[u8], _>(from).take_while(|(key, _)| inside(key));
        merged.extend(changed.map(|(key, value)| (key.clone(), value.clone())));
        for (key, value) in merged {
            if let Some(value) = value
                && !out.push(&range, &key, value)
            {
                return None;
            }
        }
        rest
    }
}

impl ObjectState<'_> {
    /// The object's omap as this request sees it.
    pub(in crate::pg) fn omap(&mut self) -> &mut OmapView {
        let is_hidden = !self.was.as_ref().is_some_and(|was| was.has_omap);
        let extra = self.extra.get_or_insert_default();
        extra.omap.get_or_insert_with(|| OmapView { is_hidden, ..OmapView::default() })
    }

    /// Changes the omap.
    pub(crate) fn change_omap(&mut self, step: Step) {
        self.exists |= step.creates();
        self.omap().apply(&step);
        self.push_attr(step);
    }

    /// The omap header.
    pub(in crate::pg) async fn omap_header(&mut self, objects: Objects<'_>) -> Result<Bytes, OpError> {
        match self.omap() {
            OmapView { header: Some(header), .. } => Ok(header.clone()),
            OmapView { is_hidden: true, .. } => Ok(Bytes::new()),
            _ => objects.omap_header(self.oid).await.map_err(OpError::from),
        }
    }

    /// The values of these keys; `None` for missing ones.
    pub(in crate::pg) async fn omap_values(
        &mut self,
        objects: Objects<'_>,
        keys: &[Box<[u8]>],
    ) -> Result<Vec<Option<Bytes>>, OpError> {
        let stored = if self.omap().is_hidden {
            vec![None; keys.len()]
        } else {
            objects.omap_values(self.oid, keys).await?
        };
        let view = self.omap();
        Ok(keys.iter().zip(stored).map(|(key, stored)| view.known(key).unwrap_or(stored)).collect())
    }

    /// A page of the omap.
    pub(in crate::pg) async fn omap_page(
        &mut self,
        objects: Objects<'_>,
        range: &OmapRange,
    ) -> Result<OmapPage, OpError> {
        let (mut out, mut rest) = (OmapPage::default(), Some(range.clone()));
        while let Some(range) = rest {
            let page = if self.omap().is_hidden {
                OmapPage::default()
            } else {
                objects.omap_page(self.oid, &range).await?
            };
            rest = self.omap().merge(range, page, &mut out);
        }
        Ok(out)
    }

    /// For a class method: the value of a key. Also `None` if it is not loaded yet: then this call of the method is void, and it
    /// is called again after loading.
    pub(crate) fn known_value(&mut self, key: &[u8]) -> Option<Bytes> {
        let view = self.omap();
        view.known(key).unwrap_or_else(|| {
            view.missing.get_or_insert_with(|| Missing::Value(key.into()));
            None
        })
    }

    /// For a class method: the header, as for [`ObjectState::known_value`].
    pub(crate) fn known_header(&mut self) -> Bytes {
        let view = self.omap();
        if view.header.is_none() && !view.is_hidden {
            view.missing.get_or_insert(Missing::Header);
        }
        view.header.clone().unwrap_or_default()
    }

    /// For a class method: a page; empty if it is not loaded yet, as for [`ObjectState::known_value`].
    pub(crate) fn known_page(&mut self, range: OmapRange) -> OmapPage {
        let view = self.omap();
        let stored = if view.is_hidden {
            Some(OmapPage::default())
        } else {
            view.pages.iter().find(|(of, _)| *of == range).map(|(_, page)| page.clone())
        };
        let Some(stored) = stored else {
            view.missing.get_or_insert(Missing::Page(range));
            return OmapPage::default();
        };
        let mut out = OmapPage::default();
        out.more |= view.merge(range, stored, &mut out).is_some();
        out
    }

    /// Whether a class method has asked for something that is not loaded: this call of it is void.
    pub(crate) fn is_in_vain(&self) -> bool {
        let omap = self.extra.as_ref().and_then(|extra| extra.omap.as_ref());
        omap.is_some_and(|omap| omap.missing.is_some())
    }

    /// Loads what a class method has asked for; `false` if there is nothing.
    pub(crate) async fn look_up_missing(
        &mut self,
        objects: Objects<'_>,
        op: &ClientOp,
    ) -> Result<bool, OpError> {
        match self.omap().missing.take() {
            None => return Ok(false),
            Some(Missing::Value(key)) => {
                let keys = [key];
                let values = objects.omap_values(self.oid, &keys).await?;
                self.omap().values.extend(keys.into_iter().zip(values));
            }
            Some(Missing::Page(range)) => {
                let page = objects.omap_page(self.oid, &range).await?;
                self.omap().pages.push((range, page));
            }
            Some(Missing::Bytes(range)) => self.look_up_bytes(objects, op, range).await?,
            Some(Missing::Header) => {
                let header = objects.omap_header(self.oid).await?;
                self.omap().header = Some(header);
            }
        }
        Ok(true)
    }
}
