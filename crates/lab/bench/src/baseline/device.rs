//! The raw device: the load's operations through reactors on an OSD's CPUs, straight to the drive under its store.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use crate::sample::device_of;
use anyhow::Context;
use carmine_load::baseline::RawFigures;
use carmine_load::{DeviceTarget, Geometry, LoadSpec, Prefill, run_job};
use carmine_reactor::PollPolicy;
use carmine_testbed::{Layout, Plan};
use carmine_types::{FlushMode, OsdId};

use super::raw_config;
use crate::raw::{Measured, run};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::drive::facts;
use carmine_testbed::output::note;

/// Direct I/O goes in whole blocks of this.
const BLOCK_BYTES: u64 = 4096;

/// The file or device that is read and written instead of the store.
struct RawDevice {
    path: PathBuf,
    /// A file of our own, removed at the end; devices are only read.
    scratch: bool,
    drive: String,
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        if self.scratch {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Measures the drive of OSD 0; `None` (and a note) where the load would have to write to a device.
pub(super) fn measure(
    layout: &Layout,
    plan: &Plan,
    spec: &LoadSpec,
    cancel: &AtomicBool,
) -> anyhow::Result<Option<RawFigures>> {
    if !spec.bs_bytes.is_multiple_of(BLOCK_BYTES) {
        anyhow::bail!(Usage(format!(
            "--bs {}: a device is read past the page cache, in multiples of {BLOCK_BYTES} bytes",
            spec.bs_bytes
        )));
    }
    if !plan.devices.is_empty() && spec.rw.writes() {
        note("the OSDs have devices of their own, which are only read: no baseline of writes");
        return Ok(None);
    }
    let place = place(layout, plan)?;
    let store = facts::of(layout, plan, OsdId(0));
    let mode = store.filter(|_| spec.rw.writes()).map_or(FlushMode::None, |store| store.flush_mode);
    let cpus = plan.grid.osds.first().map(|osd| osd.reactor_cpus()).unwrap_or_default();
    let load = dealt(spec, cpus.len() as u32, place.scratch);
    let poll: PollPolicy = plan.poll.parse().map_err(|e| Usage(format!("poll policy of the plan: {e}")))?;
    let (path, writable, object_bytes) = (place.path.clone(), place.scratch, spec.object_size_bytes);
    let measured = run(&load, &cpus, raw_config(poll), cancel, &mut || Ok(()), move |shard, setup| {
        let path = path.clone();
        async move {
            match DeviceTarget::open(&shard, &path, object_bytes, writable, mode).await {
                Ok(target) => {
                    let geometry = Geometry::dealt(setup.spec(), setup.job());
                    run_job(&shard, Rc::new(target), geometry, setup).await;
                }
                Err(error) => setup.abort(&error.to_string()),
            }
        }
    })
    .with_context(|| format!("raw device ({})", place.path.display()))?;
    Ok(Some(figures(spec, &measured, mode, &place.drive)))
}

/// As many jobs as the OSD has reactors, if the depth can be dealt evenly.
fn dealt(spec: &LoadSpec, reactors: u32, scratch: bool) -> LoadSpec {
    let jobs = (1..=reactors.max(1)).rev().find(|jobs| spec.iodepth.is_multiple_of(*jobs)).unwrap_or(1);
    // A file that was never written would be read without touching the drive.
    let prefill = if scratch { Prefill::Always } else { Prefill::Never };
    LoadSpec { numjobs: jobs, iodepth: spec.iodepth / jobs, prefill, ..spec.clone() }
}

fn place(layout: &Layout, plan: &Plan) -> anyhow::Result<RawDevice> {
    let name = |path: &Path| device_of(path).unwrap_or_else(|| "unknown drive".into());
    if let Some(device) = plan.devices.first() {
        return Ok(RawDevice {
            path: device.clone(),
            scratch: false,
            drive: format!("{}, the device itself, only read", name(device)),
        });
    }
    let folder = layout.osd_dir(OsdId(0));
    let path = folder.join(format!("baseline-scratch.{}", std::process::id()));
    let drive = format!("{}, scratch file", name(&folder));
    std::fs::File::create_new(&path)
        .with_context(|| format!("cannot make the scratch file {}", path.display()))?;
    Ok(RawDevice { path, scratch: true, drive })
}

/// The figures of a raw load, both directions together.
pub(super) fn figures(spec: &LoadSpec, measured: &Measured, mode: FlushMode, drive: &str) -> RawFigures {
    let result = &measured.result;
    let mut latency = result.read.latency_ns.clone();
    latency.merge(&result.write.latency_ns);
    let seconds = measured.seconds.max(1e-9);
    RawFigures {
        iops: result.ops() as f64 / seconds,
        bw_bytes: (result.read.bytes + result.write.bytes) as f64 / seconds,
        mean_ns: latency.mean(),
        p99_ns: latency.percentile(99.0),
        bs_bytes: spec.bs_bytes,
        iodepth: spec.iodepth,
        rw: spec.rw,
        flush_mode: mode.to_string(),
        drive: drive.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_dealt_to_the_reactors_or_kept_on_fewer() {
        for (depth, reactors, want) in [(16, 2, (2, 8)), (1, 4, (1, 1)), (9, 2, (1, 9)), (6, 4, (3, 2))] {
            let spec = LoadSpec { iodepth: depth, ..LoadSpec::default() };
            let load = dealt(&spec, reactors, true);
            assert_eq!((load.numjobs, load.iodepth), want);
            assert_eq!(load.depth_total(), spec.depth_total());
        }
    }
}
