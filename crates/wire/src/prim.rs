//! The primitives that all encodings are made of: little-endian integers, length-prefixed byte strings,
//! counted collections, and the versioned envelope S(v,c).

pub mod basic;
mod decoder;
mod encoder;
mod error;

pub use decoder::{Decoder, Envelope};
pub use encoder::Encoder;
pub use error::{Result, WireError};

/// Largest number of items for which a collection's memory is reserved before they are decoded; beyond it
/// the collection grows as items really arrive, so a count alone never costs memory.
const RESERVE_ITEMS_MAX: usize = 128;

#[cfg(test)]
mod tests;
