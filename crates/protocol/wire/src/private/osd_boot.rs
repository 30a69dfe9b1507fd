//! An OSD reports to the monitor that it is up.

use carmine_types::{Epoch, OsdId, Uuid};

use crate::{Decoder, Encoder, EntityAddr, Front, Result, kinds};

/// OSD → monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdBoot {
    pub osd: OsdId,
    /// Identity of its store; must be the one that the map has for this id.
    pub uuid: Uuid,
    /// Where clients and other OSDs find it. The nonce is new at every start.
    pub addr: EntityAddr,
    /// Number of its reactors.
    pub reactors: u16,
    /// Newest map that it has; 0 for none.
    pub epoch: Epoch,
    /// What it says of itself and its machine, by Ceph's names (`hostname`, `osd_objectstore`, …).
    pub metadata: Vec<(String, String)>,
}

impl Front for OsdBoot {
    const KIND: u16 = kinds::OSD_BOOT;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.osd.0);
        e.uuid(self.uuid);
        e.put(&self.addr);
        e.u16(self.reactors);
        e.u32(self.epoch.0);
        e.vec(&self.metadata, |e, (key, value)| {
            e.str(key);
            e.str(value);
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<OsdBoot> {
        Ok(OsdBoot {
            osd: OsdId(d.u32()?),
            uuid: d.uuid()?,
            addr: d.get()?,
            reactors: d.u16()?,
            epoch: Epoch(d.u32()?),
            metadata: d.map(8, |d| d.string(), |d| d.string())?,
        })
    }
}

/// Monitor → OSD, with the tid of the [`OsdBoot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdBootAck {
    /// 0, or a negative errno: the OSD must then stop.
    pub result: i32,
    /// First map in which it is up with this address.
    pub epoch: Epoch,
    /// Why it was refused, for the OSD's log; empty if it was not.
    pub reason: String,
}

impl Front for OsdBootAck {
    const KIND: u16 = kinds::OSD_BOOT_ACK;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.i32(self.result);
        e.u32(self.epoch.0);
        e.str(&self.reason);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<OsdBootAck> {
        Ok(OsdBootAck { result: d.i32()?, epoch: Epoch(d.u32()?), reason: d.string()? })
    }
}
