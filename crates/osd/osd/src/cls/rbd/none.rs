//! What tools ask of every image and every pool, and what is not here: mirroring, groups, migration. The answer is that of a
//! pool where nobody has ever used it.

use carmine_types::errno;

use super::super::{Method, read, write};
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    read("mirror_uuid_get", |_, _| Err(OpError::of(errno::ENOENT))),
    read("mirror_mode_get", |_, _| Err(OpError::of(errno::ENOENT))),
    read("mirror_image_get", |_, _| Err(OpError::of(errno::ENOENT))),
    read("mirror_image_get_image_id", |_, _| Err(OpError::of(errno::ENOENT))),
    write("mirror_image_remove", |_, _| Err(OpError::of(errno::ENOENT))),
    read("migration_get", |_, _| Err(OpError::of(errno::ENOENT))),
    read("group_dir_list", |_, _| Err(OpError::of(errno::ENOENT))),
];
