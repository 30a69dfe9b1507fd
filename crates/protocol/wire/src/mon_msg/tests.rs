use carmine_types::{Epoch, Uuid};
use proptest::prelude::*;

use super::*;
use crate::backoff::{Backoff, BackoffOp};
use crate::pgls::HObject;
use crate::testing::{any_bytes, object, round_trip};
use crate::{Encoder, Front, Header2};

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

fn maps() -> impl Strategy<Value = Vec<(Epoch, Vec<u8>)>> {
    any::<Vec<(u32, Vec<u8>)>>().prop_map(|maps| maps.into_iter().map(|(e, m)| (Epoch(e), m)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn session_messages(
        items: Vec<(String, u64, u8)>, options: Vec<(String, String)>, n: [u64; 3], text: String,
    ) {
        let what = items.into_iter().map(|(what, start, flags)| Subscription { what, start, flags });
        round_trip(Subscribe { what: what.collect(), hostname: text.clone() });
        round_trip(ConfigMsg { options });
        round_trip(GetVersion { handle: n[0], what: text });
        round_trip(GetVersionReply { handle: n[0], newest: n[1], oldest: n[2] });
        round_trip(GetMap {});
    }

    #[test]
    fn map_messages(
        fsid in uuid(), incrementals in maps(), full in maps(), epochs: (u32, u32),
        gap_removed_snaps: Vec<(i64, Vec<(u64, u64)>)>, monmap: Vec<u8>,
    ) {
        let (oldest, newest) = (Epoch(epochs.0), Epoch(epochs.1));
        round_trip(OsdMapMsg { fsid, incrementals, full, oldest, newest, gap_removed_snaps });
        round_trip(MonMapMsg { monmap });
    }

    #[test]
    fn commands(version: u64, fsid in uuid(), cmd: Vec<String>, result: i32, status: String) {
        round_trip(Command { version, fsid, cmd: cmd.clone() });
        round_trip(CommandAck { version, result, status, cmd: cmd.clone() });
        round_trip(GetPoolStats { version, fsid, pools: cmd });
    }

    #[test]
    fn pool_messages(
        version: u64, fsid in uuid(), n: (u32, u32, u64, i16), name: String, result: i32, epoch: u32,
        data: Option<Vec<u8>>, pool: Option<i64>, stats: Vec<(String, u8, Vec<u8>)>, per_pool: bool,
    ) {
        round_trip(PoolOp { version, fsid, pool: n.0, op: n.1, snapid: n.2, name, crush_rule: n.3 });
        round_trip(PoolOpReply { version, fsid, result, epoch: Epoch(epoch), data });
        round_trip(StatFs { version, fsid, pool });
        round_trip(StatFsReply {
            fsid, version, total_kib: n.2, used_kib: version, available_kib: 1, objects: 2,
        });
        let stats = stats.into_iter().map(|(name, version, body)| {
            (name, Encoder::collect(|e| e.envelope(version, 1, |e| e.bytes(&body))))
        });
        round_trip(GetPoolStatsReply { version, fsid, stats: stats.collect(), per_pool });
    }

    #[test]
    fn backoffs(
        pg: (i64, u32), shard: i8, epoch: u32, id: u64, begin in object(), end in object(), max: bool,
    ) {
        for op in [BackoffOp::Block, BackoffOp::AckBlock, BackoffOp::Unblock] {
            round_trip(Backoff {
                pg: carmine_types::PgId::new(pg.0, pg.1), shard, epoch: Epoch(epoch), op, id,
                begin: begin.clone().into(), end: HObject { max, object: end.clone() },
            });
        }
    }

    #[test]
    fn random_bytes(bytes: Vec<u8>) {
        any_bytes::<Subscribe>(&bytes);
        any_bytes::<ConfigMsg>(&bytes);
        any_bytes::<FsMapMsg>(&bytes);
        any_bytes::<GetVersion>(&bytes);
        any_bytes::<GetVersionReply>(&bytes);
        any_bytes::<OsdMapMsg>(&bytes);
        any_bytes::<MonMapMsg>(&bytes);
        any_bytes::<Command>(&bytes);
        any_bytes::<CommandAck>(&bytes);
        any_bytes::<GetPoolStats>(&bytes);
        any_bytes::<GetPoolStatsReply>(&bytes);
        any_bytes::<PoolOp>(&bytes);
        any_bytes::<PoolOpReply>(&bytes);
        any_bytes::<StatFs>(&bytes);
        any_bytes::<StatFsReply>(&bytes);
        any_bytes::<Backoff>(&bytes);
    }
}

/// Bytes that a Ceph 16.2.15 client sent.
#[test]
fn a_real_subscription() {
    let subscribe = Subscribe {
        what: vec![Subscription::new("config", 0, false), Subscription::new("monmap", 0, false)],
        hostname: "vm".to_owned(),
    };
    let mut expected = b"\x02\0\0\0\x06\0\0\0config\0\0\0\0\0\0\0\0\0".to_vec();
    expected.extend_from_slice(b"\x06\0\0\0monmap\0\0\0\0\0\0\0\0\0\x02\0\0\0vm");
    assert_eq!(subscribe.to_front(), expected);
}

#[test]
fn older_and_newer_versions() {
    let message = OsdMapMsg::full(Uuid::default(), Epoch(7), b"map".to_vec());
    let front = message.to_front();
    let version_3 = Header2 { version: 3, ..OsdMapMsg::header() };
    assert_eq!(OsdMapMsg::from_front(&version_3, &front[..front.len() - 4]), Ok(message.clone()));
    assert!(OsdMapMsg::from_front(&version_3, &front).is_err());
    let version_5 = Header2 { version: 5, ..OsdMapMsg::header() };
    let longer = [&front[..], b"new"].concat();
    assert_eq!(OsdMapMsg::from_front(&version_5, &longer), Ok(message));
    assert!(OsdMapMsg::from_front(&OsdMapMsg::header(), &longer).is_err());
}

#[test]
fn an_fs_map_both_ways() {
    let map = FsMapMsg { epoch: Epoch(1) };
    let front = map.to_front();
    // The length of ceph-mon 16.2.15's message, without the names of the features that its servers need.
    assert_eq!(front.len(), 4 + 6 + (4 + 8 + 4) + 3 * 12 + 1 + 4 * 4 + 1);
    assert_eq!(FsMapMsg::from_front(&FsMapMsg::header(), &front), Ok(map));
}
