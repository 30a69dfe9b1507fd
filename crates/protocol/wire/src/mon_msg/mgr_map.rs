//! Where the manager is: clients that have a command for it connect there, and wait as long as there is none.

use carmine_types::Epoch;

use crate::header::priority;
use crate::{Decoder, Encoder, EntityAddrVec, Front, Result, kinds};

/// MMgrMap with an active manager. Of Ceph's MgrMap it has what clients look at; the rest (standbys, modules, services) is
/// empty, and what came after version 6 is left out: without its features a client sends commands as MCommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrMapMsg {
    pub epoch: Epoch,
    pub addrs: EntityAddrVec,
    pub gid: u64,
    /// False: it has not started, or there is none.
    pub available: bool,
    pub name: String,
}

/// Version written, which is the oldest reader's as well.
const VERSION: u8 = 6;

impl Front for MgrMapMsg {
    const KIND: u16 = kinds::MGR_MAP;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.envelope(VERSION, VERSION, |e| {
            e.u32(self.epoch.0);
            e.put(&self.addrs);
            e.u64(self.gid);
            e.bool(self.available);
            e.str(&self.name);
            for _ in ["standbys", "modules", "services", "available modules"] {
                e.count(0);
            }
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<MgrMapMsg> {
        let mut d = d.envelope("mgr map", VERSION)?.body;
        Ok(MgrMapMsg {
            epoch: Epoch(d.u32()?),
            addrs: d.get()?,
            gid: d.u64()?,
            available: d.bool()?,
            name: d.string()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityAddr;

    #[test]
    fn both_ways() {
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
}
