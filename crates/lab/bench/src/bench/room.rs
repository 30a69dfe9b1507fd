//! Checks that the stores can hold what a load will write: a full OSD lets writes wait, and the load with them.

use anyhow::{Context, Result, bail};
use carmine_client::{Client, Options};
use carmine_load::hosted::Tool;
use carmine_load::{LoadSpec, Prefill, Rw, object_name, show_bytes};
use carmine_reactor::{Shard, block_on};
use carmine_testbed::{BedKind, Space, status, usage};
use carmine_types::counted;

use super::setup::Setup;
use crate::steering::controller;

/// Part of a store that Ceph's clients may fill, where no map says otherwise.
const FULL_RATIO: f64 = 0.95;

/// Part of that which `rados bench` may fill: PGs are not equally large.
const FILLED: f64 = 0.9;

/// Room in all OSDs together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Room {
    total_bytes: u64,
    used_bytes: u64,
    full_ratio: f64,
    replicas: u64,
}

/// Fails if the data of a load does not fit into the OSDs. `present` counts bytes of it that are there already, up to a number.
pub(super) fn check(setup: &Setup, present: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
    let Some(room) = Room::look(setup)? else { return Ok(()) };
    let all = written_bytes(&setup.spec, setup.args.client);
    // An OSD loads those objects that it leads.
    let bytes = if setup.args.in_process { all / u64::from(setup.plan.osds().max(1)) } else { all };
    room.check(&setup.spec, bytes, present)
}

/// Objects that each job of `rados bench` can write until the OSDs are nearly full; `None` if one of them does not answer.
pub(super) fn objects_of_each_job(setup: &Setup) -> Result<Option<u64>> {
    Ok(Room::look(setup)?.map(|room| room.objects(&setup.spec)))
}

impl Room {
    /// For each job, one at least; some room is left for objects in flight and for what the store keeps of them.
    fn objects(&self, spec: &LoadSpec) -> u64 {
        let free = (self.total_bytes as f64 * self.full_ratio * FILLED) as u64;
        let bytes = free.saturating_sub(self.used_bytes) / self.replicas / u64::from(spec.numjobs.max(1));
        (bytes / spec.object_size_bytes).max(1)
    }

    /// Asks the OSDs of a testbed; `None` if one of them does not answer. Of a peer only the size is known.
    fn look(setup: &Setup) -> Result<Option<Room>> {
        let plan = &setup.plan;
        // The number of copies of another pool is not known here; it is at least one.
        let replicas = if setup.args.pool == plan.pool.name { u64::from(plan.pool.size) } else { 1 };
        let room = Room { total_bytes: 0, used_bytes: 0, full_ratio: FULL_RATIO, replicas };
        if plan.peer.is_some() {
            return Ok(Some(Room { total_bytes: plan.capacity_bytes()?, ..room }));
        }
        let status = status(BedKind::Testbed, &setup.layout)?;
        let spaces: Option<Vec<Space>> = status.osds.iter().map(|osd| osd.space).collect();
        Ok(spaces.map(|spaces| Room {
            total_bytes: spaces.iter().map(|space| space.total_bytes).sum(),
            used_bytes: spaces.iter().map(|space| space.used_bytes).sum(),
            full_ratio: status.full_ratio.map_or(FULL_RATIO, f64::from),
            ..room
        }))
    }

    /// Refuses to write `bytes` if there is no room. `present` counts those that are there already, and need no more room when they are
    /// written again; it is asked to count up to a number, and only when that decides.
    ///
    /// # Errors
    /// They need more room than there is; both figures, and what can be done.
    fn check(&self, spec: &LoadSpec, bytes: u64, present: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
        let needed = bytes.saturating_mul(self.replicas);
        let limit = (self.total_bytes as f64 * self.full_ratio) as u64;
        let mut others = 0;
        if needed <= limit {
            let excess = self.used_bytes.saturating_add(needed).saturating_sub(limit);
            if excess == 0 || needed == 0 {
                return Ok(());
            }
            let there = present(excess.div_ceil(self.replicas))?.min(bytes).saturating_mul(self.replicas);
            if there >= excess {
                return Ok(());
            }
            others = self.used_bytes.saturating_sub(there);
        }
        let fits =
            limit.saturating_sub(others) / self.replicas / spec.object_size_bytes * spec.object_size_bytes;
        let smaller = match fits {
            0 => "remove other data".to_owned(),
            fits => format!("take a --size of {} at most", show_bytes(fits)),
        };
        let has_others = others > 0;
        let [needed, total, limit, others] =
            [needed, self.total_bytes, limit, others].map(|bytes| format!("{} MiB", bytes >> 20));
        let used = if has_others { format!(", and other data uses {others}") } else { String::new() };
        let (replicas, ratio) = (counted(self.replicas as usize, "replica"), self.full_ratio);
        bail!(usage!(
            "--size {}: with {replicas} the data needs {needed}, but the OSDs hold {total} ({limit} up to the full ratio \
             {ratio:.2}{used}): {smaller}, or make the testbed with a larger --osd-size (`carmine up`)",
            show_bytes(spec.size_bytes)
        ))
    }
}

/// Bytes of the data set that will be written, including those that exist already. The amount that `rados bench`
/// writes depends on its speed and is not known in advance: it counts as 0.
fn written_bytes(spec: &LoadSpec, tool: Tool) -> u64 {
    let all = spec.objects() * spec.object_size_bytes;
    let prefilled = match spec.prefill {
        Prefill::Never => false,
        Prefill::Always => true,
        Prefill::Auto => spec.rw != Rw::Write,
    };
    match tool {
        _ if spec.verify_only => 0,
        Tool::RadosBench if spec.rw.writes() => 0,
        _ if prefilled => all,
        _ if spec.rw.writes() => spec.io_bytes.map_or(all, |bytes| bytes.min(all)),
        _ => 0,
    }
}

