//! The peer, which is part of the testbed's crate.
pub use carmine_testbed::fresh_uuid;
pub use carmine_testbed::peer::*;
pub use carmine_testbed::process::spawn_on;
