//! The primitives that all encodings are made of: little-endian integers, length-prefixed byte strings,
//! counted collections, and the versioned envelope S(v,c).

pub mod basic;
mod decoder;
mod encoder;
mod error;

pub use decoder::{Decoder, Envelope};
pub use encoder::Encoder;
pub use error::{Result, WireError};

/// Declared limit: decoding never holds more than this many bytes of memory for each byte of input, nor
/// [`MEMORY_BYTES_FIXED`] on top. (The worst are lists of structures that are nearly all empty strings, while
/// their vector grows.) With the limits of [`crate::frame`] this bounds what any peer can make us allocate.
pub const MEMORY_PER_INPUT_BYTE_MAX: usize = 20;
/// See [`MEMORY_PER_INPUT_BYTE_MAX`].
pub const MEMORY_BYTES_FIXED: usize = 1024;

/// Largest number of items for which a collection's memory is reserved before they are decoded; beyond it
/// the collection grows as items really arrive, so a count alone never costs memory.
const RESERVE_ITEMS_MAX: usize = 128;

#[cfg(test)]
mod tests;
