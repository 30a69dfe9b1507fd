//! Where the changes of a PG go: into this OSD's store and to the other members; and where a member's changes come from.

pub(crate) mod backend;
pub(crate) mod commit;
pub(crate) mod heal;
pub(crate) mod replica;
pub(crate) mod window;
