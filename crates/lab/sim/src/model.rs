//! An object as RADOS defines it, in memory: the effect of each operation on it, and the answer to each.

use std::collections::BTreeMap;

use carmine_types::errno;

/// First bytes of each aligned block of data that clients write, by which it is recognised on a disk.
pub const BLOCK_TAG: [u8; 8] = *b"sim-data";
const BLOCK: u64 = 4096;

/// The content of an object.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub struct Object {
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub omap: BTreeMap<String, Vec<u8>>,
}

/// One operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Data is identified by a number: see [`bytes`].
    Write { off: u64, len: u64, data: u64 },
    /// Replaces all data.
    WriteFull { len: u64, data: u64 },
    /// Adds data at the end.
    Append { len: u64, data: u64 },
    /// To this length, shorter or longer.
    Truncate(u64),
    /// Makes an empty object; an exclusive one refuses an object that is there.
    Create { exclusive: bool },
    /// Removes the object.
    Delete,
    /// Gives an attribute a value.
    SetXattr(u8, u64),
    /// Removes an attribute.
    RmXattr(u8),
    /// Goes on only if the attribute has this value.
    Guard(u8, u64),
    /// Gives a key a value.
    OmapSet(u8, u64),
    /// Removes a key.
    OmapRm(u8),
    /// Removes all keys.
    OmapClear,
    /// The object's length.
    Stat,
    /// All data.
    Read,
    /// All attributes.
    GetXattrs,
    /// All keys and their values.
    OmapVals,
}

/// The answer of a step that reads; writes answer nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    None,
    Size(u64),
    Data(Vec<u8>),
    Pairs(BTreeMap<String, Vec<u8>>),
}

/// Why a request did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotThere,
    Exists,
    GuardFailed,
}

impl Refusal {
    /// True if this is an errno for that reason.
    pub fn is(self, code: i32) -> bool {
        match self {
            Refusal::NotThere => code == errno::ENOENT,
            Refusal::Exists => code == errno::EEXIST,
            // An attribute, or an object, that is not there.
            Refusal::GuardFailed => [errno::ECANCELED, errno::ENODATA, errno::ENOENT].contains(&code),
        }
    }
}

impl Step {
    pub fn is_write(&self) -> bool {
        !matches!(self, Step::Guard(..) | Step::Stat | Step::Read | Step::GetXattrs | Step::OmapVals)
    }
}

/// The data with this number, as it lies at an offset of an object: each byte depends on the number and its place, and
/// the beginning of each block is [`BLOCK_TAG`].
pub fn bytes(data: u64, off: u64, len: u64) -> Vec<u8> {
    let byte = |at: u64| match BLOCK_TAG.get((at % BLOCK) as usize) {
        Some(tag) => *tag,
        None => (data.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at / 8).wrapping_mul(0xD134_2543_DE82_EF95))
            .to_le_bytes()[(at % 8) as usize],
    };
    (off..off + len).map(byte).collect()
}

/// The name of an attribute or a key.
pub fn name(number: u8) -> String {
    format!("n{number}")
}

/// Carries out a request: all of its steps, or none.
///
/// # Errors
/// Why it did nothing.
pub fn apply(before: Option<&Object>, steps: &[Step]) -> Result<(Option<Object>, Vec<Output>), Refusal> {
    let mut object = before.cloned();
    let mut outputs = Vec::with_capacity(steps.len());
    for step in steps {
        outputs.push(one(&mut object, step)?);
    }
    Ok((object, outputs))
}

fn one(object: &mut Option<Object>, step: &Step) -> Result<Output, Refusal> {
    if !step.is_write() {
        return read(object.as_ref(), step);
    }
    match *step {
        Step::Create { exclusive: true } if object.is_some() => return Err(Refusal::Exists),
        Step::Delete => return object.take().map(|_| Output::None).ok_or(Refusal::NotThere),
        _ => {}
    }
    let object = object.get_or_insert_default();
    match *step {
        Step::Write { off, len, data } => put(&mut object.data, off, &bytes(data, off, len)),
        Step::WriteFull { len, data } => object.data = bytes(data, 0, len),
        Step::Append { len, data } => {
            let off = object.data.len() as u64;
            // Appended data is independent of its offset, which the client does not know.
            let text: Vec<u8> = bytes(data, 8, len);
            put(&mut object.data, off, &text);
        }
        Step::Truncate(size) => object.data.resize(size as usize, 0),
        Step::SetXattr(key, value) => _ = object.xattrs.insert(name(key), value.to_le_bytes().to_vec()),
        Step::RmXattr(key) => _ = object.xattrs.remove(&name(key)),
        Step::OmapSet(key, value) => _ = object.omap.insert(name(key), value.to_le_bytes().to_vec()),
        Step::OmapRm(key) => _ = object.omap.remove(&name(key)),
        Step::OmapClear => object.omap.clear(),
        _ => {}
    }
    Ok(Output::None)
}

fn read(object: Option<&Object>, step: &Step) -> Result<Output, Refusal> {
    if let Step::Guard(key, value) = step {
        let found = object.and_then(|object| object.xattrs.get(&name(*key)));
        let holds = found.is_some_and(|found| found[..] == value.to_le_bytes());
        return if holds { Ok(Output::None) } else { Err(Refusal::GuardFailed) };
    }
    let object = object.ok_or(Refusal::NotThere)?;
    Ok(match step {
        Step::Stat => Output::Size(object.data.len() as u64),
        Step::Read => Output::Data(object.data.clone()),
        Step::GetXattrs => Output::Pairs(object.xattrs.clone()),
        _ => Output::Pairs(object.omap.clone()),
    })
}

fn put(data: &mut Vec<u8>, off: u64, new: &[u8]) {
    let (from, to) = (off as usize, off as usize + new.len());
    if data.len() < to {
        data.resize(to, 0);
    }
    data[from..to].copy_from_slice(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: &[Step]) -> Object {
        apply(None, steps).unwrap().0.unwrap()
    }

    #[test]
    fn all_or_nothing() {
        let made = after(&[Step::WriteFull { len: 10, data: 1 }, Step::SetXattr(1, 7)]);
        let refused = apply(Some(&made), &[Step::Append { len: 5, data: 2 }, Step::Guard(1, 8)]);
        assert_eq!(refused, Err(Refusal::GuardFailed));
        let (more, outputs) =
            apply(Some(&made), &[Step::Guard(1, 7), Step::Append { len: 5, data: 2 }, Step::Stat]).unwrap();
        assert_eq!((more.unwrap().data.len(), &outputs[2]), (15, &Output::Size(15)));
        assert_eq!(apply(Some(&made), &[Step::Create { exclusive: true }]), Err(Refusal::Exists));
        assert_eq!(apply(None, &[Step::Delete]), Err(Refusal::NotThere));
        assert_eq!(apply(Some(&made), &[Step::Delete]).unwrap().0, None);
    }

    #[test]
    fn data_tells_its_number_and_place() {
        let whole = bytes(5, 4000, 400);
        assert_eq!(whole[100..], bytes(5, 4100, 300));
        assert_eq!(whole[96..104], BLOCK_TAG);
        assert_ne!(bytes(5, 100, 50), bytes(6, 100, 50));
        let holes = after(&[Step::Write { off: 100, len: 10, data: 3 }]);
        assert_eq!((holes.data.len(), &holes.data[..100]), (110, &[0; 100][..]));
    }
}
