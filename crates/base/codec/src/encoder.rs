//! Writing: append to a caller's vector.

/// Appends encodings to a vector that the caller owns (and may reuse).
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
}

macro_rules! integers {
    ($($name:ident: $type:ty,)*) => {$(
        #[doc = concat!("A little-endian `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self, value: $type) {
            self.out.extend_from_slice(&value.to_le_bytes());
        }
    )*};
}

impl<'a> Encoder<'a> {
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> Encoder<'a> {
        Encoder { out }
    }

    /// The bytes that `encode` writes, as a new vector.
    pub fn collect(encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&mut out));
        out
    }

    /// Bytes in the vector, with those that were there before this encoder.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    integers! {
        u8: u8, u16: u16, u32: u32, u64: u64,
        i8: i8, i16: i16, i32: i32, i64: i64,
        f32: f32, f64: f64,
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// Raw bytes, without a length.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// `len` zero bytes.
    #[inline]
    pub fn zeros(&mut self, len: usize) {
        self.out.resize(self.out.len() + len, 0);
    }

    /// A u32 number of items or bytes. Collections of more than 2^32-1 items cannot exist here: messages
    /// are limited far below.
    #[inline]
    pub fn count(&mut self, count: usize) {
        debug_assert!(u32::try_from(count).is_ok());
        self.u32(count as u32);
    }

    /// u32 length and the bytes.
    #[inline]
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes(bytes);
    }

    #[inline]
    pub fn str(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    /// u32 count and each item.
    pub fn vec<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        mut item: impl FnMut(&mut Self, T),
    ) {
        let items = items.into_iter();
        self.count(items.len());
        items.for_each(|value| item(self, value));
    }

    /// u32 byte length in front of whatever `body` writes.
    pub fn with_len(&mut self, body: impl FnOnce(&mut Self)) {
        let at = self.out.len();
        self.u32(0);
        body(self);
        let len = (self.out.len() - at - 4) as u32;
        self.patch_u32(at, len);
    }

    /// The envelope S(version, compat) around whatever `body` writes.
    #[inline]
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Self)) {
        self.u8(version);
        self.u8(compat);
        self.with_len(body);
    }

    /// Overwrites four bytes written before, at `position` of the vector.
    #[inline]
    pub fn patch_u32(&mut self, position: usize, value: u32) {
        let place = self.out.get_mut(position..).and_then(|rest| rest.first_chunk_mut());
        debug_assert!(place.is_some(), "patch of {position} past the end");
        if let Some(place) = place {
            *place = value.to_le_bytes();
        }
    }
}
