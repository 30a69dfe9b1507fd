//! Class `log`: entries in the order of their times, each a value of the omap. The omap's header has the greatest time and key.

use carmine_codec::coded;
use carmine_types::{UTime, errno};
use carmine_wire::Encoder;

use super::handle::{Handle, decode, stored};
use super::{Done, Method, read, write};
use crate::error::OpError;

pub(super) const METHODS: &[Method] =
    &[write("add", add), write("trim", trim), read("list", list), read("info", info)];

/// Prefix of the entries' keys, unless the caller chose other keys.
const PREFIX: &str = "1_";
/// Most entries of one answer.
const LIST_MAX: i32 = 1000;
/// Sorts after anything that follows the time in a key.
const LAST: u8 = 0xff;

coded! {
    /// cls_log_entry.
    struct Entry: versioned "cls_log_entry", 2, compat 1, oldest 1 {
        section: Vec<u8>,
        name: Vec<u8>,
        time: UTime,
        data: Vec<u8>,
        /// Its key in the omap; empty: one is generated.
        id: Vec<u8>; since 2,
    }
}

coded! {
    /// cls_log_header.
    #[derive(Default)]
    struct Header: versioned "cls_log_header", 1, compat 1, oldest 1 {
        marker_max: Vec<u8>,
        time_max: UTime,
    }
}

coded! {
    struct Wish: versioned "cls_log_list_op", 1, compat 1, oldest 1 {
        from: UTime,
        marker: Vec<u8>,
        to: UTime,
        max: i32,
    }
}

coded! {
    struct Listed: versioned "cls_log_list_ret", 1, compat 1, oldest 1 {
        entries: Vec<Entry>,
        marker: Vec<u8>,
        is_truncated: bool,
    }
}

coded! {
    struct Bounds: versioned "cls_log_trim_op", 2, compat 1, oldest 1 {
        from: UTime,
        to: UTime,
        from_marker: Vec<u8>; since 2,
        to_marker: Vec<u8>; since 2,
    }
}

coded! {
    /// The output of `info`.
    struct Known: versioned "cls_log_info_ret", 1, compat 1, oldest 1 {
        header: Header,
    }
}

impl Header {
    fn load(h: &mut Handle<'_, '_>) -> Result<Header, OpError> {
        match h.omap_header() {
            header if header.is_empty() => Ok(Header::default()),
            header => stored(&header, |d| d.get()),
        }
    }
}

/// The prefix of the keys of all entries with this time.
fn start_of(time: UTime) -> Vec<u8> {
    format!("{PREFIX}{:010}.{:06}_", time.sec, time.nsec / 1000).into_bytes()
}

/// The caller's key, or the one made from a time.
fn key_of(marker: Vec<u8>, time: UTime) -> Vec<u8> {
    if marker.is_empty() { start_of(time) } else { marker }
}

fn add(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let (entries, is_rising): (Vec<Entry>, bool) = decode(input, |d| {
        let mut envelope = d.envelope("cls_log_add_op", 2)?;
        let entries = envelope.body.get()?;
        Ok((entries, envelope.version < 2 || envelope.body.bool()?))
    })?;
    let mut header = Header::load(h)?;
    for mut entry in entries {
        let time = if is_rising { entry.time.max(header.time_max) } else { entry.time };
        if entry.id.is_empty() {
            entry.id = [start_of(time), h.new_name().into_bytes()].concat();
        } else {
            h.new_name();
        }
        header.time_max = header.time_max.max(time);
        header.marker_max = std::mem::take(&mut header.marker_max).max(entry.id.clone());
        h.set_omap(&entry.id, Encoder::collect(|e| e.put(&entry)));
    }
    h.set_omap_header(Encoder::collect(|e| e.put(&header)));
    Ok(Vec::new())
}

fn list(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Wish = decode(input, |d| d.get())?;
    // A range has an end only if it has a beginning.
    let end = (wish.from != UTime::ZERO && wish.to >= wish.from).then(|| start_of(wish.to));
    let max = if (1..=LIST_MAX).contains(&wish.max) { wish.max } else { LIST_MAX };
    let (page, mut is_truncated) =
        h.omap_after(PREFIX.as_bytes(), &key_of(wish.marker, wish.from), max as u64);
    let (mut entries, mut marker) = (Vec::new(), Vec::new());
    for (key, value) in page {
        let is_over = end.as_ref().is_some_and(|end| key.get(..end.len()).unwrap_or(&key) >= &**end);
        marker = key;
        if is_over {
            is_truncated = false;
            break;
        }
        entries.extend(stored(&value, |d| d.get::<Entry>()).ok());
    }
    Ok(Encoder::collect(|e| e.put(&Listed { entries, marker, is_truncated })))
}

fn trim(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let bounds: Bounds = decode(input, |d| d.get())?;
    let from = key_of(bounds.from_marker, bounds.from);
    let to = match bounds.to_marker {
        marker if marker.is_empty() => [start_of(bounds.to), vec![LAST]].concat(),
        marker => marker,
    };
    let (page, _) = h.omap_after(b"", &from, 1);
    let first = page.into_iter().next().map(|(key, _)| key).filter(|first| *first <= to);
    h.remove_omap_range(&first.ok_or(OpError::new(errno::ENODATA))?, &[&to[..], &[0]].concat());
    Ok(Vec::new())
}

fn info(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    decode(input, |d| d.envelope("cls_log_info_op", 1).map(drop))?;
    let header = Header::load(h)?;
    Ok(Encoder::collect(|e| e.put(&Known { header })))
}
