//! Caps of an OSD's clients: a list of grants, of which one has to allow the whole of a request.

mod check;
mod grammar;
mod print;

use crate::Unparsable;
use crate::network::Network;

pub use check::{MethodNeed, Need, Tags, Target, Verdict};

/// What a key may do at an OSD. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    rights: Rights,
    network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rights {
    Rule(Rule),
    /// A name, and the rules that it stands for.
    Profile {
        name: String,
        place: Match,
        rules: Vec<Rule>,
    },
}

/// What is allowed, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    place: Match,
    spec: Spec,
}

/// Where: all that is given has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Match {
    pool: Option<String>,
    /// With a `*` at its end: those that begin so.
    namespace: Option<String>,
    tag: Option<Tag>,
    object_prefix: Option<String>,
}

/// An entry of a pool's application metadata. Key and value `*` are any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Spec {
    /// Bits of [`bits`].
    Allow(u8),
    /// A class, or one of its methods.
    Class { class: String, method: Option<String> },
}

impl Default for Spec {
    fn default() -> Spec {
        Spec::Allow(0)
    }
}

mod bits {
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const CLASS_READ: u8 = 4;
    pub(super) const CLASS_WRITE: u8 = 8;
    pub(super) const EXECUTE: u8 = CLASS_READ | CLASS_WRITE;
    /// More than all others together: also classes that are not listed.
    pub(super) const ANY: u8 = 0xff;
}

impl OsdCaps {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it cannot be read further; then it grants nothing.
    pub fn parse(text: &str) -> Result<OsdCaps, Unparsable> {
        grammar::parse(text)
    }

    /// `allow *`.
    pub fn everything() -> OsdCaps {
        let rule = Rule { spec: Spec::Allow(bits::ANY), ..Rule::default() };
        OsdCaps { grants: vec![Grant { rights: Rights::Rule(rule), network: None }] }
    }
}

/// The rules of a profile. An unknown one, as `osd` is to Ceph's OSDs, has none.
fn profile(name: &str, place: &Match) -> Vec<Rule> {
    let allow = |place: &Match, allowed| Rule { place: place.clone(), spec: Spec::Allow(allowed) };
    let object = |prefix: &str| Match { object_prefix: Some(prefix.to_owned()), ..Match::default() };
    let method = |place: Match, method: &str| Rule {
        place,
        spec: Spec::Class { class: "rbd".to_owned(), method: Some(method.to_owned()) },
    };
    let info = Match { pool: place.pool.clone(), namespace: Some(String::new()), ..object("rbd_info") };
    let header = || Match { object_prefix: Some("rbd_header.".to_owned()), ..place.clone() };
    match name {
        "read-only" => vec![allow(place, bits::READ)],
        "read-write" => vec![allow(place, bits::READ | bits::WRITE)],
        "rbd" => vec![
            allow(&object("rbd_info"), bits::READ),
            allow(&object("rbd_children"), bits::CLASS_READ),
            allow(&object("rbd_mirroring"), bits::CLASS_READ),
            method(info, "metadata_list"),
            allow(place, bits::READ | bits::WRITE | bits::EXECUTE),
        ],
        "rbd-read-only" => vec![
            method(info, "metadata_list"),
            allow(place, bits::READ | bits::CLASS_READ),
            method(header(), "child_attach"),
            method(header(), "child_detach"),
        ],
        _ => Vec::new(),
    }
}
