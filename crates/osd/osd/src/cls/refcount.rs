//! Class `refcount`: an object that is removed with its last reference. References are tags, kept in the xattr `refcount`.

use std::collections::{BTreeMap, BTreeSet};

use carmine_codec::coded;
use carmine_types::errno;
use carmine_wire::Encoder;

use super::handle::{Handle, decode, stored};
use super::{Done, Method, read, write};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] =
    &[write("get", get), write("put", put), write("set", set), read("read", references)];

const XATTR: &[u8] = b"refcount";
/// The tag of the implicit reference of an object without references, if the caller says that it has one.
const IMPLICIT: &[u8] = b"";

coded! {
    /// obj_refcount.
    #[derive(Default)]
    struct References: versioned "obj_refcount", 2, compat 1, oldest 1 {
        tags: BTreeMap<Vec<u8>, bool>,
        /// Tags that were released: releasing them again changes nothing.
        retired: BTreeSet<Vec<u8>>; since 2,
    }
}

coded! {
    /// The input of `get` and `put`.
    struct Change: versioned "cls_refcount_get_op", 1, compat 1, oldest 1 {
        tag: Vec<u8>,
        is_implicit: bool,
    }
}

coded! {
    /// The input of `set`, and the output of `read`.
    struct Tags: versioned "cls_refcount_set_op", 1, compat 1, oldest 1 {
        tags: Vec<Vec<u8>>,
    }
}

coded! {
    /// The input of `read`.
    struct Wish: versioned "cls_refcount_read_op", 1, compat 1, oldest 1 {
        is_implicit: bool,
    }
}

impl References {
    fn load(h: &mut Handle<'_, '_>, is_implicit: bool) -> Result<References, OpError> {
        h.must_exist()?;
        match h.xattr(XATTR) {
            Some(value) => stored(&value, |d| d.get()),
            None if is_implicit => {
                Ok(References { tags: [(IMPLICIT.to_vec(), true)].into(), ..References::default() })
            }
            None => Ok(References::default()),
        }
    }

    fn store(&self, h: &mut Handle<'_, '_>) -> Done {
        h.set_xattr(XATTR, Encoder::collect(|e| e.put(self))).map(|()| Vec::new())
    }
}

fn get(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Change = decode(input, |d| d.get())?;
    let mut references = References::load(h, wish.is_implicit)?;
    references.tags.insert(wish.tag, true);
    references.store(h)
}

fn put(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Change = decode(input, |d| d.get())?;
    let mut references = References::load(h, wish.is_implicit)?;
    refuse_if(references.tags.is_empty(), errno::EINVAL)?;
    if references.retired.contains(&wish.tag) {
        return Ok(Vec::new());
    }
    let is_found = references.tags.remove(&wish.tag).is_some()
        || (wish.is_implicit && references.tags.remove(IMPLICIT).is_some());
    if !is_found {
        return Ok(Vec::new());
    }
    if references.tags.is_empty() {
        h.remove_object();
        return Ok(Vec::new());
    }
    references.retired.insert(wish.tag);
    references.store(h)
}

/// Without any tag the object is removed.
fn set(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let Tags { tags } = decode(input, |d| d.get())?;
    if tags.is_empty() {
        h.must_exist()?;
        h.remove_object();
        return Ok(Vec::new());
    }
    let tags = tags.into_iter().map(|tag| (tag, true)).collect();
    References { tags, ..References::default() }.store(h)
}

fn references(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Wish = decode(input, |d| d.get())?;
    let tags = References::load(h, wish.is_implicit)?.tags.into_keys().collect();
    Ok(Encoder::collect(|e| e.put(&Tags { tags })))
}
