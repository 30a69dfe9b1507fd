//! Whether caps allow a request. Read and write have to come from one rule; methods may be allowed by several, each of which also
//! has to allow what the request reads and writes itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Grant, Match, OsdCaps, Rights, Rule, Spec, Tag, bits};

/// A pool's application metadata.
pub type Tags = BTreeMap<String, BTreeMap<String, String>>;

/// What a request is about, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The namespace that the request names.
    pub namespace: &'a [u8],
    /// The object's locator key, or its name if it has none; empty for requests about a PG.
    pub object: &'a [u8],
    /// The pool's tags.
    pub tags: &'a Tags,
    /// The client's address, as far as it is known.
    pub client: Option<IpAddr>,
}

/// What a request needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need<'a> {
    /// It reads.
    pub read: bool,
    /// It writes.
    pub write: bool,
    /// The methods that it calls.
    pub methods: Vec<MethodNeed<'a>>,
}

/// A method of an object class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodNeed<'a> {
    /// The class.
    pub class: &'a str,
    /// The method.
    pub method: &'a str,
    /// It reads the object.
    pub reads: bool,
    /// It changes the object.
    pub writes: bool,
    /// Its class is one of those that `x` covers; others need `*`, or their name.
    pub is_listed: bool,
}

/// Bits of an operation's code.
const MODE_READ: u16 = 0x1000;
const MODE_WRITE: u16 = 0x2000;
const WATCH: u16 = 0x220f;

impl Need<'_> {
    /// Adds what an operation needs by its code. Not for calls of methods, whose flags count instead, nor for pings of watches,
    /// which only read.
    pub fn add(&mut self, code: u16) {
        self.read |= code & MODE_READ != 0 || code == WATCH;
        self.write |= code & MODE_WRITE != 0;
    }
}

/// Whether a request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Refused,
    /// Of this object.
    Allowed,
    /// And so is every request of the same client that needs the same, for any object of the same pool and namespace, as long
    /// as the pool has its name and tags.
    AllowedForAll,
}

impl OsdCaps {
    /// Whether a request is allowed.
    pub fn allow(&self, target: &Target<'_>, need: &Need<'_>) -> bool {
        self.verdict(target, need) != Verdict::Refused
    }

    /// The same, and for what else it holds.
    pub fn verdict(&self, target: &Target<'_>, need: &Need<'_>) -> Verdict {
        let mut allowed = vec![false; need.methods.len()];
        let grants = self.grants.iter().filter(|grant| grant.is_for(target.client));
        let mut rules = grants.flat_map(Grant::rules).filter(|rule| rule.place.is_match(target));
        match rules.find(|rule| rule.spec.allows(need, &mut allowed)) {
            None => Verdict::Refused,
            Some(rule) if rule.place.object_prefix.is_none() && need.methods.is_empty() => {
                Verdict::AllowedForAll
            }
            Some(_) => Verdict::Allowed,
        }
    }

    /// Whether they are those of an administrator, who may do what is no operation, too.
    pub fn allow_everything(&self, client: Option<IpAddr>) -> bool {
        let is_all = |rule: &Rule| rule.place == Match::default() && rule.spec == Spec::Allow(bits::ANY);
        self.grants.iter().filter(|grant| grant.is_for(client)).flat_map(Grant::rules).any(is_all)
    }

    /// Whether their owner may make and remove snapshots of its own in a pool, which it asks the monitor for: it may write
    /// everywhere, or in this pool. Tags, networks and what is less than a pool do not count, as in Ceph.
    pub fn allow_snapshots(&self, pool: &str) -> bool {
        let is_place =
            |place: &Match| *place == Match::default() || place.pool.as_ref().is_some_and(|own| own == pool);
        let writes = |rule: &Rule| matches!(rule.spec, Spec::Allow(bits) if bits & bits::WRITE != 0);
        self.grants.iter().flat_map(Grant::rules).any(|rule| writes(rule) && is_place(&rule.place))
    }
}

impl Grant {
    fn is_for(&self, client: Option<IpAddr>) -> bool {
        self.network.as_ref().is_none_or(|network| network.contains(client))
    }

    fn rules(&self) -> &[Rule] {
        match &self.rights {
            Rights::Rule(rule) => std::slice::from_ref(rule),
            Rights::Profile { rules, .. } => rules,
        }
    }
}

impl Spec {
    /// Whether it allows the rest of what is needed; notes the methods that it does allow.
    fn allows(&self, need: &Need<'_>, allowed: &mut [bool]) -> bool {
        let bits = match self {
            Spec::Allow(bits) => *bits,
            Spec::Class { .. } => 0,
        };
        if (need.read && bits & bits::READ == 0) || (need.write && bits & bits::WRITE == 0) {
            return false;
        }
        for (method, allowed) in need.methods.iter().zip(&mut *allowed) {
            *allowed |= bits == bits::ANY || self.names(method) || method.is_covered(bits);
        }
        allowed.iter().all(|is_allowed| *is_allowed)
    }

    fn names(&self, need: &MethodNeed<'_>) -> bool {
        match self {
            Spec::Class { class, method } => {
                class == need.class && method.as_ref().is_none_or(|method| method == need.method)
            }
            Spec::Allow(_) => false,
        }
    }
}

impl MethodNeed<'_> {
    fn is_covered(&self, allowed: u8) -> bool {
        let reads = !self.reads || allowed & bits::CLASS_READ != 0;
        let writes = !self.writes || allowed & bits::CLASS_WRITE != 0;
        self.is_listed && reads && writes
    }
}

impl Match {
    fn is_match(&self, target: &Target<'_>) -> bool {
        let is_in = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => target.namespace.starts_with(start.as_bytes()),
            None => target.namespace == wanted.as_bytes(),
        };
        self.pool.as_ref().is_none_or(|pool| pool == target.pool)
            && self.namespace.as_ref().is_none_or(is_in)
            && self.tag.as_ref().is_none_or(|tag| tag.is_match(target.tags))
            && self.object_prefix.as_ref().is_none_or(|prefix| target.object.starts_with(prefix.as_bytes()))
    }
}

impl Tag {
    fn is_match(&self, tags: &Tags) -> bool {
        let Some(tags) = tags.get(&self.application) else { return false };
        let is_value = |value: &String| self.value == "*" || self.value == *value;
        match self.key.as_str() {
            // Also of an application without any.
            "*" => self.value == "*" || tags.values().any(is_value),
            key => tags.get(key).is_some_and(is_value),
        }
    }
}
