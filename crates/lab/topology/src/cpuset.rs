//! Cpusets: each OSD has so many CPUs and no others. Its reactors take the first of them and its aliens the rest; with
//! fewer CPUs than reactors the reactors share them.

use crate::{CpuList, PlanError, PlanRequest, Strategy};

/// CPUs that each OSD takes.
pub(crate) fn seats_each(request: &PlanRequest) -> usize {
    request.cpus_per_osd.unwrap_or(request.reactors)
}

/// Refuses a cpuset that `pool` cannot give, or that makes reactors share CPUs unasked.
pub(crate) fn check(request: &PlanRequest, pool: &CpuList) -> Result<(), PlanError> {
    let Some(each) = request.cpus_per_osd else { return Ok(()) };
    if each == 0 {
        return Err(PlanError::Zero { what: "--confine-cpus" });
    }
    if request.alien_cpus.is_some() {
        return Err(PlanError::AliensConfined);
    }
    if request.strategy == Strategy::None {
        return Err(PlanError::UnpinnedConfined);
    }
    if each > pool.len() {
        return Err(PlanError::CpusetTooLarge { each, have: pool.len(), cpus: pool.clone() });
    }
    let need = request.osds.saturating_mul(each);
    if !request.overprovisioned && need > pool.len() {
        let (osds, have, cpus) = (request.osds, pool.len(), pool.clone());
        return Err(PlanError::CpusetsTooMany { osds, each, need, have, cpus });
    }
    if !request.overprovisioned && request.reactors > each {
        return Err(PlanError::CpusetTooSmall { reactors: request.reactors, each });
    }
    Ok(())
}

/// Replaces CPUs that an OSD was dealt twice, which happens where CPUs are shared: a cpuset of N has N CPUs.
pub(crate) fn distinct(dealt: Vec<Vec<usize>>, pool: &CpuList) -> Vec<Vec<usize>> {
    let mut uses: Vec<(usize, usize)> = pool.iter().map(|cpu| (0, cpu)).collect();
    let mut result = Vec::with_capacity(dealt.len());
    for seats in dealt {
        let mut own: Vec<usize> = Vec::with_capacity(seats.len());
        for seat in seats {
            if own.contains(&seat) {
                let others = uses.iter().filter(|(_, cpu)| !own.contains(cpu));
                own.extend(others.min().map(|(_, cpu)| *cpu));
            } else {
                own.push(seat);
            }
        }
        uses.iter_mut().filter(|(_, cpu)| own.contains(cpu)).for_each(|(count, _)| *count += 1);
        result.push(own);
    }
    result
}

/// The CPU of each reactor out of an OSD's seats.
pub(crate) fn reactors(seats: &[usize], count: usize) -> Vec<usize> {
    seats.iter().copied().cycle().take(count).collect()
}

/// The CPUs of an OSD's aliens out of its seats; empty if the reactors have them all.
pub(crate) fn aliens(seats: &[usize], reactors: usize) -> CpuList {
    seats.iter().skip(reactors).copied().collect()
}
