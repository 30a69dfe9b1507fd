//! cephx, version 2: who somebody is, proved by keys that a monitor knows. Pure code: no I/O and no clock; random numbers come from the
//! kernel.
//!
//! * [`client`] proves an entity's identity to a monitor, holds its tickets and renews them, and presents them to daemons;
//! * [`service`] is a daemon that lets in who has a ticket;
//! * [`issuer`] is the monitor, which knows the keys of all entities and gives out tickets.
//!
//! Facts of the protocol: Ceph's `doc/dev/cephx_protocol.rst`, and captures of Ceph 16.2.15, which the tests reproduce.
//!
//! # Invariants
//! * Keys are wiped when dropped, and no text that this crate makes has one, but for [`Key::to_base64`] and [`Keyring::text`].
//! * Nothing that a peer sends panics, or takes more memory than it has bytes.
#![forbid(unsafe_code)]

pub mod client;
mod envelope;
mod error;
pub mod issuer;
mod key;
mod keyring;
mod payload;
pub mod service;

pub use error::AuthError;
pub use key::{Key, KeyType, SESSION_SECRET_BYTES, Secret, random_u64};
pub use keyring::{Entity, Entry, Keyring};
pub use payload::{RotatingKeys, service_bit};

#[cfg(test)]
mod tests;

/// Result of a step.
pub type Result<T> = std::result::Result<T, AuthError>;
