//! An object as a class method sees it.

use std::ops::Range;

use carmine_codec::{Coded, DecodeError, Decoder};
use carmine_pgtypes::Step;
use carmine_reactor::{Bytes, Payload};
use carmine_store::{OmapPage, OmapRange};
use carmine_types::{UTime, Uuid, errno};
use carmine_wire::{EntityAddr, EntityName};

use crate::error::OpError;
use crate::pg::ObjectState;

/// The client that calls a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub gid: u64,
    pub addr: EntityAddr,
    /// For generating unique names.
    pub random: [u64; 2],
}

impl Caller {
    pub(super) fn name(&self) -> EntityName {
        EntityName::client(self.gid)
    }
}

/// An object, and the caller of the method.
pub(crate) struct Handle<'a, 'b> {
    state: &'a mut ObjectState<'b>,
    pub(super) caller: Caller,
    /// The result of a successful call: 0, or any positive number.
    pub(super) told: i32,
}

impl<'a, 'b> Handle<'a, 'b> {
    pub(super) fn new(state: &'a mut ObjectState<'b>, caller: Caller) -> Handle<'a, 'b> {
        Handle { state, caller, told: 0 }
    }

    /// The time of the request.
    pub(super) fn now(&self) -> UTime {
        self.state.mtime
    }

    /// ENOENT if there is no object.
    pub(super) fn must_exist(&self) -> Result<(), OpError> {
        self.state.must_exist()
    }

    /// ENOENT if there was no object before the request.
    pub(super) fn must_be_stored(&self) -> Result<(), OpError> {
        self.state.must_be_stored()
    }

    /// As [`ObjectState::snap_seq`].
    pub(super) fn snap_seq(&self) -> Result<Option<u64>, OpError> {
        self.state.snap_seq()
    }

