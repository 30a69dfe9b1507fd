use std::fmt::Debug;
use std::net::SocketAddr;

use carmine_types::UTime;
use proptest::prelude::*;

use super::*;
use crate::frame::FrameReader;
use crate::{DecodeError, EntityAddrVec};

fn round_trip<T: Control + PartialEq + Debug>(value: T) {
    let mut bytes = Vec::new();
    value.frame_into(&mut bytes);
    let (frame, _) = FrameReader::default().next(&mut bytes).unwrap().unwrap();
    assert_eq!(frame.tag, T::TAG);
    assert_eq!(T::decode(frame.segments[0]).as_ref(), Ok(&value));
    // No payload is a proper part of another.
    for cut in 0..frame.segments[0].len() {
        assert!(T::decode(&frame.segments[0][..cut]).is_err());
    }
}

fn addr() -> impl Strategy<Value = EntityAddr> {
    any::<(u32, u32, Option<SocketAddr>)>().prop_map(|(kind, nonce, sock)| EntityAddr { kind, nonce, sock })
}

fn addrs() -> impl Strategy<Value = EntityAddrVec> {
    prop::collection::vec(addr(), 0..3).prop_map(EntityAddrVec)
}

proptest! {
    #[test]
    fn every_control_frame(
        addr in addr(), addrs in addrs(), n: [u64; 6], kind: u8, method: u32, result: i32,
        list: Vec<u32>, payload: Vec<u8>, name: String, full: bool, signature: [u8; 32],
    ) {
        let entity = EntityType(kind);
        let time = UTime { sec: method, nsec: kind.into() };
        round_trip(Hello { entity, peer_addr: addr });
        round_trip(AuthRequest { method, modes: list.clone(), payload: payload.clone() });
        round_trip(AuthBadMethod { method, result, allowed_methods: list.clone(), allowed_modes: list });
        round_trip(AuthDone { global_id: n[0], mode: method, payload });
        round_trip(Signature(signature));
        round_trip(ClientIdent {
            addrs: addrs.clone(), target: addr, gid: n[0], global_seq: n[1], supported: n[2],
            required: n[3], flags: n[4], cookie: n[5],
        });
        round_trip(ServerIdent {
            addrs: addrs.clone(), gid: n[0], global_seq: n[1], supported: n[2], required: n[3],
            flags: n[4], cookie: n[5],
        });
        round_trip(MissingFeatures(n[0]));
        round_trip(Reconnect {
            addrs, client_cookie: n[0], server_cookie: n[1], global_seq: n[2], connect_seq: n[3], in_seq: n[4],
        });
        round_trip(Reset { full });
        round_trip(Retry(n[0]));
        round_trip(RetryGlobal(n[0]));
        round_trip(ReconnectOk(n[0]));
        round_trip(Wait);
        round_trip(Keepalive2(time));
        round_trip(Keepalive2Ack(time));
        round_trip(Ack(n[0]));
        for target in [AuthTarget::Mon, AuthTarget::Osd] {
            let none = AuthNone { target, entity, name: name.clone(), global_id: n[0] };
            prop_assert_eq!(AuthNone::decode(&AuthRequest::none(&none).payload)?, none);
        }
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        let _ = Banner::parse(&bytes);
        let _ = Hello::decode(&bytes);
        let _ = AuthRequest::decode(&bytes);
        let _ = AuthBadMethod::decode(&bytes);
        let _ = AuthDone::decode(&bytes);
        let _ = ClientIdent::decode(&bytes);
        let _ = ServerIdent::decode(&bytes);
        let _ = Reconnect::decode(&bytes);
        let _ = AuthNone::decode(&bytes);
    }

    #[test]
    fn banners(supported: u64, required: u64, extra in prop::collection::vec(any::<u8>(), 0..40)) {
        let banner = Banner { supported, required };
        let mut bytes = Vec::new();
        banner.encode_into(&mut bytes);
        prop_assert_eq!(bytes.len(), BANNER_BYTES);
        // A peer from the future says more in a longer payload.
        bytes[8] += extra.len() as u8;
        bytes.extend_from_slice(&extra);
        let len = bytes.len();
        for cut in 0..len {
            prop_assert_eq!(Banner::parse(&bytes[..cut])?, None);
        }
        bytes.push(0x55);
        prop_assert_eq!(Banner::parse(&bytes)?, Some((banner, len)));
    }
}

#[test]
fn a_v1_peer_is_named() {
    assert_eq!(Banner::parse(b"ceph v"), Ok(None));
    let error = Banner::parse(b"ceph v027").unwrap_err();
    assert_eq!(error, DecodeError::Unsupported(super::LEGACY_PEER));
    assert!(error.to_string().contains("msgr v1"));
    assert!(Banner::parse(b"GET / HTTP/1.1").is_err());
    assert!(Banner::parse(b"G").is_err());
}

#[test]
fn banners_must_share_revision_1_and_nothing_more() {
    assert!(Banner::default().check_compatible().is_ok());
    assert!(Banner { supported: 3, required: 1 }.check_compatible().is_ok());
    assert!(Banner { supported: 2, required: 0 }.check_compatible().is_err());
    assert!(Banner { supported: 3, required: 2 }.check_compatible().is_err());
}

#[test]
fn signatures_must_be_zero() {
    assert!(Signature::default().check_none().is_ok());
    let mut bytes = [0; 32];
    bytes[31] = 7;
    assert!(Signature(bytes).check_none().is_err());
}
