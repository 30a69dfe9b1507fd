//! What each CPU did, from `/proc/stat`.

use std::collections::BTreeMap;

use carmine_load::samples::CpuSamples;

/// Ticks of one CPU since boot: user (with nice), system, irq, softirq, steal, idle (with iowait).
type Ticks = [u64; 6];

/// Ticks of every CPU.
pub(super) fn parse(stat: &str) -> BTreeMap<u32, Ticks> {
    stat.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(u32, Ticks)> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    // The line `cpu` without a number is the sum of all.
    let cpu =
        line.as_bytes().get(3).filter(|b| b.is_ascii_digit()).and_then(|_| fields.next()?.parse().ok())?;
    let at: Vec<u64> = fields.filter_map(|f| f.parse().ok()).collect();
    let at = |n: usize| at.get(n).copied().unwrap_or(0);
    // user nice system idle iowait irq softirq steal
    Some((cpu, [at(0) + at(1), at(2), at(5), at(6), at(7), at(3) + at(4)]))
}

/// Appends one sample for each CPU.
pub(super) fn push(series: &mut Vec<CpuSamples>, before: &BTreeMap<u32, Ticks>, now: &BTreeMap<u32, Ticks>) {
    for (cpu, ticks) in now {
        let parts = before.get(cpu).map(|old| parts(old, ticks)).unwrap_or_default();
        let at = match series.iter().position(|s| s.cpu == *cpu) {
            Some(at) => at,
            None => {
                series.push(CpuSamples { cpu: *cpu, ..CpuSamples::default() });
                series.len() - 1
            }
        };
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
