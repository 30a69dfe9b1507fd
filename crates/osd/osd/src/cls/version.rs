//! Class `version`: a number and a tag of an object, kept in the xattr `ceph.objclass.version`, which calls can compare.

use carmine_codec::coded;
use carmine_types::errno;
use carmine_wire::Encoder;

use super::handle::{Handle, decode, stored};
use super::{Done, Method, read, write};
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    write("set", set),
    write("inc", increase),
    write("inc_conds", increase),
    read("read", version),
    read("check_conds", check),
];

const XATTR: &[u8] = b"ceph.objclass.version";
/// Characters of a random tag; C's zero byte ends it.
const TAG_CHARS: usize = 23;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

coded! {
    /// obj_version.
    #[derive(Default, PartialEq, Eq)]
    struct Version: versioned "obj_version", 1, compat 1, oldest 1 {
        number: u64,
        tag: Vec<u8>,
    }
}

coded! {
    struct Condition: versioned "obj_version_cond", 1, compat 1, oldest 1 {
        version: Version,
        comparison: u32,
    }
}

coded! {
    /// The input of `set`, and the output of `read`.
    struct Only: versioned "cls_version_set_op", 1, compat 1, oldest 1 {
        version: Version,
    }
}

coded! {
    /// The input of the others.
    struct Conditions: versioned "cls_version_inc_op", 1, compat 1, oldest 1 {
        /// Ignored.
        version: Version,
        conditions: Vec<Condition>,
    }
}

impl Version {
    fn load(h: &mut Handle<'_, '_>) -> Result<Option<Version>, OpError> {
        h.xattr(XATTR).map(|value| stored(&value, |d| d.get())).transpose()
    }

    /// The version that an object begins with.
    fn draw(h: &Handle<'_, '_>) -> Version {
        let [high, low] = h.caller.random;
        let bits = u128::from(high) << 64 | u128::from(low);
        let chars = (0..TAG_CHARS).filter_map(|n| ALPHABET.get((bits >> (5 * n) & 63) as usize).copied());
        Version { number: 1, tag: chars.chain([0]).collect() }
    }

    fn store(&self, h: &mut Handle<'_, '_>) -> Done {
        h.set_xattr(XATTR, Encoder::collect(|e| e.put(self))).map(|()| Vec::new())
    }

    /// ECANCELED unless all conditions hold.
    fn check_conditions(&self, conditions: &[Condition]) -> Result<(), OpError> {
        let holds = |condition: &Condition| {
            let wanted = &condition.version;
            match condition.comparison {
                1 => self == wanted,
                2 => self.number > wanted.number,
                3 => self.number >= wanted.number,
                4 => self.number < wanted.number,
                5 => self.number <= wanted.number,
                6 => self.tag == wanted.tag,
                7 => self.tag != wanted.tag,
                _ => true,
            }
        };
        if conditions.iter().all(holds) { Ok(()) } else { Err(OpError::new(errno::ECANCELED)) }
    }
}

fn set(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let Only { version } = decode(input, |d| d.get())?;
    version.store(h)
}

fn increase(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Conditions = decode(input, |d| d.get())?;
    let mut version = Version::load(h)?.unwrap_or_else(|| Version::draw(h));
    version.check_conditions(&wish.conditions)?;
    version.number = version.number.wrapping_add(1);
    version.store(h)
}

fn version(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    let version = Version::load(h)?.unwrap_or_default();
    Ok(Encoder::collect(|e| e.put(&Only { version })))
}

fn check(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    let wish: Conditions = decode(input, |d| d.get())?;
    Version::load(h)?.unwrap_or_default().check_conditions(&wish.conditions)?;
    Ok(Vec::new())
}
