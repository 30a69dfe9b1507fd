//! The file systems of a cluster, of which there are none: a client that has a command for a metadata server waits for this.

use carmine_types::Epoch;

use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MFSMap without file systems and without metadata servers, as Ceph's monitor sends it before anybody makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMapMsg {
    pub epoch: Epoch,
}

const VERSION: u8 = 7;
const COMPAT: u8 = 6;

impl Front for FsMapMsg {
    const KIND: u16 = kinds::FS_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u32(self.epoch.0);
        e.envelope(VERSION, COMPAT, |e| {
            e.u32(self.epoch.0);
            e.u64(1); // the id of the first file system
            e.i32(-1); // the file system of clients that name none
            for _ in ["compatible", "compatible for readers", "incompatible"] {
                e.u64(0); // mask of features, and their names
                e.count(0);
            }
            e.bool(true); // several file systems may be made
            for _ in ["file systems", "roles", "standby servers", "their epochs"] {
                e.count(0);
            }
            e.bool(true);
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<FsMapMsg> {
        let epoch = Epoch(d.u32()?);
        d.envelope("fs map", VERSION)?;
        Ok(FsMapMsg { epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let map = FsMapMsg { epoch: Epoch(1) };
        let front = map.to_front();
        // What ceph-mon 16.2.15 sent, without the names of the features that its servers need.
        assert_eq!(front.len(), 4 + 6 + (4 + 8 + 4) + 3 * 12 + 1 + 4 * 4 + 1);
        assert_eq!(FsMapMsg::from_front(&FsMapMsg::header(), &front), Ok(map));
    }
}
