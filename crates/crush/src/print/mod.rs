//! Maps as text, in `osdmaptool`'s columns.

mod number;
mod osds;
mod pgs;
mod pools;

pub use osds::print_map;
pub use pgs::{PgColumns, pgs_dump};
