//! Clients that are kept out, by address, until a time.

use carmine_types::{UTime, errno};
use carmine_wire::addr::EntityAddr;
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, refuse};

/// A client that is kept out already keeps its time, as in Ceph.
pub(super) fn add(map: &OsdMap, addr: EntityAddr, until: UTime, now: UTime) -> Option<Incremental> {
    if is_listed(map, &addr) {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.new_blocklist.push((addr, until));
    Some(inc)
}

pub(super) fn remove(map: &OsdMap, addr: &EntityAddr, now: UTime) -> Result<Option<Incremental>, Refusal> {
    if !is_listed(map, addr) {
        return Err(refuse(errno::ENOENT, format!("{} isn't blocklisted", shown(addr))));
    }
    let mut inc = Incremental::next(map, now);
    inc.old_blocklist.push(*addr);
    Ok(Some(inc))
}

/// Removes all whose end is not as wished.
pub(super) fn keep(map: &OsdMap, now: UTime, wanted: impl Fn(UTime) -> bool) -> Option<Incremental> {
    let over: Vec<EntityAddr> =
        map.blocklist.iter().filter(|(_, until)| !wanted(*until)).map(|(addr, _)| *addr).collect();
    if over.is_empty() {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.old_blocklist = over;
    Some(inc)
}

/// The address itself, not its host.
fn is_listed(map: &OsdMap, addr: &EntityAddr) -> bool {
    map.blocklist.iter().any(|(listed, _)| listed == addr)
}

/// `127.0.0.1:0/3710147553`, as Ceph prints addresses of any protocol.
pub(crate) fn shown(addr: &EntityAddr) -> String {
    let sock = addr.sock.map_or_else(|| "-".to_owned(), |sock| sock.to_string());
    format!("{sock}/{}", addr.nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::testing::{apply, cluster, now};

    fn client(nonce: u32) -> EntityAddr {
        EntityAddr { nonce, ..EntityAddr::parse_any("127.0.0.1").unwrap() }
    }

    fn later(seconds: u32) -> UTime {
        UTime { sec: now().sec + seconds, ..now() }
    }

    #[test]
    fn clients_are_kept_out_until_their_time() {
        let mut map = cluster(1);
        assert!(apply(&mut map, Change::Blocklist { addr: client(1), until: later(10) }));
        assert!(apply(&mut map, Change::Blocklist { addr: client(2), until: later(0) }));
        assert!(!apply(&mut map, Change::Blocklist { addr: client(1), until: later(99) }), "it is there");
        assert!(map.is_blocklisted(&client(1)) && map.is_blocklisted(&client(2)));
        assert!(apply(&mut map, Change::ExpireBlocklist));
        assert_eq!(map.blocklist, [(client(1), later(10))]);
        assert!(!apply(&mut map, Change::ExpireBlocklist));
        assert!(apply(&mut map, Change::Unblocklist { addr: client(1) }));
        assert!(!map.is_blocklisted(&client(1)));
        assert!(!apply(&mut map, Change::ClearBlocklist));
        let refusal = Change::Unblocklist { addr: client(1) }.plan(&map, now()).unwrap_err();
        assert_eq!((refusal.code.0, &*refusal.text), (errno::ENOENT, "127.0.0.1:0/1 isn't blocklisted"));
    }
}
