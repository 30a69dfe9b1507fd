//! Messages: the 41 bytes of a header, then the front, as its type and version say.

use carmine_osd::messages::*;
use carmine_reactor::Payload;
use carmine_wire::backoff::Backoff;
use carmine_wire::frame::segment;
use carmine_wire::header::HEADER2_BYTES;
use carmine_wire::kinds;
use carmine_wire::mgr_msg::{MgrConfigure, MgrMapMsg, MgrOpen, MgrReport, PgStatsMsg};
use carmine_wire::mon_msg::*;
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, MarkMeDown, OsdPing, PgTemp};
use carmine_wire::osd_op::{OsdReply, OsdRequest, payload_bytes, payload_ranges, peek};
use carmine_wire::osdmap::{Incremental, OsdMap};
use carmine_wire::private::*;
use carmine_wire::scrub::OsdScrub;
use carmine_wire::tell::{Ping, Tell, TellReply};
use carmine_wire::{Front, Header2};

use super::seeds;

/// Data beside a transaction.
const TXN_DATA_BYTES: usize = 4096;
/// Longest data segment that the payloads of an operation are looked for in.
const DATA_BYTES: usize = 1 << 20;

/// Decodes the front if the header is of this type; what is decoded must encode again.
macro_rules! fronts {
    ($header:expr, $front:expr; $($type:ty),* $(,)?) => {
        $(if $header.kind == <$type as Front>::KIND {
            if let Ok(value) = <$type as Front>::from_front(&$header, $front) {
                value.to_front();
            }
        })*
    };
}

/// Header and front.
pub(super) fn message(bytes: &[u8]) {
    let Some((head, front)) = bytes.split_at_checked(HEADER2_BYTES) else { return };
    let Ok(header) = Header2::decode(head) else { return };
    fronts!(header, front; Subscribe, ConfigMsg, GetVersion, GetVersionReply, GetMap, MonMapMsg, Command, CommandAck);
    fronts!(header, front; PoolOp, PoolOpReply, StatFs, StatFsReply, GetPoolStats, GetPoolStatsReply, Backoff);
    fronts!(header, front; Route, RouteReply, OsdStats, Admin, AdminReply);
    fronts!(header, front; Tell, TellReply, Ping);
    fronts!(header, front; MgrMapMsg, MgrOpen, MgrConfigure, MgrReport, PgStatsMsg);
    fronts!(header, front; Boot, MarkMeDown, Alive, Beacon, PgTemp, Failure, OsdPing);
    fronts!(header, front; RepAck, PgQuery, PgNotify, PgRepair, PgActivate, PgAck, PgRead, PgData);
    fronts!(header, front; OsdScrub, PgScrub, PgScrubMap, PgFetch, PgObject);
    match header.kind {
        kinds::OSD_OP => osd_op(&header, front),
        kinds::OSD_OP_REPLY => {
            let _ = OsdReply::decode(&header, front);
        }
        kinds::OSD_MAP => osd_map(&header, front),
        RepOp::KIND | PushObject::KIND => {
            let data = Payload::from(vec![7; TXN_DATA_BYTES]);
            let _ = RepOp::read(&header, front.to_vec(), data);
        }
        _ => {}
    }
    let _ = peek_pg(front);
}

fn osd_op(header: &Header2, front: &[u8]) {
    let peeked = peek(front);
    let Ok(request) = OsdRequest::decode(header, front) else { return };
    // A request is routed by what `peek` says, and executed as what was decoded.
    if let Some((pg, hash, epoch, flags)) = peeked {
        assert_eq!((pg, hash, epoch, flags), (request.pg, request.hash, request.epoch, request.flags));
    }
    let _ = payload_ranges(&request.ops, DATA_BYTES);
    let need = payload_bytes(&request.ops) as usize;
    assert!(payload_ranges(&request.ops, need).is_ok_and(|ranges| ranges.len() == request.ops.len()));
    request.encode_into(&mut Vec::new());
}

fn osd_map(header: &Header2, front: &[u8]) {
    let Ok(maps) = OsdMapMsg::from_front(header, front) else { return };
    for (_, bytes) in &maps.full {
        let _ = OsdMap::decode(bytes);
    }
    for (_, bytes) in &maps.incrementals {
        let _ = Incremental::decode(bytes);
    }
}

pub(super) fn message_seeds() -> Vec<Vec<u8>> {
    let messages = seeds::frames().into_iter().filter(seeds::Captured::is_message);
    messages.map(|frame| [&frame.segments[segment::HEADER][..], frame.front()].concat()).collect()
}
