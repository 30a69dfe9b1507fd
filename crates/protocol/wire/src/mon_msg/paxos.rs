//! The 18 bytes that many monitor messages begin with.

use crate::{Decoder, Encoder, Result};

impl Decoder<'_> {
    /// Returns the map version that the sender knows; session monitor and its tid are not used.
    pub(super) fn paxos(&mut self) -> Result<u64> {
        let version = self.u64()?;
        self.i16()?;
        self.u64()?;
        Ok(version)
    }
}

impl Encoder<'_> {
    pub(super) fn paxos(&mut self, version: u64) {
        self.u64(version);
        self.i16(-1);
        self.u64(0);
    }
}
