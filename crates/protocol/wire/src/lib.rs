//! Ceph's encodings as bytes to values and back: the msgr v2.1 frames and handshake, the monitor, manager and
//! OSD messages, and Carmine's private messages in the same frames.
//!
//! Invariants: no I/O, no async, no logging. Nothing here panics, whatever the bytes. Every length from the
//! wire is compared with the bytes that are there before anything is allocated for it.
#![forbid(unsafe_code)]

pub mod addr;
pub mod backoff;
pub mod crushmap;
pub mod entity;
pub mod frame;
pub mod handshake;
pub mod header;
pub mod kinds;
pub mod mgr_msg;
pub mod mon_msg;
pub mod monmap;
pub mod osd_msg;
pub mod osd_op;
pub mod osdmap;
pub mod pg_stat;
pub mod pgls;
pub mod private;
pub mod scrub;
pub mod tell;

pub use addr::{EntityAddr, EntityAddrVec};
pub use carmine_codec::{DecodeError, Decoder, Encoder, Envelope, Result};
pub use entity::{EntityName, EntityType};
pub use handshake::FEATURES;
pub use header::{Front, Header2};

#[cfg(test)]
mod testing;
