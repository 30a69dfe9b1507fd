//! What a request sees of an object's attributes, and what it changes.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::rc::Rc;

use carmine_reactor::Bytes;

use super::{Attrs, Kind};

/// A change: new values by name; `None` removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    /// Nothing from before counts any more.
    pub(super) reset: bool,
    /// Nothing of this kind from before counts any more.
    pub(super) cleared: [bool; Kind::COUNT],
    pub(super) changes: [BTreeMap<Box<[u8]>, Option<Bytes>>; Kind::COUNT],
    pub(super) omap_header: Option<Bytes>,
}

impl Delta {
    pub(super) fn is_empty(&self) -> bool {
        *self == Delta::default()
    }

    fn hides(&self, kind: Kind) -> bool {
        self.reset || self.cleared[kind as usize]
    }
}

/// An object's attributes as a request has left them so far.
pub(crate) struct View {
    base: Rc<Attrs>,
    delta: Delta,
}

impl View {
    pub(crate) fn new(base: Rc<Attrs>) -> View {
        View { base, delta: Delta::default() }
    }

    /// Those of an object that was just removed.
    pub(crate) fn removed() -> View {
        View { base: Rc::default(), delta: Delta { reset: true, ..Delta::default() } }
    }

    pub(super) fn into_parts(self) -> (Rc<Attrs>, Delta) {
        (self.base, self.delta)
    }

    /// Bytes of names and values that the object had before the request.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.base.bytes
    }

    /// The value of this name.
    pub(crate) fn get(&self, kind: Kind, name: &[u8]) -> Option<&Bytes> {
        match self.delta.changes[kind as usize].get(name) {
            Some(changed) => changed.as_ref(),
            None if self.delta.hides(kind) => None,
            None => self.base.map(kind).get(name),
        }
    }

    pub(crate) fn set(&mut self, kind: Kind, name: &[u8], value: Bytes) {
        self.delta.changes[kind as usize].insert(name.into(), Some(value));
    }

    /// Removes a name; one that is not there makes no difference.
    pub(crate) fn remove(&mut self, kind: Kind, name: &[u8]) {
        if self.get(kind, name).is_some() {
            self.delta.changes[kind as usize].insert(name.into(), None);
        }
    }

    /// Removes everything of this kind.
    pub(crate) fn clear(&mut self, kind: Kind) {
        self.delta.changes[kind as usize].clear();
        self.delta.cleared[kind as usize] = true;
    }

    pub(crate) fn omap_header(&self) -> Bytes {
        match &self.delta.omap_header {
            Some(header) => header.clone(),
            None if self.delta.reset => Bytes::new(),
            None => self.base.omap_header.clone(),
        }
    }

    pub(crate) fn set_omap_header(&mut self, header: Bytes) {
        self.delta.omap_header = Some(header);
    }

    /// Names and values in order: those after `after`, and not before `prefix`, as long as they begin with it.
    pub(crate) fn after<'a>(
        &'a self,
        kind: Kind,
        after: Option<&[u8]>,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = (start, Bound::Unbounded);
        let stored = (!self.delta.hides(kind)).then(|| self.base.map(kind).range::<[u8], _>(range));
        let changed = self.delta.changes[kind as usize].range::<[u8], _>(range);
        let merged = Merged { stored: stored.into_iter().flatten().peekable(), changed: changed.peekable() };
        merged.take_while(move |(name, _)| name.starts_with(prefix))
    }
}

/// Two ordered runs as one; of a name in both the change counts.
struct Merged<S: Iterator, C: Iterator> {
    stored: Peekable<S>,
    changed: Peekable<C>,
}

impl<'a, S, C> Iterator for Merged<S, C>
where
    S: Iterator<Item = (&'a Box<[u8]>, &'a Bytes)>,
    C: Iterator<Item = (&'a Box<[u8]>, &'a Option<Bytes>)>,
{
    type Item = (&'a [u8], &'a Bytes);

    fn next(&mut self) -> Option<(&'a [u8], &'a Bytes)> {
        loop {
            let Some((changed, _)) = self.changed.peek() else {
                return self.stored.next().map(|(name, value)| (&**name, value));
            };
            if let Some((name, value)) = self.stored.next_if(|(stored, _)| stored < changed) {
                return Some((name, value));
            }
            self.stored.next_if(|(stored, _)| stored == changed);
            if let Some((name, Some(value))) = self.changed.next() {
                return Some((name, value));
            }
        }
    }
}
