//! How long it will take: rough figures of a middling machine, for people who wonder whether to go for lunch.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Planned;
use super::machine::Machine;
use crate::archive::Config;
use crate::commands::is_durable;
use crate::plan::Plan;

/// Bytes per second that a drive takes while layouts are made.
const FILL_BYTES_PER_S: f64 = 300e6;
/// The same of random writes of 64K.
const AGE_BYTES_PER_S: f64 = 100e6;
/// Stop and start of the processes.
const RESTART_S: f64 = 3.0;
/// Connecting, finding the objects, writing the result.
const AROUND_LOAD_S: f64 = 1.5;
/// Both baselines, for every new load.
const BASELINE_S: f64 = 6.0;
/// Block file of an OSD if the plan does not name it.
const OSD_SIZE_BYTES: u64 = 4 << 30;
/// Bytes that are loaded if the plan does not name them.
const SIZE_BYTES: u64 = 1 << 30;

pub(super) fn point(plan: &Plan, config: &Config, restart: bool) -> Duration {
    let window = config.float("seconds").unwrap_or_default() + plan.ramp.as_secs_f64();
    let start = if restart { RESTART_S + BASELINE_S + plan.pause.as_secs_f64() } else { 0.0 };
    Duration::from_secs_f64(window + AROUND_LOAD_S + start)
}

/// All points, and each layout once.
pub(super) fn total(points: &[Planned]) -> Duration {
    let mut seen = BTreeSet::new();
    let layouts = points.iter().filter(|p| seen.insert(&p.point.layout)).map(|p| layout(&p.point.config));
    points.iter().map(|p| p.estimate).chain(layouts).sum()
}

/// Block files of all layouts, bytes; none where devices were named.
pub(super) fn disk_bytes(machine: &Machine, points: &[Planned]) -> u64 {
    if !machine.devices.is_empty() {
        return 0;
    }
    let mut seen = BTreeSet::new();
    let layouts = points.iter().filter(|p| seen.insert(&p.point.layout));
    layouts.map(|p| device_bytes(&p.point.config)).sum()
}

fn device_bytes(config: &Config) -> u64 {
    match is_durable(config) {
        true => {
            config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES) * config.number("osds").unwrap_or(1)
        }
        false => 0,
    }
}

fn layout(config: &Config) -> Duration {
    if !is_durable(config) {
        return Duration::from_secs_f64(RESTART_S);
    }
    let device = device_bytes(config);
    let copies = config.number("pool_size").unwrap_or(1);
    let data = config.number("size_bytes").unwrap_or(SIZE_BYTES) * copies;
    let filled = device * config.number("fill").unwrap_or(0) / 100;
    let aged = (data.max(filled) as f64) * config.float("age").unwrap_or(0.0);
    Duration::from_secs_f64(
        2.0 * RESTART_S + aged / AGE_BYTES_PER_S + (device + data + filled) as f64 / FILL_BYTES_PER_S,
    )
}
