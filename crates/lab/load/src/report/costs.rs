//! What an operation cost: CPU time of the machine, hops, bytes of devices and of the network.

use super::{ratio, seconds};
use crate::result::JobResult;
use crate::spec::LoadSpec;
use crate::window::{MachineWindow, Window};

/// Busy time of all CPUs less the idle baseline, the generator, the controller and the monitor. It has the OSDs' own CPU
/// time in it: less than most of that means that the baseline did not hold, and the figure is worth nothing.
pub(super) fn machine_seconds(machine: &MachineWindow, wall: f64, osds: f64) -> Option<f64> {
    let others = machine.idle_baseline_cores * wall + seconds(machine.generator_ns) + seconds(machine.mon_ns);
    let left = seconds(machine.busy_ns) - others;
    (left >= 0.9 * osds).then_some(left)
}

pub(super) fn hops_per_op(window: &Window, ops: f64) -> Option<f64> {
    let counted: Option<Vec<u64>> = window.osds.iter().map(|o| o.hopped_ops).collect();
    let hops: u64 = match counted {
        Some(hopped) => hopped.iter().sum(),
        None => window.osds.iter().flat_map(|o| &o.reactors).map(|r| r.hops).sum(),
    };
    ratio(hops as f64, ops)
}

/// The store's own count, or else the kernel's bytes in blocks of the load.
pub(super) fn device_reads(spec: &LoadSpec, window: &Window) -> Option<f64> {
    if !spec.rw.reads() || window.osds.is_empty() {
        return None;
    }
    let counted: Option<Vec<u64>> = window.osds.iter().map(|o| o.device_reads).collect();
    match counted {
        Some(reads) => Some(reads.iter().sum::<u64>() as f64),
        None => {
            let bytes: u64 = window.osds.iter().map(|o| o.process.device_read_bytes).sum();
            ratio(bytes as f64, spec.bs_bytes as f64)
        }
    }
}

/// Bytes that OSDs moved to and from block devices, by the kernel's count, per client byte.
pub(super) fn device_bytes_per_client_byte(window: &Window, result: &JobResult) -> Option<f64> {
    let bytes =
        window.osds.iter().map(|o| o.process.device_read_bytes + o.process.device_write_bytes).sum::<u64>();
    ratio(bytes as f64, client_bytes(result)).filter(|_| !window.osds.is_empty())
}

/// Bytes of messages, by the messengers' count, per client byte.
pub(super) fn wire_bytes_per_client_byte(window: &Window, result: &JobResult) -> Option<f64> {
    let counted: Option<Vec<u64>> = window.osds.iter().map(|o| o.wire_bytes).collect();
    let bytes: u64 = counted.filter(|c| !c.is_empty())?.iter().sum();
    ratio(bytes as f64, client_bytes(result))
}

fn client_bytes(result: &JobResult) -> f64 {
    (result.read.bytes + result.write.bytes) as f64
}
