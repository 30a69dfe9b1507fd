//! A view for tests.

use carmine_topology::{Grid, PlanRequest, Topology};
use serde_json::json;

use super::model::View;
use super::source::{OsdSample, Sample};

/// A testbed of two OSDs with two reactors each on eight CPUs; the second OSD never answers.
pub(super) fn example() -> View {
    let machine = Topology::from_short("1x8x1").unwrap();
    let request = PlanRequest { osds: 2, reactors: 2, ..PlanRequest::default() };
    let grid = Grid::plan(&machine, &request).unwrap();
    View::between(&grid, &sample(0), &sample(1))
}

fn sample(second: u64) -> Sample {
    let metric = |name: &str, values: [u64; 2]| json!({ "name": name, "values": [{ "shard": "0", "value": values[0] }, { "shard": "1", "value": values[1] }] });
    let answer = json!({ "taken_at_ns": 1_000 + second * 500_000_000, "metrics": [
        metric("osd_read_ops", [second * 1_000, second * 500]),
        metric("reactor_cpu_busy_ms", [second * 400, second * 50]),
        metric("reactor_cpu_spin_ms", [second * 75, 0]),
        metric("smp_total_sent_messages", [second * 20, second * 30]),
        metric("alien_cpu_busy_ms", [second * 100, 0]),
        metric("store_txns_in_flight", [3, 4]),
    ]});
    let cpus = (0..8).map(|cpu| (cpu, [second * 25, 0, 0, 0, 0, second * 75]));
    Sample {
        osds: [(0, OsdSample::parse(&answer).ok_or_else(String::new)), (1, Err("gone".into()))].into(),
        cpus: cpus.collect(),
    }
}
