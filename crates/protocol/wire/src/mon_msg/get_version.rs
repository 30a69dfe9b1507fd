//! "Which version of this map is the newest?"

use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MMonGetVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetVersion {
    /// Chosen by the client; the reply echoes it (header tids are 0).
    pub handle: u64,
    /// "osdmap".
    pub what: String,
}

impl Front for GetVersion {
    const KIND: u16 = kinds::MON_GET_VERSION;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u64(self.handle);
        e.str(&self.what);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<GetVersion> {
        Ok(GetVersion { handle: d.u64()?, what: d.string()? })
    }
}

/// MMonGetVersionReply. The client then waits for that version: never name one that is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetVersionReply {
    pub handle: u64,
    pub newest: u64,
    pub oldest: u64,
}

impl Front for GetVersionReply {
    const KIND: u16 = kinds::MON_GET_VERSION_REPLY;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u64(self.handle);
        e.u64(self.newest);
        e.u64(self.oldest);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<GetVersionReply> {
        Ok(GetVersionReply { handle: d.u64()?, newest: d.u64()?, oldest: d.u64()? })
    }
}