/// Bytes of the load's own objects that are there, counted up to `enough`.
pub(super) fn present_bytes(setup: &Setup, enough: u64) -> Result<u64> {
    // Which objects an OSD has is not known, or the look for them would warm the caches: all may be there.
    if setup.args.in_process || setup.wants_cold() {
        return Ok(enough);
    }
    let spec = &setup.spec;
    block_on(controller(None), async |shard: Shard| {
        let client = Client::connect(&shard, &setup.access, Options::default()).await;
        let client = client.context("cannot reach the testbed")?;
        let pool = client.wait_pool(&setup.args.pool).await?;
        let mut there = 0;
        for object in 0..u32::try_from(spec.objects()).unwrap_or(u32::MAX) {
            match pool.stat(object_name(spec, object)).await {
                Ok(stat) => there += stat.size.min(spec.object_size_bytes),
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e).context("cannot look for the load's objects"),
            }
            let left = (spec.objects() - u64::from(object) - 1) * spec.object_size_bytes;
            if there >= enough || there + left < enough {
                break;
            }
        }
        client.shutdown();
        Ok(there)
    })
    .context("cannot start a reactor")?
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn room(used_bytes: u64, replicas: u64) -> Room {
        Room { total_bytes: GIB, used_bytes, full_ratio: 0.95, replicas }
    }

    fn load(size_bytes: u64) -> LoadSpec {
        LoadSpec { size_bytes, ..LoadSpec::default() }
    }

    fn check(room: Room, spec: &LoadSpec, present: u64) -> Result<(), String> {
        let bytes = written_bytes(spec, Tool::Carmine);
        room.check(spec, bytes, |_| Ok(present)).map_err(|e| e.to_string())
    }

    #[test]
    fn rados_bench_ends_before_the_osds_are_full() {
        let spec = LoadSpec { numjobs: 2, object_size_bytes: 4 << 20, ..LoadSpec::default() };
        let room = Room { total_bytes: 2 << 30, used_bytes: 256 << 20, full_ratio: 0.95, replicas: 1 };
        let bytes = 2 * room.objects(&spec) * spec.object_size_bytes;
        assert!((1 << 30..room.total_bytes * 95 / 100 - room.used_bytes).contains(&bytes), "{bytes}");
        assert_eq!(Room { replicas: 3, ..room }.objects(&spec), room.objects(&spec) / 3);
        assert_eq!(Room { used_bytes: 2 << 30, ..room }.objects(&spec), 1);
    }

    #[test]
    fn more_than_the_osds_hold_is_refused_with_both_figures() {
        let error = check(room(0, 1), &load(4 * GIB), 0).unwrap_err();
        for part in
            ["--size 4g", "1 replica ", "4096 MiB", "1024 MiB (972 MiB", "--size of 972m", "--osd-size"]
        {
            assert!(error.contains(part), "no {part} in: {error}");
        }
        assert_eq!(check(room(0, 1), &load(968 << 20), 0), Ok(()));
        let error = check(room(0, 3), &load(968 << 20), 0).unwrap_err();
        assert!(
            error.contains("3 replicas") && error.contains("2904 MiB") && error.contains("of 324m"),
            "{error}"
        );
    }

    #[test]
    fn what_is_there_already_needs_no_more_room() {
        let used = 600 << 20;
        assert_eq!(check(room(used, 1), &load(600 << 20), 600 << 20), Ok(()));
        let error = check(room(used, 1), &load(600 << 20), 0).unwrap_err();
        assert!(error.contains("other data uses 600 MiB") && error.contains("of 372m"), "{error}");
        assert!(check(room(used, 1), &load(960 << 20), 100 << 20).is_err());
        assert_eq!(check(room(used, 1), &load(960 << 20), 600 << 20), Ok(()));
        // The data of two copies takes twice its bytes.
        assert_eq!(check(room(used, 2), &load(300 << 20), 300 << 20), Ok(()));
        assert!(check(room(used, 2), &load(300 << 20), 100 << 20).is_err());
        assert!(check(room(GIB, 1), &load(8 << 20), 0).unwrap_err().contains("remove other data"));
    }

    #[test]
    fn only_what_will_be_written_counts() {
        let with = |change: fn(&mut LoadSpec)| {
            let mut spec = LoadSpec { rw: Rw::RandWrite, ..load(GIB) };
            change(&mut spec);
            spec
        };
        let bytes = |change| written_bytes(&with(change), Tool::FioRbd);
        assert_eq!(bytes(|_| ()), GIB);
        assert_eq!(bytes(|s| s.rw = Rw::Read), GIB);
        assert_eq!(bytes(|s| (s.rw, s.prefill) = (Rw::Read, Prefill::Never)), 0);
        assert_eq!(bytes(|s| (s.rw, s.io_bytes) = (Rw::Write, Some(8 << 20))), 8 << 20);
        assert_eq!(bytes(|s| (s.prefill, s.io_bytes) = (Prefill::Never, Some(4 * GIB))), GIB);
        assert_eq!(bytes(|s| s.verify_only = true), 0);
        assert_eq!(written_bytes(&with(|_| ()), Tool::RadosBench), 0);
        assert_eq!(check(room(GIB, 1), &with(|s| s.verify_only = true), 0), Ok(()));
    }
}