    /// The object, unless this call is in vain: then it changes nothing.
    fn changeable(&mut self) -> Option<&mut ObjectState<'b>> {
        if self.state.is_in_vain() { None } else { Some(self.state) }
    }

    pub(super) fn remove_object(&mut self) {
        if let Some(state) = self.changeable() {
            state.remove();
        }
    }

    /// Makes the object, if there is none.
    pub(super) fn touch(&mut self) {
        if let Some(state) = self.changeable() {
            state.touch();
        }
    }

    pub(super) fn xattr(&mut self, name: &[u8]) -> Option<Bytes> {
        self.state.xattr(name)
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), OpError> {
        let Some(state) = self.changeable() else { return Ok(()) };
        state.set_xattr(name, Bytes::from(value))
    }

    /// Names of the xattrs that begin with `prefix`, without it.
    pub(super) fn xattrs(&mut self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let all = self.state.user_xattrs().into_iter();
        all.filter_map(|(name, _)| name.strip_prefix(prefix)).map(<[u8]>::to_vec).collect()
    }

    pub(super) fn omap(&mut self, name: &[u8]) -> Option<Bytes> {
        self.state.known_value(name)
    }

    /// A record in the omap, decoded as [`stored`] does.
    pub(super) fn record<T: Coded>(&mut self, name: &[u8]) -> Result<Option<T>, OpError> {
        self.omap(name).map(|value| stored(&value, |d| d.get())).transpose()
    }

    pub(super) fn set_omap(&mut self, name: &[u8], value: Vec<u8>) {
        if let Some(state) = self.changeable() {
            state.touch();
            state.change_omap(Step::SetOmap { entries: vec![(name.into(), Bytes::from(value))] });
        }
    }

    pub(super) fn remove_omap(&mut self, name: &[u8]) {
        if let Some(state) = self.changeable() {
            state.change_omap(Step::RemoveOmap { keys: vec![name.into()] });
        }
    }

    /// Removes the entries from one name to another, which stays.
    pub(super) fn remove_omap_range(&mut self, from: &[u8], to: &[u8]) {
        if let Some(state) = self.changeable() {
            state.change_omap(Step::RemoveOmapRange { from: from.into(), to: to.into() });
        }
    }

    pub(super) fn omap_header(&mut self) -> Bytes {
        self.state.known_header()
    }

    pub(super) fn set_omap_header(&mut self, header: Vec<u8>) {
        if let Some(state) = self.changeable() {
            state.touch();
            state.change_omap(Step::SetOmapHeader { header: Bytes::from(header) });
        }
    }

    /// A page of the entries whose names begin with `prefix` and come after `name`, and whether there are more.
    pub(super) fn omap_after(
        &mut self,
        prefix: &[u8],
        name: &[u8],
        max: u64,
    ) -> (Vec<(Vec<u8>, Bytes)>, bool) {
        let page = self.page(prefix, name.to_vec(), true, max, PAGE_BYTES_MAX);
        (page.entries.into_iter().map(|(key, value)| (key.into_vec(), value)).collect(), page.more)
    }

    /// A name that no write of the object has used before.
    pub(super) fn new_name(&mut self) -> String {
        self.state.new_name()
    }

    /// A page of the entries whose names begin with `prefix`: those after `prefix` + `after`, with the rest of their names.
    pub(super) fn omap_page(&mut self, prefix: &[u8], after: &[u8], max: u64) -> Vec<(Vec<u8>, Bytes)> {
        let page = self.page(prefix, [prefix, after].concat(), !after.is_empty(), max, PAGE_BYTES_MAX);
        without_prefix(page, prefix).collect()
    }

    /// A page of the entries whose names begin with `prefix`, from this name on, or after it.
    fn page(
        &mut self,
        prefix: &[u8],
        start: Vec<u8>,
        is_after: bool,
        max: u64,
        bytes_max: usize,
    ) -> OmapPage {
        let entries_max = max.min(PAGE_MAX) as usize;
        self.state.known_page(OmapRange { start, is_after, prefix: prefix.to_vec(), entries_max, bytes_max })
    }

    /// All entries whose names begin with `prefix`, with the rest of their names.
    ///
    /// # Errors
    /// E2BIG: they are too many to look at in one call.
    pub(super) fn omap_all(&mut self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Bytes)>, OpError> {
        let mut all: Vec<(Vec<u8>, Bytes)> = Vec::new();
        for _ in 0..PAGES_MAX {
            let after = all.last().map_or(Vec::new(), |(key, _)| key.clone());
            let start = [prefix, &after].concat();
            let page = self.page(prefix, start, !all.is_empty(), PAGE_MAX, PART_BYTES_MAX);
            if page.entries.is_empty() {
                return Ok(all);
            }
            all.extend(without_prefix(page, prefix));
        }
        Err(OpError::new(errno::E2BIG))
    }

    /// A random UUID.
    pub(super) fn new_uuid(&self) -> Uuid {
        let [high, low] = self.caller.random;
        Uuid::from_random(high, low)
    }

    /// Size of the object before the request; 0 if there was none. For methods that read parts of it.
    pub(super) fn stored_size(&self) -> u64 {
        match self.state.extra.as_ref().and_then(|extra| extra.data.as_deref()) {
            Some(data) => data.len() as u64,
            None => self.state.stored_size().unwrap_or(0),
        }
    }

    /// The bytes in `range`, up to the end of the object. If they are not in memory yet the result is meaningless: they are then
    /// loaded, and the method is called again.
    pub(super) fn bytes(&mut self, range: Range<u64>) -> Vec<u8> {
        self.state.known_bytes(range)
    }

    /// Truncates the object, or extends it with a hole.
    pub(super) fn resize(&mut self, size: u64) -> Result<(), OpError> {
        let Some(state) = self.changeable() else { return Ok(()) };
        state.touch();
        state.resize(size);
        if let Some(data) = state.extra.as_mut().and_then(|extra| extra.data.as_mut()) {
            data.resize(usize::try_from(size).map_err(|_| OpError::new(errno::EFBIG))?, 0);
        }
        Ok(())
    }

    /// All bytes of the object. Only for methods declared with [`Looks::Whole`](super::Looks).
    pub(super) fn data(&self) -> &[u8] {
        self.state.extra.as_ref().and_then(|extra| extra.data.as_deref()).unwrap_or_default()
    }

    /// Replaces some of the object's bytes, or appends.
    pub(super) fn write(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), OpError> {
        let Some(state) = self.changeable() else { return Ok(()) };
        let start = usize::try_from(at).map_err(|_| OpError::new(errno::EFBIG))?;
        let bytes = Bytes::from(bytes);
        state.write(at, Payload::from(bytes.clone()))?;
        if let Some(data) = state.extra.as_mut().and_then(|extra| extra.data.as_mut()) {
            let end = start + bytes.len();
            data.resize(data.len().max(end), 0);
            if let Some(place) = data.get_mut(start..end) {
                place.copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Replaces all of the object's bytes.
    pub(super) fn write_full(&mut self, bytes: Vec<u8>) -> Result<(), OpError> {
        let Some(state) = self.changeable() else { return Ok(()) };
        state.truncate(bytes.len() as u64);
        if let Some(data) = state.extra.as_mut().and_then(|extra| extra.data.as_mut()) {
            data.truncate(bytes.len());
        }
        self.write(0, bytes)
    }
}

/// The entries of a page, with the rest of their names after `prefix`.
fn without_prefix(page: OmapPage, prefix: &[u8]) -> impl Iterator<Item = (Vec<u8>, Bytes)> {
    let entries = page.entries.into_iter();
    entries.filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?.to_vec(), value)))
}

/// Most entries in one answer.
const PAGE_MAX: u64 = 1024;
/// Bytes of keys and values after which an answer ends.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Most pages for a method that must see all entries, and the bytes of one.
const PAGES_MAX: usize = 64;
const PART_BYTES_MAX: usize = 256 << 10;

/// Decodes a method's input; as in Ceph, trailing bytes are allowed.
///
/// # Errors
/// EINVAL.
pub(super) fn decode<'a, T>(
    input: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, OpError> {
    read(&mut Decoder::new(input, "input of a method")).map_err(|e| OpError::because(errno::EINVAL, e))
}

/// Decodes stored data, which may have been written by other programs; trailing bytes are allowed.
///
/// # Errors
/// EIO.
pub(super) fn stored<'a, T>(
    value: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, OpError> {
    read(&mut Decoder::new(value, "stored by a method")).map_err(|e| OpError::because(errno::EIO, e))
}
