//! Maps as text, in `osdmaptool`'s columns.

mod number;
mod osds;
mod pgs;
mod pools;

pub use number::time;
pub use osds::{min_compat_client, osd, print_map};
pub use pgs::{PgColumns, pgs_dump};
pub use pools::{pool_option, print_pools};
