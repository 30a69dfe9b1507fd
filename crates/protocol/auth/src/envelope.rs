//! What is encrypted with a key, with a mark by which a reader sees that the key was right.

use carmine_codec::{Coded as _, Decoder, Encoder};

use crate::key::{Key, Secret};
use crate::{AuthError, Result};

const VERSION: u8 = 1;
const MAGIC: u64 = 0xff00_9cad_8826_aa55;

/// `enc`: encrypts what `encode` writes.
pub(crate) fn seal(key: &Key, encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let plain = Secret(Encoder::collect(|e| {
        e.u8(VERSION);
        e.u64(MAGIC);
        encode(e);
    }));
    key.encrypt(&plain.0)
}

/// `lenc`: the same, after its length.
pub(crate) fn put_sealed(e: &mut Encoder<'_>, key: &Key, encode: impl FnOnce(&mut Encoder<'_>)) {
    e.blob(&seal(key, encode));
}

/// Decrypts, and reads with `decode`, which must use all bytes.
///
/// # Errors
/// Another key, or bytes that are no `what`.
pub(crate) fn open<T>(
    key: &Key,
    bytes: &[u8],
    what: &'static str,
    decode: impl FnOnce(&mut Decoder<'_>) -> carmine_codec::Result<T>,
) -> Result<T> {
    let plain = key.decrypt(bytes).ok_or(AuthError::WrongKey { what })?;
    let mut d = Decoder::new(&plain.0, what);
    if d.u8().is_err() || d.u64() != Ok(MAGIC) {
        return Err(AuthError::WrongKey { what });
    }
    let value = decode(&mut d)?;
    d.finish()?;
    Ok(value)
}

/// Reads a structure whose first byte is its version, which must be from 1 up to `known`; returns that, too.
pub(crate) fn versioned(d: &mut Decoder<'_>, what: &'static str, known: u8) -> carmine_codec::Result<u8> {
    match u8::get(d)? {
        version @ 1.. if version <= known => Ok(version),
        version => Err(carmine_codec::DecodeError::BadValue { what, value: version.into() }),
    }
}
