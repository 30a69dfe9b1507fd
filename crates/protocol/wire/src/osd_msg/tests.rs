use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::testing::{any_bytes, round_trip};
use crate::{EntityAddr, FEATURES};

fn addrs() -> impl Strategy<Value = EntityAddrVec> {
    any::<Vec<(u32, SocketAddr)>>().prop_map(|addrs| {
        EntityAddrVec(addrs.into_iter().map(|(nonce, sock)| EntityAddr::msgr2(sock, nonce)).collect())
    })
}

fn pg() -> impl Strategy<Value = PgId> {
    any::<(i64, u32)>().prop_map(|(pool, ps)| PgId::new(pool, ps))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn start_and_stop(
        version: u64, id: [u8; 16], osd: u32, epoch: u32, hb_back in addrs(), hb_front in addrs(), cluster in addrs(),
        metadata: BTreeMap<String, String>, mask: u64, names: BTreeMap<u64, String>, request_ack: bool, is_dead: bool,
    ) {
        let (osd, epoch, fsid) = (OsdId(osd), Epoch(epoch), Uuid(id));
        let superblock = Superblock {
            cluster_fsid: fsid, whoami: osd, current_epoch: epoch, newest_map: epoch,
            incompat: FeatureSet { mask, names }, osd_fsid: fsid, ..Superblock::default()
        };
        round_trip(MarkMeDown { version, fsid, osd, addrs: cluster.clone(), epoch, request_ack, is_dead });
        round_trip(Boot {
            version, superblock, hb_back, cluster, boot_epoch: epoch, hb_front, metadata, features: FEATURES,
        });
    }

    #[test]
    fn signs_of_life(
        version: u64, id: [u8; 16], epoch: u32, pgs in prop::collection::vec(pg(), 0..9), addrs in addrs(),
        entry: Vec<i32>, flags: u8, failed_for_s: u32, forced: bool,
    ) {
        let (osd, epoch, fsid) = (OsdId(version as u32), Epoch(epoch), Uuid(id));
        let last_purged_snaps_scrub = UTime { sec: epoch.0, nsec: failed_for_s };
        round_trip(Alive { version, want: epoch });
        round_trip(Beacon {
            version, pgs: pgs.clone(), min_last_epoch_clean: epoch, last_purged_snaps_scrub, interval_s: -7,
        });
        for source in &pgs {
            let (last_epoch_started, last_epoch_clean) = (epoch, Epoch(failed_for_s));
            let [source_version, target_version] = [epoch.0, failed_for_s].map(|of| Eversion::new(of, version));
            round_trip(ReadyToMerge {
                version, source: *source, source_version, target_version, last_epoch_started, last_epoch_clean,
                ready: forced,
            });
        }
        let pg_temp = pgs.into_iter().map(|pg| (pg, entry.clone())).collect();
        round_trip(PgTemp { version, epoch, pg_temp, forced });
        round_trip(Failure { version, fsid, osd, addrs, epoch, flags, failed_for_s });
    }

    #[test]
    fn pings(
        id: [u8; 16], op: u8, sec: u32, padding_bytes in 0..3000u32, mono_ns in 0..u64::from(u32::MAX) * SECOND_NS,
        delta_ub_ns in prop::option::of(-2_000_000_000_000_000_000..2_000_000_000_000_000_000i64),
    ) {
        round_trip(OsdPing {
            fsid: Uuid(id), epoch: Epoch(sec), op, stamp: UTime { sec, nsec: 5 }, padding_bytes,
            up_from: Epoch(sec), mono_ping_ns: mono_ns, mono_send_ns: mono_ns / 3, delta_ub_ns,
        });
    }

    #[test]
    fn random_bytes(bytes: Vec<u8>) {
        any_bytes::<Boot>(&bytes);
        any_bytes::<MarkMeDown>(&bytes);
        any_bytes::<Alive>(&bytes);
        any_bytes::<Beacon>(&bytes);
        any_bytes::<PgTemp>(&bytes);
        any_bytes::<Failure>(&bytes);
        any_bytes::<OsdPing>(&bytes);
    }
}

#[test]
fn a_ping_that_claims_more_padding_than_there_is_is_refused() {
    let ping = OsdPing {
        fsid: Uuid::default(),
        epoch: Epoch(1),
        op: OsdPing::PING,
        stamp: UTime::ZERO,
        padding_bytes: OsdPing::PADDING_BYTES,
        up_from: Epoch(1),
        mono_ping_ns: 0,
        mono_send_ns: 0,
        delta_ub_ns: None,
    };
    let mut front = ping.to_front();
    assert_eq!(front.len(), 2025, "as Ceph's");
    front[29..33].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(OsdPing::from_front(&OsdPing::header(), &front).is_err());
}
