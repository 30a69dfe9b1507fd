//! What each CPU did, from `/proc/stat`.

use std::collections::BTreeMap;

use carmine_load::samples::CpuSamples;

use crate::sample::machine::Ticks;

/// Appends one sample for each CPU.
pub(super) fn push(series: &mut Vec<CpuSamples>, before: &BTreeMap<u32, Ticks>, now: &BTreeMap<u32, Ticks>) {
    for (cpu, ticks) in now {
        let parts = before.get(cpu).map(|old| parts(old, ticks)).unwrap_or_default();
        let at = series.iter().position(|s| s.cpu == *cpu).unwrap_or_else(|| {
            series.push(CpuSamples { cpu: *cpu, ..CpuSamples::default() });
            series.len() - 1
        });
        let Some(one) = series.get_mut(at) else { continue };
        let rows =
            [&mut one.user, &mut one.system, &mut one.irq, &mut one.softirq, &mut one.steal, &mut one.idle];
        rows.into_iter().zip(parts).for_each(|(row, part)| row.push(part));
    }
}

fn parts(before: &Ticks, now: &Ticks) -> [Option<f64>; 6] {
    let spent: Vec<u64> = now.iter().zip(before).map(|(now, old)| now.saturating_sub(*old)).collect();
    let all: u64 = spent.iter().sum();
    let part = |n: usize| spent.get(n).filter(|_| all > 0).map(|ticks| *ticks as f64 / all as f64);
    [part(0), part(1), part(2), part(3), part(4), part(5)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::machine::ticks as parse;

    #[test]
    fn parts_of_a_cpu_sum_to_one() {
        let before = parse("cpu  1 1 1 1\ncpu0 10 0 10 10 0 0 0 0 0 0\nintr 1\n");
        let now = parse("cpu  1 1 1 1\ncpu0 30 10 30 40 10 3 5 2 0 0\nintr 1\n");
        let mut series = Vec::new();
        push(&mut series, &before, &now);
        let one = &series[0];
        let all = [&one.user, &one.system, &one.irq, &one.softirq, &one.steal, &one.idle];
        let parts: Vec<f64> = all.iter().map(|row| row[0].unwrap()).collect();
        assert_eq!(parts, [0.3, 0.2, 0.03, 0.05, 0.02, 0.4]);
        push(&mut series, &now, &now);
        assert_eq!(series[0].user, [Some(0.3), None]);
    }
}
