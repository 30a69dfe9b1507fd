//! [`Payload`]: the data of a message or an object, as a short list of shared ranges.

use smallvec::SmallVec;

use super::Bytes;

/// A gather list. Most payloads are one range; empty ranges are never stored.
#[derive(Default)]
pub struct Payload {
    chunks: SmallVec<[Bytes; 1]>,
    len: usize,
    /// Checksum of the whole payload with the usual seed, if it was computed.
    crc: Option<u32>,
}

impl Payload {
    /// No bytes.
    #[must_use]
    pub fn new() -> Payload {
        Payload::default()
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a range.
    pub fn push(&mut self, b: Bytes) {
        if !b.is_empty() {
            self.len += b.len();
            self.chunks.push(b);
            self.crc = None;
        }
    }

    /// The same bytes, with a checksum that the caller knows ([`SEED`](carmine_types::crc32c::SEED)): it is trusted, sent and
    /// stored.
    #[must_use]
    pub fn with_crc(mut self, crc: u32) -> Payload {
        self.crc = (!self.is_empty()).then_some(crc);
        self
    }

    /// Its checksum with the usual seed, if it was computed.
    #[must_use]
    pub fn known_crc(&self) -> Option<u32> {
        self.crc
    }

    /// Whether its checksum, if it is known, is that of its bytes: for assertions.
    #[must_use]
    pub fn is_as_known(&self) -> bool {
        self.crc.is_none_or(|crc| crc == self.computed_crc(carmine_types::crc32c::SEED))
    }

    /// `len` bytes that repeat `piece` and share its memory.
    #[must_use]
    pub fn repeat(piece: &Bytes, len: usize) -> Payload {
        let mut out = Payload::new();
        while out.len < len && !piece.is_empty() {
            out.push(piece.slice(..piece.len().min(len - out.len)));
        }
        out
    }

    /// Appends another payload's ranges.
    pub fn append(&mut self, other: &Payload) {
        if self.is_empty() {
            self.clone_from(other);
        } else if !other.is_empty() {
            self.chunks.extend(other.chunks.iter().cloned());
            self.len += other.len;
            self.crc = None;
        }
    }

    /// The ranges, in order, none empty.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The ranges, in order, none empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Bytes> {
        self.chunks.iter()
    }

    /// The bytes `off..off + len`, sharing the memory; cut at the end of the payload.
    #[must_use]
    pub fn slice(&self, off: usize, len: usize) -> Payload {
        if off == 0 && len >= self.len {
            return self.clone();
        }
        let mut out = Payload::new();
        let mut skip = off;
        let mut left = len;
        for c in &self.chunks {
            if left == 0 {
                break;
            }
            if skip >= c.len() {
                skip -= c.len();
                continue;
            }
            let n = left.min(c.len() - skip);
            out.push(c.slice(skip..skip + n));
            skip = 0;
            left -= n;
        }
        out
    }

    /// A copy in one vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(self.len);
        for c in &self.chunks {
            v.extend_from_slice(c);
        }
        v
    }

    /// Copies the payload into `out`, as much as fits; the number of bytes copied.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        for c in &self.chunks {
            let n = c.len().min(out.len() - at);
            out[at..at + n].copy_from_slice(&c[..n]);
            at += n;
        }
        at
    }

    /// CRC-32C in Ceph's convention (`seed` is the running value; no inversion at either end).
    #[must_use]
    pub fn crc32c(&self, seed: u32) -> u32 {
        if let Some(crc) = self.crc
            && seed == carmine_types::crc32c::SEED
        {
            return crc;
        }
        self.computed_crc(seed)
    }

    fn computed_crc(&self, seed: u32) -> u32 {
        self.chunks.iter().fold(seed, |crc, c| c.crc32c(crc))
    }
}

impl Clone for Payload {
    #[inline]
    fn clone(&self) -> Payload {
        let chunks = match self.chunks.as_slice() {
            // Nearly always; the list would be walked otherwise.
            [one] => SmallVec::from_buf([one.clone()]),
            chunks => SmallVec::from(chunks),
        };
        Payload { chunks, ..*self }
    }
}

impl From<Bytes> for Payload {
    #[inline]
    fn from(b: Bytes) -> Self {
        match b.len() {
            0 => Payload::new(),
            len => Payload { chunks: SmallVec::from_buf([b]), len, crc: None },
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(v: Vec<u8>) -> Self {
        Payload::from(Bytes::from(v))
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self.len == other.len && self.iter().flat_map(|c| c.iter()).eq(other.iter().flat_map(|c| c.iter()))
    }
}

impl Eq for Payload {}

impl IntoIterator for Payload {
    type Item = Bytes;
    type IntoIter = smallvec::IntoIter<[Bytes; 1]>;
    fn into_iter(self) -> Self::IntoIter {
        self.chunks.into_iter()
    }
}

impl<'a> IntoIterator for &'a Payload {
    type Item = &'a Bytes;
    type IntoIter = std::slice::Iter<'a, Bytes>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes in {})", self.len, self.chunks.len())
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::crc32c::{self, SEED};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A checksum that was given is kept only as long as the bytes are the same.
        #[test]
        fn a_known_checksum_is_that_of_the_bytes(
            parts in prop::collection::vec(any::<Vec<u8>>(), 0..4), off in 0..40usize, len in 0..80usize,
        ) {
            let (mut all, mut bytes) = (Payload::new(), Vec::new());
            for part in parts {
                let crc = crc32c::raw(SEED, &part);
                bytes.extend_from_slice(&part);
                let part = Payload::from(part).with_crc(crc);
                prop_assert!(part.is_as_known() && (part.is_empty() || !part.clone().with_crc(!crc).is_as_known()));
                all.append(&part);
                prop_assert_eq!(all.crc32c(SEED), crc32c::raw(SEED, &bytes));
                prop_assert_eq!(all.crc32c(7), crc32c::raw(7, &bytes));
            }
            let slice = all.with_crc(crc32c::raw(SEED, &bytes)).slice(off, len);
            let (from, to) = (off.min(bytes.len()), (off + len).min(bytes.len()));
            prop_assert_eq!(slice.crc32c(SEED), crc32c::raw(SEED, &bytes[from..to]));
        }
    }
}
