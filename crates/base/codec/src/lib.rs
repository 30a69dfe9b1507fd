//! The primitives that all encodings are made of, on the wire and in the store: little-endian integers,
//! length-prefixed byte strings, counted collections, the versioned envelope S(v,c), and the few small
//! structures that occur everywhere ([`basic`]).
//!
//! Nothing here panics, whatever the bytes. Every length that is read is compared with the bytes that are
//! there before anything is allocated for it.
#![forbid(unsafe_code)]

pub mod basic;
mod coded;
mod decoder;
mod encoder;
mod error;

pub use coded::{Coded, Fields};
pub use decoder::{Decoder, Envelope};
pub use encoder::Encoder;
pub use error::{DecodeError, Result};

/// Declared limit: decoding never holds more than this many bytes of memory for each byte of input, nor
/// [`MEMORY_BYTES_FIXED`] on top. (The worst case is a list of structures that consist of little but empty
/// strings, while its vector grows.) With the limits of frames this bounds what any peer can make us allocate.
pub const MEMORY_PER_INPUT_BYTE_MAX: usize = 20;
/// See [`MEMORY_PER_INPUT_BYTE_MAX`].
pub const MEMORY_BYTES_FIXED: usize = 1024;

/// Largest number of items for which a collection's memory is reserved before they are decoded; beyond it
/// the collection grows as items really arrive, so a count alone never costs memory.
const RESERVE_ITEMS_MAX: usize = 128;

#[cfg(test)]
mod tests;
