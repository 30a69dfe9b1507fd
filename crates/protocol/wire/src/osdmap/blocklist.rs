//! Clients that are kept out, by address.

use std::collections::BTreeMap;

use super::{Incremental, OsdMap};
use crate::Encoder;
use crate::addr::{EntityAddr, kind};

impl OsdMap {
    /// A client with this address is kept out: it is listed itself (protocol aside), or all of its host is (port and nonce 0).
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.blocklist.is_empty() {
            return false;
        }
        let itself = EntityAddr { kind: kind::ANY, ..*addr };
        let host = addr.sock.map(|sock| EntityAddr::client(sock.ip(), 0));
        self.blocklist.iter().any(|(listed, _)| *listed == itself || Some(*listed) == host)
    }

    pub(super) fn apply_blocklist(&mut self, inc: &Incremental) {
        if inc.new_blocklist.is_empty() && inc.old_blocklist.is_empty() {
            return;
        }
        let bytes = |addr: &EntityAddr| Encoder::collect(|e| addr.put_fields(e));
        let mut sorted = BTreeMap::new();
        for (addr, until) in self.blocklist.iter().chain(&inc.new_blocklist) {
            // An entry that is there already keeps its end, as in Ceph.
            sorted.entry(bytes(addr)).or_insert((*addr, *until));
        }
        for addr in &inc.old_blocklist {
            sorted.remove(&bytes(addr));
        }
        self.blocklist = sorted.into_values().collect();
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::UTime;

    use super::*;

    #[test]
    fn a_client_is_kept_out_by_itself_or_with_its_host() {
        let addr = |text: &str| EntityAddr::parse_any(text).unwrap();
        let mut map = OsdMap::default();
        assert!(!map.is_blocklisted(&addr("10.0.0.1:0/5")));
        map.blocklist = vec![(addr("10.0.0.1:0/5"), UTime::ZERO), (addr("10.0.0.2"), UTime::ZERO)];
        assert!(map.is_blocklisted(&addr("10.0.0.1:0/5")));
        assert!(map.is_blocklisted(&EntityAddr { kind: kind::MSGR2, ..addr("10.0.0.1:0/5") }));
        assert!(!map.is_blocklisted(&addr("10.0.0.1:0/6")) && !map.is_blocklisted(&addr("10.0.0.1")));
        assert!(map.is_blocklisted(&addr("10.0.0.2:0/5")) && map.is_blocklisted(&addr("10.0.0.2:6800/1")));
        assert!(!map.is_blocklisted(&EntityAddr::default()), "no address at all");
    }
}
