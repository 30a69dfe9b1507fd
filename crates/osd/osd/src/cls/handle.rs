//! What a class method sees of an object.

use carmine_reactor::{Bytes, Payload};
use carmine_types::{UTime, errno};
use carmine_wire::{DecodeError, Decoder, EntityAddr, EntityName};

use crate::attrs::Kind;
use crate::pg::{State, decode_input};

/// Who calls a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub gid: u64,
    pub addr: EntityAddr,
}

impl Caller {
    pub(super) fn name(&self) -> EntityName {
        EntityName::client(self.gid)
    }
}

/// An object and who calls a method on it.
pub(crate) struct Handle<'a, 'b> {
    state: &'a mut State<'b>,
    pub(super) caller: Caller,
}

impl<'a, 'b> Handle<'a, 'b> {
    pub(super) fn new(state: &'a mut State<'b>, caller: Caller) -> Handle<'a, 'b> {
        Handle { state, caller }
    }

    /// The time of the request.
    pub(super) fn now(&self) -> UTime {
        self.state.mtime
    }

    /// ENOENT if there is no object.
    pub(super) fn must_exist(&self) -> Result<(), i32> {
        self.state.must_exist()
    }

    pub(super) fn remove_object(&mut self) {
        self.state.remove();
    }

    pub(super) fn xattr(&mut self, name: &[u8]) -> Option<Bytes> {
        self.state.view().get(Kind::Xattr, name).cloned()
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: Vec<u8>) {
        self.state.touch();
        self.state.view().set(Kind::Xattr, name, Bytes::from(value));
    }

    /// Names of the xattrs that begin with `prefix`, without it.
    pub(super) fn xattrs(&mut self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let all = self.state.view().after(Kind::Xattr, None, prefix);
        all.filter_map(|(name, _)| name.strip_prefix(prefix)).map(<[u8]>::to_vec).collect()
    }

    pub(super) fn omap(&mut self, name: &[u8]) -> Option<Bytes> {
        self.state.view().get(Kind::Omap, name).cloned()
    }

    pub(super) fn set_omap(&mut self, name: &[u8], value: Vec<u8>) {
        self.state.touch();
        self.state.view().set(Kind::Omap, name, Bytes::from(value));
    }

    pub(super) fn remove_omap(&mut self, name: &[u8]) {
        self.state.view().remove(Kind::Omap, name);
    }

    /// A page of the entries whose names begin with `prefix`: those after `prefix` + `after`, with their names' rest.
    pub(super) fn omap_page(&mut self, prefix: &[u8], after: &[u8], max: u64) -> Vec<(Vec<u8>, Bytes)> {
        let start = [prefix, after].concat();
        let start = (!after.is_empty()).then_some(&start[..]);
        let max = max.min(PAGE_MAX) as usize;
        let all = self.state.view().after(Kind::Omap, start, prefix).take(max);
        all.filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_vec(), value.clone()))).collect()
    }

    /// The object's bytes. Only for methods that say that they look at them.
    pub(super) fn data(&self) -> &[u8] {
        self.state.extra.as_ref().and_then(|extra| extra.data()).unwrap_or_default()
    }

    /// Replaces some of the object's bytes, or appends.
    pub(super) fn write(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), i32> {
        let start = usize::try_from(at).map_err(|_| errno::EFBIG)?;
        self.state.write(at, Payload::from(bytes.clone()), None)?;
        if let Some(data) = self.state.extra.as_mut().and_then(|extra| extra.data_mut().as_mut()) {
            let end = start + bytes.len();
            data.resize(data.len().max(end), 0);
            if let Some(place) = data.get_mut(start..end) {
                place.copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Replaces all of the object's bytes.
    pub(super) fn write_full(&mut self, bytes: Vec<u8>) -> Result<(), i32> {
        self.state.truncate(bytes.len() as u64);
        if let Some(data) = self.state.extra.as_mut().and_then(|extra| extra.data_mut().as_mut()) {
            data.truncate(bytes.len());
        }
        self.write(0, bytes)
    }
}

/// Most entries in one answer.
const PAGE_MAX: u64 = 1024;

/// Decodes a method's whole input.
///
/// # Errors
/// EINVAL.
pub(super) fn decode<'a, T>(
    input: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, i32> {
    decode_input(input, read)
}

/// Decodes what a method has stored.
///
/// # Errors
/// EIO.
pub(super) fn stored<'a, T>(
    value: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, i32> {
    Decoder::all(value, "stored by a method", read).map_err(|error| {
        tracing::error!("{error}");
        errno::EIO
    })
}
