//! Network addresses of entities, in the form that peers with MSG_ADDR2 use (PROTOCOL.md §3).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Result, basic::size};

/// First byte of an address, and of a vector of them.
const MARKER_ADDR: u8 = 1;
const MARKER_VEC: u8 = 2;

/// Address families and lengths of Linux' sockaddr_in and sockaddr_in6.
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 10;
const SOCKADDR_IPV4_BYTES: usize = 16;
const SOCKADDR_IPV6_BYTES: usize = 28;

/// Longest sockaddr that a peer may send: the kernel's sockaddr_storage.
const SOCKADDR_BYTES_MAX: usize = 128;

/// Which protocol an address speaks ([`EntityAddr::kind`]).
pub mod kind {
    /// No address.
    pub const NONE: u32 = 0;
    /// msgr v1.
    pub const LEGACY: u32 = 1;
    pub const MSGR2: u32 = 2;
    /// A client's own address.
    pub const ANY: u32 = 3;
}

/// entity_addr_t: protocol, nonce and socket address.
///
/// A daemon's nonce changes at every start and is part of its identity: a client checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntityAddr {
    /// One of [`kind`].
    pub kind: u32,
    pub nonce: u32,
    /// `None` is "no address" (length 0).
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    /// A msgr v2 address.
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: kind::MSGR2, nonce, sock: Some(sock) }
    }

    /// A client's own address: any protocol, port 0.
    pub fn client(ip: IpAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: kind::ANY, nonce, sock: Some(SocketAddr::new(ip, 0)) }
    }

    /// Reads `IP`, `IP:PORT` or `IP:PORT/NONCE`, as tools name clients; IPv6 in brackets, `v1:`, `v2:` or `any:` before it or
    /// not. It is an address of any protocol, as all in a blocklist are; what is left out is 0. `None` if it is none.
    pub fn parse_any(text: &str) -> Option<EntityAddr> {
        let bare =
            ["v1:", "v2:", "any:"].iter().find_map(|protocol| text.strip_prefix(protocol)).unwrap_or(text);
        let (sock, nonce) = match bare.split_once('/') {
            Some((sock, nonce)) => (sock, nonce.parse().ok()?),
            None => (bare, 0),
        };
        let ip =
            || sock.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(sock).parse::<IpAddr>();
        let sock = sock.parse().or_else(|_| ip().map(|ip| SocketAddr::new(ip, 0))).ok()?;
        Some(EntityAddr { kind: kind::ANY, nonce, sock: Some(sock) })
    }

    /// The content of its envelope. Ceph sorts an encoded blocklist by the address as it lies in memory, which is the
    /// order of these bytes.
    pub(crate) fn put_fields(&self, e: &mut Encoder<'_>) {
        e.u32(self.kind);
        e.u32(self.nonce);
        match self.sock {
            None => e.count(0),
            Some(SocketAddr::V4(v4)) => {
                e.count(SOCKADDR_IPV4_BYTES);
                e.u16(FAMILY_IPV4);
                e.bytes(&v4.port().to_be_bytes());
                e.bytes(&v4.ip().octets());
                e.zeros(8);
            }
            Some(SocketAddr::V6(v6)) => {
                e.count(SOCKADDR_IPV6_BYTES);
                e.u16(FAMILY_IPV6);
                e.bytes(&v6.port().to_be_bytes());
                e.u32(v6.flowinfo());
                e.bytes(&v6.ip().octets());
                e.u32(v6.scope_id());
            }
        }
    }
}

impl EntityAddr {
    /// The word that Ceph has for the protocol.
    pub fn protocol(&self) -> &'static str {
        match self.kind {
            kind::LEGACY => "v1",
            kind::MSGR2 => "v2",
            kind::ANY => "any",
            _ => "none",
        }
    }
}

impl fmt::Display for EntityAddr {
    /// As Ceph prints it: `v2:127.0.0.1:6800/1234`, or `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sock) = self.sock else { return f.write_str("-") };
        write!(f, "{}:{sock}/{}", self.protocol(), self.nonce)
    }
}

/// entity_addrvec_t: all addresses of one entity. Empty means "none".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntityAddrVec(pub Vec<EntityAddr>);

impl EntityAddrVec {
    /// The first msgr v2 address that has a socket address.
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == kind::MSGR2 && a.sock.is_some())
    }

    pub fn contains(&self, addr: &EntityAddr) -> bool {
        self.0.contains(addr)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<EntityAddr> for EntityAddrVec {
    fn from(addr: EntityAddr) -> EntityAddrVec {
        EntityAddrVec(vec![addr])
    }
}

impl Coded for EntityAddr {
    /// Marker, envelope, kind, nonce, length.
    const BYTES_MIN: usize = 1 + size::ENVELOPE + 12;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(MARKER_ADDR);
        e.envelope(1, 1, |e| self.put_fields(e));
    }

    fn get(d: &mut Decoder<'_>) -> Result<EntityAddr> {
        match d.u8()? {
            MARKER_ADDR => decode_addr(d),
            marker => Err(DecodeError::BadValue { what: "address marker", value: marker.into() }),
        }
    }
}

