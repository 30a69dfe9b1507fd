//! A peer's identity: entity types and names.

use std::fmt;

use carmine_codec::{Coded, Decoder, Encoder, Result, coded};

/// Kind of a peer, as told in HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityType(pub u8);

impl EntityType {
    pub const MON: EntityType = EntityType(1);
    pub const MDS: EntityType = EntityType(2);
    pub const OSD: EntityType = EntityType(4);
    pub const CLIENT: EntityType = EntityType(8);
    pub const MGR: EntityType = EntityType(16);
    pub const AUTH: EntityType = EntityType(32);
    pub const ANY: EntityType = EntityType(255);
}

impl fmt::Display for EntityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            EntityType::MON => "mon",
            EntityType::MDS => "mds",
            EntityType::OSD => "osd",
            EntityType::CLIENT => "client",
            EntityType::MGR => "mgr",
            EntityType::AUTH => "auth",
            EntityType::ANY => "any",
            EntityType(other) => return write!(f, "type{other}"),
        })
    }
}

coded! {
    /// entity_name_t: kind and number, printed `osd.3`. 9 bytes inside messages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EntityName {
        pub kind: EntityType,
        pub num: i64,
    }
}

impl EntityName {
    pub const fn osd(id: u32) -> EntityName {
        EntityName { kind: EntityType::OSD, num: id as i64 }
    }

    pub const fn client(gid: u64) -> EntityName {
        EntityName { kind: EntityType::CLIENT, num: gid as i64 }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.num)
    }
}

impl Coded for EntityType {
    const BYTES_MIN: usize = 1;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(self.0);
    }

    fn get(d: &mut Decoder<'_>) -> Result<EntityType> {
        d.u8().map(EntityType)
    }
}
