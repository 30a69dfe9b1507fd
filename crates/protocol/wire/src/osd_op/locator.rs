//! Where an object is said to live.

use crate::{Decoder, Encoder, Result};

/// object_locator_t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locator {
    pub pool: i64,
    /// Hashed in place of the name, if not empty.
    pub key: Box<[u8]>,
    pub nspace: Box<[u8]>,
    /// -1, or the placement seed of a PG operation.
    pub hash: i64,
}

impl Locator {
    /// The usual locator: by name, without a key.
    pub fn new(pool: i64, nspace: &[u8]) -> Locator {
        Locator { pool, key: [].into(), nspace: nspace.into(), hash: -1 }
    }

    #[inline]
    pub fn decode(d: &mut Decoder<'_>) -> Result<Locator> {
        let mut body = d.envelope("object_locator", 6)?;
        body.at_least(6)?;
        let d = &mut body.body;
        let pool = d.i64()?;
        d.i32()?; // was "preferred"
        let (key, nspace) = (d.blob()?, d.blob()?);
        Ok(Locator { pool, key: key.into(), nspace: nspace.into(), hash: d.i64()? })
    }

    #[inline]
    pub(super) fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(6, 3, |e| {
            e.i64(self.pool);
            e.i32(-1);
            e.blob(&self.key);
            e.blob(&self.nspace);
            e.i64(self.hash);
        });
    }
}
