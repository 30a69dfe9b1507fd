use carmine_types::{Epoch, PgId};
use proptest::prelude::*;

use super::*;
use crate::Front;
use crate::testing::{any_bytes, round_trip};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message(
        epoch: u32, osd: u32, reactors: Vec<u16>,
        pgs: Vec<((i64, u32), u16)>, json: Vec<u8>, result: i32,
    ) {
        let epoch = Epoch(epoch);
        let pgs: Vec<_> = pgs.into_iter().map(|((pool, ps), reactor)| (PgId::new(pool, ps), reactor)).collect();
        round_trip(Route { epoch });
        let stat = PgStat { reported_epoch: epoch, up: vec![osd as i32], purged_snaps: vec![(3, 1)], ..PgStat::default() };
        let stats = pgs.iter().map(|(pg, n)| (*pg, PgStat { reported_seq: u64::from(*n), ..stat.clone() })).collect();
        round_trip(OsdStats { total_bytes: 5, used_bytes: u64::MAX, commit_latency_ns: 6, pgs: stats, slow_ops: 7, slowest_s: 8 });
        round_trip(RouteReply { epoch, reactors, pgs });
        round_trip(Admin { json: json.clone() });
        round_trip(AdminReply { result, json });
    }

    #[test]
    fn random_bytes(bytes: Vec<u8>) {
        any_bytes::<Route>(&bytes);
        any_bytes::<RouteReply>(&bytes);
        any_bytes::<OsdStats>(&bytes);
        any_bytes::<Admin>(&bytes);
        any_bytes::<AdminReply>(&bytes);
    }
}

#[test]
fn another_version_is_refused_with_both_versions_and_the_remedy() {
    let other = Header2 { version: VERSION + 1, compat: VERSION + 1, ..RouteReply::header() };
    assert_eq!(check_version(&RouteReply::header()), Ok(()));
    assert_eq!(check_version(&Header2 { kind: kinds::OSD_OP, ..other }), Ok(()), "Ceph's own");
    let text = check_version(&other).unwrap_err().to_string();
    for part in [VERSION.to_string(), (VERSION + 1).to_string(), "same release".to_owned()] {
        assert!(text.contains(&part), "{text}");
    }
    assert!(RouteReply::from_front(&other, &[0; 12]).is_err());
    assert!(RouteReply::from_front(&Header2 { version: VERSION - 1, ..other }, &[0; 12]).is_err());
}

#[test]
fn private_types_are_out_of_cephs_range() {
    let kinds = [Route::KIND, RouteReply::KIND, OsdStats::KIND, Admin::KIND, AdminReply::KIND];
    assert!(kinds.iter().all(|kind| *kind >= 0x8000));
}
