//! What OSDs of a real Ceph told their manager means the same to us.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads files

mod capture;

use carmine_types::{Epoch, Eversion, PgId};
use carmine_wire::mgr_msg::*;
use carmine_wire::pg_stat::{PgShard, state};
use carmine_wire::{Decoder, Front, Header2};

/// All messages of a type, in their order.
fn captured<T: Front>() -> Vec<T> {
    let all = capture::frames(&capture::data_dir().join("mgr.frames.txt"));
    let of_type = |frame: &capture::Captured| {
        let header = Header2::decode(&frame.segments[0]).unwrap();
        (header.kind == T::KIND).then(|| T::from_front(&header, frame.front()).unwrap())
    };
    all.iter().filter_map(of_type).collect()
}

/// The values of a report, by the paths of these counters.
fn unpack<'a>(declared: &'a [CounterType], report: &MgrReport) -> Vec<(&'a str, CounterValue)> {
    let mut body = Decoder::new(&report.values, "values").envelope("values", 1).unwrap().body;
    let mut value = |counter: &'a CounterType| {
        let number = body.u64().unwrap();
        if counter.kind & counter_kind::AVERAGE == 0 {
            return (counter.path.as_str(), CounterValue::Number(number));
        }
        let counts = [body.u64().unwrap(), body.u64().unwrap()];
        assert_eq!(counts[0], counts[1]);
        (counter.path.as_str(), CounterValue::Average { sum_ns: number, count: counts[0] })
    };
    let values = declared.iter().map(&mut value).collect();
    body.finish().unwrap();
    values
}

#[test]
fn the_first_map_has_no_manager_yet() {
    let maps = captured::<MgrMapMsg>();
    assert_eq!((maps[0].epoch, maps[0].gid, maps[0].active()), (Epoch(1), 0, None));
    let configure = captured::<MgrConfigure>();
    assert_eq!(configure, [MgrConfigure { period_s: 5, threshold: 5 }]);
}

#[test]
fn counters_are_declared_once_and_sorted() {
    let reports = captured::<MgrReport>();
    let (first, later) = (&reports[0], &reports[3]);
    let declared = &first.declare;
    assert_eq!((first.name.as_str(), first.service.as_str(), declared.len()), ("0", "", 74));
    assert!(declared.is_sorted_by_key(|counter| counter.path.as_str()));
    let latency = declared.iter().find(|counter| counter.path == "osd.op_latency").unwrap();
    assert_eq!(latency.kind, counter_kind::TIME | counter_kind::AVERAGE);
    assert_eq!((latency.nick.as_str(), latency.priority, latency.unit), ("l", 9, counter_unit::NONE));
    let bytes = declared.iter().find(|counter| counter.path == "osd.op_in_bytes").unwrap();
    assert_eq!((bytes.kind, bytes.unit), (counter_kind::U64 | counter_kind::COUNTER, counter_unit::BYTES));
    assert!(later.declare.is_empty());
    for report in [first, later] {
        let values = unpack(declared, report);
        assert_eq!(pack(values.iter().map(|(_, value)| *value)), report.values);
    }
    let values = unpack(declared, later);
    let value = |path: &str| values.iter().find(|(known, _)| *known == path).unwrap().1;
    assert_eq!(value("osd.op"), CounterValue::Number(39));
    let sum_ns = 44_598_699_703;
    assert_eq!(value("osd.op_latency"), CounterValue::Average { sum_ns, count: 39 }, "some waited for 11 s");
    assert_eq!(value("osd.stat_bytes"), CounterValue::Number(1 << 30));
}

#[test]
fn slow_operations_are_told_with_the_age_of_the_oldest() {
    let reports = captured::<MgrReport>();
    let metric = |kind, count, oldest_s| HealthMetric { kind, count, oldest_s };
    let none = metric(HealthMetric::PENDING_CREATING_PGS, 0, 0);
    assert_eq!(reports[0].health, [metric(HealthMetric::SLOW_OPS, 0, 0), none]);
    assert_eq!(reports[3].health, [metric(HealthMetric::SLOW_OPS, 4, 10), none]);
    assert_eq!((reports[0].metrics, &reports[0].status), (Some(MetricReport::default()), &None));
    // A service of librados.
    assert_eq!((reports[1].service.as_str(), reports[1].metrics), ("svc", None));
    assert_eq!(reports[2].tasks, None);
    assert_eq!(reports[2].status, Some([("state".to_owned(), "fine".to_owned())].into()));
}

#[test]
fn an_osd_tells_its_space_before_and_after_it_is_up() {
    let stats = captured::<PgStatsMsg>();
    let [booting, active, last] = &stats[..] else { panic!("{}", stats.len()) };
    assert_eq!(
        (booting.osd.up_from, booting.osd.seq, booting.pgs.len(), booting.epoch),
        (Epoch(0), 1, 0, Epoch(8))
    );
    assert_eq!((active.osd.up_from, active.osd.seq), (Epoch(6), 6 << 32 | 9));
    assert_eq!(active.osd.hb_peers, [1]);
    assert!(!active.osd.op_queue_age_hist.bins.is_empty(), "operations were slow then");
    assert_eq!(last.osd.hb_pingtime.iter().map(|times| times.osd).collect::<Vec<_>>(), [1]);
    for OsdStat { kb, kb_used, kb_avail, kb_used_data, kb_used_meta, statfs, .. } in
        stats.iter().map(|stats| &stats.osd)
    {
        assert_eq!([*kb, *kb_avail], [statfs.total, statfs.available].map(|bytes| bytes as i64 / 1024));
        assert_eq!(*kb_used, kb - kb_avail);
        assert_eq!(
            [*kb_used_data, *kb_used_meta],
            [statfs.allocated, statfs.internal_metadata].map(|bytes| bytes / 1024)
        );
    }
    assert!(last.pools.keys().eq(&[1, 2, 3]));
}

#[test]
fn a_degraded_pg_names_who_has_all_of_it() {
    let stats = captured::<PgStatsMsg>();
    let last = stats.last().unwrap();
    let (_, stat) = last.pgs.iter().find(|(pg, _)| *pg == PgId::new(2, 7)).unwrap();
    assert_eq!(state::words(stat.states()), "active+undersized+degraded");
    let own = PgShard { osd: 0, shard: -1 };
    assert_eq!(stat.avail_no_missing, [own]);
    assert_eq!(stat.object_location_counts, [(vec![own], 12)].into());
    let sum = stat.stats.sum;
    assert_eq!((sum.num_objects, sum.num_object_copies, sum.num_objects_degraded), (12, 24, 12));
    assert_eq!((stat.version, stat.acting.as_slice()), (Eversion::new(16, 18), &[0][..]));
}
