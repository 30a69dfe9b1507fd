//! Maps on their way to clients: the monitors', the OSDs' (both still encoded), the manager's, the file systems'.

use carmine_codec::Fields;
use carmine_types::{Epoch, Uuid};

use crate::header::{messages, priority};
use crate::{Decoder, Encoder, EntityAddrVec, Front, Result, kinds};

messages! {
    /// MMonGetMap: "send the MonMap".
    pub struct GetMap: MON_GET_MAP, 1, compat 1 {}

    /// MMonMap.
    pub struct MonMapMsg: MON_MAP, 1, compat 1, priority MON_REPLY {
        /// An encoded MonMap.
        pub monmap: Vec<u8>,
    }

    /// MOSDMap v4: from a monitor, or from an OSD to a client with an old map.
    pub struct OsdMapMsg: OSD_MAP, 4, compat 3, oldest 3, priority MON_REPLY {
        pub fsid: Uuid,
        /// Encoded incrementals, ascending: each makes its epoch out of the one before.
        pub incrementals: Vec<(Epoch, Vec<u8>)>,
        /// Encoded full maps, ascending.
        pub full: Vec<(Epoch, Vec<u8>)>,
        /// Oldest epoch that the sender keeps.
        pub oldest: Epoch,
        pub newest: Epoch,
        /// Snaps removed in the gap, by pool: (start, length) pairs. Empty from us.
        pub gap_removed_snaps: Vec<(i64, Vec<(u64, u64)>)>; since 4,
    }
}

impl OsdMapMsg {
    /// One full map: any client understands it, whatever its epoch.
    pub fn full(fsid: Uuid, epoch: Epoch, map: Vec<u8>) -> OsdMapMsg {
        OsdMapMsg {
            fsid,
            incrementals: Vec::new(),
            full: vec![(epoch, map)],
            oldest: epoch,
            newest: epoch,
            gap_removed_snaps: Vec::new(),
        }
    }
}

carmine_codec::fields! {
    /// MMgrMap with an active manager: clients that have a command for it connect there, and wait as long as there is
    /// none. Of Ceph's MgrMap it has the fields that clients look at. The rest (standbys, modules, services) is written
    /// empty, and the fields after version 6 are left out: without the features in them a client sends commands as
    /// MCommand.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MgrMapMsg {
        pub epoch: Epoch,
        pub addrs: EntityAddrVec,
        pub gid: u64,
        /// False: it has not started, or there is none.
        pub available: bool,
        pub name: String,
    }
}

/// Version of the MgrMap, which is the oldest reader's as well.
const MGR_MAP_VERSION: u8 = 6;

impl Front for MgrMapMsg {
    const KIND: u16 = kinds::MGR_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(MGR_MAP_VERSION, MGR_MAP_VERSION, |e| {
            self.put_fields(e, MGR_MAP_VERSION.into());
            for _ in ["standbys", "modules", "services", "available modules"] {
                e.count(0);
            }
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MgrMapMsg> {
        let mut map = d.envelope("mgr map", MGR_MAP_VERSION)?;
        MgrMapMsg::get_fields(&mut map.body, map.version.into())
    }
}

/// MFSMap: a client that has a command for a metadata server waits for it. It is one without file systems and without metadata servers, as Ceph's monitor sends it before anybody makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMapMsg {
    pub epoch: Epoch,
}

const FS_MAP_VERSION: u8 = 7;
const FS_MAP_COMPAT: u8 = 6;

impl Front for FsMapMsg {
    const KIND: u16 = kinds::FS_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.epoch(self.epoch);
        e.envelope(FS_MAP_VERSION, FS_MAP_COMPAT, |e| {
            e.epoch(self.epoch);
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
        let epoch = d.epoch()?;
        d.envelope("fs map", FS_MAP_VERSION)?;
        Ok(FsMapMsg { epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityAddr;

    #[test]
    fn a_mgr_map_both_ways() {
        let map = MgrMapMsg {
            epoch: Epoch(7),
            addrs: EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 3).into(),
            gid: 5,
            available: true,
            name: "a".into(),
        };
        let front = map.to_front();
        assert_eq!(front.len(), 6 + 4 + (5 + 35) + 8 + 1 + 5 + 4 * 4);
        assert_eq!(MgrMapMsg::from_front(&MgrMapMsg::header(), &front), Ok(map));
    }

    #[test]
    fn an_fs_map_both_ways() {
        let map = FsMapMsg { epoch: Epoch(1) };
        let front = map.to_front();
        // What ceph-mon 16.2.15 sent, without the names of the features that its servers need.
        assert_eq!(front.len(), 4 + 6 + (4 + 8 + 4) + 3 * 12 + 1 + 4 * 4 + 1);
        assert_eq!(FsMapMsg::from_front(&FsMapMsg::header(), &front), Ok(map));
    }
}
