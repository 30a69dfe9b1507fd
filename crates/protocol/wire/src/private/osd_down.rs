//! An OSD is, or is about to be, no longer there.

use carmine_types::{Epoch, OsdId};

use crate::{DecodeError, Decoder, Encoder, Front, Result, kinds};

/// Why an OSD is to be marked down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DownReason {
    /// It says so itself, before it stops.
    Goodbye = 1,
    /// The sender cannot reach it.
    Unreachable = 2,
}

/// OSD → monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsdDown {
    /// Who is down; the sender itself if it says goodbye.
    pub osd: OsdId,
    /// Nonce of the address that is meant: a report about an earlier start is ignored.
    pub nonce: u32,
    pub reason: DownReason,
    /// The sender's map.
    pub epoch: Epoch,
}

impl Front for OsdDown {
    const KIND: u16 = kinds::OSD_DOWN;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.osd.0);
        e.u32(self.nonce);
        e.u8(self.reason as u8);
        e.u32(self.epoch.0);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<OsdDown> {
        let (osd, nonce) = (OsdId(d.u32()?), d.u32()?);
        let reason = match d.u8()? {
            1 => DownReason::Goodbye,
            2 => DownReason::Unreachable,
            reason => return Err(DecodeError::BadValue { what: "down reason", value: reason.into() }),
        };
        Ok(OsdDown { osd, nonce, reason, epoch: Epoch(d.u32()?) })
    }
}
