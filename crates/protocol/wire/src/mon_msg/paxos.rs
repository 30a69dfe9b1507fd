//! The 18 bytes that many monitor messages begin with: of these, a map version that the sender knows is all that is
//! used. The session's monitor and its transaction id are not.

use carmine_codec::{Decoder, Encoder, Result};

pub(super) fn put(version: &u64, e: &mut Encoder<'_>) {
    e.u64(*version);
    e.i16(-1);
    e.u64(0);
}

pub(super) fn get(d: &mut Decoder<'_>) -> Result<u64> {
    let version = d.u64()?;
    d.i16()?;
    d.u64()?;
    Ok(version)
}
