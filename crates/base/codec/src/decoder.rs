//! Reading: a cursor over borrowed bytes.

use super::{DecodeError, RESERVE_ITEMS_MAX, Result};

/// Cursor over bytes received. Every getter checks the bytes left, consumes what it returns, and leaves the
/// cursor where it was if it fails.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    /// Name of the structure being read, for errors.
    what: &'static str,
}

/// The head and body of a versioned structure S(v,c).
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Version that was written: says which fields are there.
    pub version: u8,
    /// Oldest reader version that the writer allows.
    pub compat: u8,
    /// The fields. Newer fields than ours may follow at the end; dropping the decoder skips them.
    pub body: Decoder<'a>,
}

macro_rules! integers {
    ($($name:ident: $type:ty,)*) => {$(
        #[doc = concat!("A little-endian `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            Ok(<$type>::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'a> Decoder<'a> {
    /// Reads `bytes`; `what` names them in errors.
    #[inline]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Decoder<'a> {
        Decoder { rest: bytes, what }
    }

    /// Decodes all of `bytes`; bytes left over are an error.
    pub fn all<T>(
        bytes: &'a [u8],
        what: &'static str,
        decode: impl FnOnce(&mut Decoder<'a>) -> Result<T>,
    ) -> Result<T> {
        let mut d = Decoder::new(bytes, what);
        let value = decode(&mut d)?;
        d.finish()?;
        Ok(value)
    }

    /// Number of bytes not yet read.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes not yet read, without consuming them.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The name used in errors.
    #[inline]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// Fails if bytes are left.
    #[inline]
    pub fn finish(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing { what: self.what, left }),
        }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(self.truncated(len as u64)),
        }
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(self.truncated(N as u64)),
        }
    }

    integers! {
        u8: u8, u16: u16, u32: u32, u64: u64,
        i8: i8, i16: i16, i32: i32, i64: i64,
        f32: f32, f64: f64,
    }

    /// A byte that is 0 for false and anything else for true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }

    /// u32 length and that many bytes.
    #[inline]
    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let start = *self;
        let len = self.u32()?;
        self.bytes(len as usize).inspect_err(|_| *self = start)
    }

    /// A [`blob`](Self::blob) that must be UTF-8. Names chosen by users (objects) are blobs, not this.
    pub fn str(&mut self) -> Result<&'a str> {
        let start = *self;
        let bytes = self.blob()?;
        std::str::from_utf8(bytes).map_err(|e| {
            let bad = bytes.get(e.valid_up_to()).copied().unwrap_or(0);
            *self = start;
            DecodeError::BadValue { what: self.what, value: bad.into() }
        })
    }

    /// A [`str`](Self::str), owned.
    pub fn string(&mut self) -> Result<String> {
        self.str().map(str::to_owned)
    }

    /// A u32 number of items, of which each takes at least `item_bytes_min` (≥ 1) bytes: a number that
    /// cannot fit in the bytes left is refused here, before anything is allocated for it.
    #[inline]
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize> {
        let start = *self;
        let count = self.u32()?;
        let need = u64::from(count) * item_bytes_min.max(1) as u64;
        if need > self.rest.len() as u64 {
            let error = self.truncated(need);
            *self = start;
            return Err(error);
        }
        Ok(count as usize)
    }

    /// `count` items without a count in front. Memory is reserved for few items only; see [`Self::count`].
    pub fn items<T>(&mut self, count: usize, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::with_capacity(count.min(RESERVE_ITEMS_MAX));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// u32 count and items (vector, set, list), each at least `item_bytes_min` bytes long.
    pub fn vec<T>(
        &mut self,
        item_bytes_min: usize,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.count(item_bytes_min)?;
        self.items(count, item)
    }

    /// u32 count and (key, value) pairs, each pair at least `pair_bytes_min` bytes long. The order of the
    /// bytes is kept; Ceph writes maps ascending by key.
    pub fn map<K, V>(
        &mut self,
        pair_bytes_min: usize,
        mut key: impl FnMut(&mut Self) -> Result<K>,
        mut value: impl FnMut(&mut Self) -> Result<V>,
    ) -> Result<Vec<(K, V)>> {
        self.vec(pair_bytes_min, |d| Ok((key(d)?, value(d)?)))
    }

    /// The envelope S(v,c) and its body. Fails if the writer wants a reader newer than `known`.
    /// The cursor moves behind the whole structure, so newer fields are skipped.
    #[inline]
    pub fn envelope(&mut self, what: &'static str, known: u8) -> Result<Envelope<'a>> {
        let start = *self;
        let read = |d: &mut Self| {
            let (version, compat) = (d.u8()?, d.u8()?);
            let body = d.blob()?;
            if compat > known {
                return Err(DecodeError::TooNew { what, compat: compat.into(), known: known.into() });
            }
            Ok(Envelope { version, compat, body: Decoder::new(body, what) })
        };
        read(self).inspect_err(|_| *self = start)
    }

    #[cold]
    fn truncated(&self, need: u64) -> DecodeError {
        DecodeError::Truncated { what: self.what, need, left: self.rest.len() }
    }
}

impl Envelope<'_> {
    /// Fails if the structure was written with a version below `oldest`.
    pub fn at_least(&self, oldest: u8) -> Result<()> {
        if self.version >= oldest {
            return Ok(());
        }
        Err(DecodeError::TooOld { what: self.body.what, version: self.version.into(), oldest: oldest.into() })
    }
}
