use carmine_types::{PgId, Uuid};
use proptest::prelude::*;

use super::*;
use crate::Header2;
use crate::pg_stat::PgStat;
use crate::testing::{any_bytes, round_trip};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_session(name: String, service: String, metadata: Vec<(String, String)>, n: (u32, u32)) {
        let metadata = if service.is_empty() { Vec::new() } else { metadata };
        let open = MgrOpen { name, service, metadata };
        prop_assert_eq!(MgrOpen::from_front(&MgrOpen::header(), &open.to_front())?, open);
        let configure = MgrConfigure { period_s: n.0, threshold: n.1 };
        prop_assert_eq!(MgrConfigure::from_front(&MgrConfigure::header(), &configure.to_front())?, configure);
    }

    #[test]
    fn reports(text: String, values: Vec<u8>, list: Vec<String>, n: (u8, u32, u32), has_metrics: bool) {
        let counter = CounterType { path: text.clone(), kind: n.0, unit: counter_unit::NONE, ..CounterType::default() };
        round_trip(MgrReport {
            name: text.clone(), declare: vec![counter], values: values.clone(), undeclare: list, service: text.clone(),
            status: has_metrics.then(|| [(text.clone(), text.clone())].into()),
            health: vec![HealthMetric { kind: n.0, count: n.1, oldest_s: n.2 }], config: values,
            tasks: None, metrics: has_metrics.then(MetricReport::default),
        });
    }

    #[test]
    fn statistics(id: [u8; 16], pools: Vec<(i64, u64)>, peers: Vec<i32>, alert: String, epoch: u32, seq: u64) {
        let (fsid, epoch) = (Uuid(id), Epoch(epoch));
        let osd = OsdStat {
            hb_pingtime: peers.iter().map(|osd| PingTimes { osd: *osd, figures: [7; 21] }).collect(),
            op_queue_age_hist: Pow2Hist { bins: peers.clone() }, hb_peers: peers, seq,
            os_alerts: vec![(3, vec![(alert.clone(), alert)])], ..OsdStat::default()
        };
        let stat = PgStat { reported_seq: seq, reported_epoch: epoch, ..PgStat::default() };
        let pgs = pools.iter().map(|(pool, _)| (PgId::new(*pool, epoch.0), stat.clone())).collect();
        let statfs = |total| StoreStatFs { total, ..StoreStatFs::default() };
        let pools = pools.into_iter().map(|(pool, total)| (pool, statfs(total))).collect();
        round_trip(PgStatsMsg { version: 0, fsid, osd, pgs, epoch, pools });
    }

    #[test]
    fn random_bytes(bytes: Vec<u8>) {
        any_bytes::<MgrMapMsg>(&bytes);
        any_bytes::<MgrOpen>(&bytes);
        any_bytes::<MgrConfigure>(&bytes);
        any_bytes::<MgrReport>(&bytes);
        any_bytes::<PgStatsMsg>(&bytes);
    }
}

#[test]
fn a_mgr_map_both_ways() {
    let addr = EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 3);
    let map = MgrMapMsg { epoch: Epoch(7), addrs: addr.into(), gid: 5, available: true, name: "a".into() };
    let front = map.to_front();
    assert_eq!(front.len(), 6 + 4 + (5 + 35) + 8 + 1 + 5 + 4 * 4);
    assert_eq!(MgrMapMsg::from_front(&MgrMapMsg::header(), &front), Ok(map.clone()));
    assert_eq!(map.active(), Some(addr));
    assert_eq!(MgrMapMsg { available: false, ..map }.active(), None);
}

/// The head of a map of ceph-mon 16.2.15; its 23,800 bytes about the manager's modules are left out, and are not in the length.
#[test]
fn an_active_manager_is_read_out_of_a_newer_map() {
    let addrs: [&[u8]; 3] = [
        &[2, 2, 0, 0, 0],
        b"\x01\x01\x01\x1c\0\0\0\x02\0\0\0\x2d\x6f\0\0\x10\0\0\0\x02\0\x1a\x98\x7f\0\0\x01\0\0\0\0\0\0\0\0",
        b"\x01\x01\x01\x1c\0\0\0\x01\0\0\0\x2d\x6f\0\0\x10\0\0\0\x02\0\x1a\x99\x7f\0\0\x01\0\0\0\0\0\0\0\0",
    ];
    let body =
        [&[4, 0, 0, 0][..], &addrs.concat(), &[2, 16, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, b'x', 0, 0, 0, 0]]
            .concat();
    let front = [&[12, 6, body.len() as u8, 0, 0, 0][..], &body].concat();
    let map = MgrMapMsg::from_front(&MgrMapMsg::header(), &front).unwrap();
    assert_eq!((map.epoch, map.gid, map.name.as_str()), (Epoch(4), 4098, "x"));
    assert_eq!(map.active(), Some(EntityAddr::msgr2("127.0.0.1:6808".parse().unwrap(), 0x6f2d)));
}

/// What an OSD 0 of Ceph 16.2.15 says first; its options follow, of which none need to.
#[test]
fn an_osd_says_who_it_is() {
    let front = MgrOpen::daemon("0".into()).to_front();
    assert_eq!(front[..10], *b"\x01\0\0\x000\0\0\0\0\0");
    assert_eq!(front[10..], [0; 8], "no options, and no defaults");
    let real = [&front[..10], &[4, 0, 0, 0, 9, 9, 9, 9], &[0; 4]].concat();
    assert_eq!(MgrOpen::from_front(&MgrOpen::header(), &real), Ok(MgrOpen::daemon("0".into())));
}

#[test]
fn questions_of_the_manager_are_passed_over() {
    let mut front = MgrConfigure { period_s: 5, threshold: 6 }.to_front();
    front[8] = 1;
    front.extend([7; 40]);
    let header = Header2 { version: 5, ..MgrConfigure::header() };
    assert_eq!(MgrConfigure::from_front(&header, &front), Ok(MgrConfigure { period_s: 5, threshold: 6 }));
    assert!(MgrConfigure::from_front(&header, &front[..7]).is_err());
}

#[test]
fn values_are_packed_one_behind_the_other() {
    let bytes = pack([CounterValue::Number(5), CounterValue::Average { sum_ns: 9, count: 2 }]);
    assert_eq!(bytes, [&[1, 1, 32, 0, 0, 0][..], &[5, 9, 2, 2].map(u64::to_le_bytes).concat()].concat());
}
