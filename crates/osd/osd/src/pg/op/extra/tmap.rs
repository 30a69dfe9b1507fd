//! TMAP_UPDATE: an object whose bytes are a header and a map (`rados_tmap_update` of librados). The omap replaced it long ago,
//! but it is still in the clients' interface. They read and write such an object as a whole.

use std::collections::BTreeMap;

use carmine_codec::{Decoder, Encoder, coded};
use carmine_reactor::Payload;
use carmine_types::errno;

use super::{Operation, decode};
use crate::error::OpError;
use crate::pg::op::exec::ObjectState;

/// Longest object of this kind: in memory its entries are larger.
const OBJECT_BYTES_MAX: u64 = 16 << 20;

/// Executes the commands of the input, all of them or none. A missing or empty object counts as an empty map.
pub(super) async fn update(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<(), OpError> {
    let Operation { objects, client, input, .. } = operation;
    if input.is_empty() {
        return Ok(());
    }
    state.load_data(objects, client, OBJECT_BYTES_MAX).await?;
    let data = &mut state.extra.get_or_insert_default().data;
    let stored = data.as_deref().unwrap_or_default();
    let mut map = if stored.is_empty() { Map::default() } else { Map::decode(stored)? };
    map.apply(&input.to_vec())?;
    let bytes = map.encode();
    *data = Some(bytes.clone());
    state.truncate(bytes.len() as u64);
    state.write(0, Payload::from(bytes))
}

coded! {
    #[derive(Default, PartialEq, Eq, Debug)]
    struct Map {
        header: Vec<u8>,
        entries: BTreeMap<Vec<u8>, Vec<u8>>,
    }
}

impl Map {
    /// Decodes a map, with its entries in any order.
    ///
    /// # Errors
    /// EINVAL.
    fn decode(bytes: &[u8]) -> Result<Map, OpError> {
        decode(bytes, |d| d.get())
    }

    fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(self))
    }

    /// # Errors
    /// EEXIST: a key to be created exists. ENOENT: a key to be removed does not. EINVAL: the commands are not valid.
    fn apply(&mut self, commands: &[u8]) -> Result<(), OpError> {
        let mut d = Decoder::new(commands, "commands of a map");
        while !d.is_empty() {
            self.step(&mut d)?;
        }
        Ok(())
    }

    fn step(&mut self, d: &mut Decoder<'_>) -> Result<(), OpError> {
        let command = d.u8().map_err(|e| OpError::because(errno::EINVAL, e))?;
        let mut word = || d.blob().map(<[u8]>::to_vec).map_err(|e| OpError::because(errno::EINVAL, e));
        let key = word()?;
        match command {
            b'h' => self.header = key,
            b's' => drop(self.entries.insert(key, word()?)),
            b'c' if self.entries.contains_key(&key) => return Err(OpError::new(errno::EEXIST)),
            b'c' => drop(self.entries.insert(key, word()?)),
            b'r' if self.entries.remove(&key).is_none() => return Err(OpError::new(errno::ENOENT)),
            b'r' => {}
            b'R' => drop(self.entries.remove(&key)),
            _ => return Err(OpError::new(errno::EINVAL)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(kind: u8, words: &[&[u8]]) -> Vec<u8> {
        Encoder::collect(|e| {
            e.u8(kind);
            words.iter().for_each(|word| e.blob(word));
        })
    }

    #[test]
    fn commands_change_a_map_as_in_ceph() {
        let mut map = Map::default();
        map.apply(&[command(b's', &[b"foo", b"1"]), command(b'c', &[b"bar", b"2"])].concat()).unwrap();
        assert_eq!(map.encode(), b"\0\0\0\0\x02\0\0\0\x03\0\0\0bar\x01\0\0\x002\x03\0\0\0foo\x01\0\0\x001");
        map.apply(&[command(b'h', &[b"head"]), command(b'R', &[b"none"]), command(b'r', &[b"bar"])].concat())
            .unwrap();
        assert_eq!((map.header.as_slice(), map.entries.len()), (&b"head"[..], 1));
        assert_eq!(map.apply(&command(b'r', &[b"bar"])), Err(OpError::new(errno::ENOENT)));
        assert_eq!(map.apply(&command(b'c', &[b"foo", b"x"])), Err(OpError::new(errno::EEXIST)));
        assert_eq!(Map::decode(&map.encode()), Ok(map));
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&b"x\x01\0\0\0k"[..], b"s", b"s\xff\xff\xff\xff", b"s\x01\0\0\0k"] {
            assert!(Map::default().apply(bytes).is_err(), "{bytes:?}");
        }
        assert!(Map::decode(b"junk").is_err() && Map::decode(b"\0\0\0\0\xff\xff\xff\xff").is_err());
    }
}
