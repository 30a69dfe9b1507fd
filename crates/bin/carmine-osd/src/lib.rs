//! Common ground of `carmine-osd` and the tools that look at an OSD's store: where a testbed's plan puts a store, how it
//! is opened, and how an OSD's memory is divided.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "stores are found and opened outside the reactors"
)]

mod memory;
pub mod store;

pub use memory::Memory;