impl Coded for EntityAddrVec {
    /// Marker and count; a single address, which is longer, is taken in its place, as real readers do.
    const BYTES_MIN: usize = 5;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(MARKER_VEC);
        e.put(&self.0);
    }

    fn get(d: &mut Decoder<'_>) -> Result<EntityAddrVec> {
        match d.u8()? {
            MARKER_VEC => d.get().map(EntityAddrVec),
            MARKER_ADDR => Ok(decode_addr(d)?.into()),
            marker => Err(DecodeError::BadValue { what: "address vector marker", value: marker.into() }),
        }
    }
}

/// An address behind its marker.
fn decode_addr(d: &mut Decoder<'_>) -> Result<EntityAddr> {
    let mut body = d.envelope("entity_addr", 1)?.body;
    let (kind, nonce) = (body.u32()?, body.u32()?);
    Ok(EntityAddr { kind, nonce, sock: decode_sockaddr(body.blob()?)? })
}

fn decode_sockaddr(bytes: &[u8]) -> Result<Option<SocketAddr>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() > SOCKADDR_BYTES_MAX {
        let len = bytes.len() as u64;
        return Err(DecodeError::TooLong { what: "sockaddr", len, limit: SOCKADDR_BYTES_MAX });
    }
    let mut d = Decoder::new(bytes, "sockaddr");
    let family = d.u16()?;
    let port = |d: &mut Decoder<'_>| Ok(u16::from_be_bytes(d.array()?));
    match family {
        0 => Ok(None),
        FAMILY_IPV4 => {
            let port = port(&mut d)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(d.array::<4>()?).into(), port)))
        }
        FAMILY_IPV6 => {
            let port = port(&mut d)?;
            let flow = d.u32()?;
            let ip = Ipv6Addr::from(d.array::<16>()?);
            Ok(Some(SocketAddrV6::new(ip, port, flow, d.u32()?).into()))
        }
        other => Err(DecodeError::BadValue { what: "address family", value: other.into() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(addr: &EntityAddr) -> Vec<u8> {
        Encoder::collect(|e| e.put(addr))
    }

    #[test]
    fn sizes_and_text() {
        let v4 = EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 0x29dd);
        let v6 = EntityAddr::msgr2("[::1]:6800".parse().unwrap(), 7);
        assert_eq!(encoded(&v4).len(), 35);
        assert_eq!(encoded(&v6).len(), 47);
        assert_eq!(encoded(&EntityAddr::default()).len(), EntityAddr::BYTES_MIN);
        assert_eq!(v4.to_string(), "v2:127.0.0.1:6800/10717");
        assert_eq!(v6.to_string(), "v2:[::1]:6800/7");
        assert_eq!(EntityAddr::default().to_string(), "-");
        assert_eq!(Encoder::collect(|e| e.put(&EntityAddrVec::default())), [2, 0, 0, 0, 0]);
    }

    #[test]
    fn addresses_are_read_as_tools_write_them() {
        let read = |text: &str| EntityAddr::parse_any(text).map(|addr| addr.to_string());
        for (text, shown) in [
            ("127.0.0.1:0/3710147553", "any:127.0.0.1:0/3710147553"),
            ("v2:10.0.0.7:6800/1", "any:10.0.0.7:6800/1"),
            ("10.0.0.7", "any:10.0.0.7:0/0"),
            ("[fd00::1]:0/5", "any:[fd00::1]:0/5"),
            ("any:[::1]", "any:[::1]:0/0"),
            ("fd00::1", "any:[fd00::1]:0/0"),
        ] {
            assert_eq!(read(text).as_deref(), Some(shown), "{text}");
        }
        for text in
            ["", "/5", "host:1/2", "127.0.0.1:0/", "127.0.0.1:0/4294967296", "127.0.0.1:70000", "v3:1.2.3.4"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_single_address_is_read_as_a_vector() {
        let addr = EntityAddr::msgr2("10.0.0.1:1".parse().unwrap(), 9);
        let bytes = encoded(&addr);
        let vec = Decoder::all(&bytes, "test", |d| d.get::<EntityAddrVec>()).unwrap();
        assert!(vec.contains(&addr));
        assert_eq!(vec.msgr2(), Some(addr));
    }

    #[test]
    fn the_old_form_and_unknown_families_are_refused() {
        let mut bytes = encoded(&EntityAddr::msgr2("10.0.0.1:1".parse().unwrap(), 9));
        bytes[19] = 99;
        assert_eq!(
            Decoder::new(&bytes, "test").get::<EntityAddr>(),
            Err(DecodeError::BadValue { what: "address family", value: 99 })
        );
        bytes[0] = 0;
        assert!(Decoder::new(&bytes, "test").get::<EntityAddr>().is_err());
    }

    proptest! {
        #[test]
        fn round_trip(kind: u32, nonce: u32, sock: Option<SocketAddr>) {
            let addr = EntityAddr { kind, nonce, sock };
            let vec = EntityAddrVec(vec![addr, EntityAddr::default()]);
            let bytes = Encoder::collect(|e| e.put(&vec));
            prop_assert_eq!(Decoder::all(&bytes, "test", |d| d.get::<EntityAddrVec>())?, vec);
        }
    }
}
