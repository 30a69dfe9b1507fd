//! `--fill` and `--age`: the stores of a comparison are equally full and equally worn.

use carmine_load::{LoadSpec, Rw};
use carmine_testbed::Plan;

use carmine_testbed::TestbedError::Usage;

/// Most rounds of overwriting: a typing error would take days.
const AGE_MAX: f64 = 1000.0;

/// Makes `spec` cover `fill_percent` of what the pool can hold, and write `age_rounds` times what it covers.
pub(super) fn apply(
    spec: &mut LoadSpec,
    plan: &Plan,
    fill_percent: Option<u8>,
    age_rounds: Option<f64>,
) -> anyhow::Result<()> {
    if let Some(percent) = fill_percent {
        let part = plan.capacity_bytes()? / u64::from(plan.pool.size) / 100 * u64::from(percent);
        spec.size_bytes = part / spec.object_size_bytes.max(1) * spec.object_size_bytes;
    }
    if let Some(rounds) = age_rounds {
        if !(rounds > 0.0 && rounds <= AGE_MAX) {
            return Err(
                Usage(format!("--age {rounds}: take a number of rounds above 0, up to {AGE_MAX}")).into()
            );
        }
        spec.rw = Rw::RandWrite;
        spec.io_bytes = Some((spec.size_bytes as f64 * rounds) as u64 / spec.bs_bytes.max(1) * spec.bs_bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    fn applied(fill: Option<u8>, age: Option<f64>) -> anyhow::Result<LoadSpec> {
        let wish =
            Wish { osds: Some(3), osd_size_bytes: Some(1 << 30), pool_size: Some(2), ..Wish::default() };
        let plan = Plan::new(&wish, &Topology::from_short("1x8x1").unwrap(), "f").unwrap();
        let mut spec = LoadSpec::default();
        apply(&mut spec, &plan, fill, age)?;
        Ok(spec)
    }

    #[test]
    fn parts_of_the_capacity_in_whole_objects() {
        let spec = applied(Some(80), None).unwrap();
        // 3 GiB hold 1.5 GiB twice; 80 % of that, in objects of 4 MiB.
        assert_eq!(spec.size_bytes, 307 * (4 << 20));
        assert_eq!((spec.io_bytes, spec.rw), (None, Rw::Read));
        assert_eq!(applied(None, None).unwrap(), LoadSpec::default());
    }

    #[test]
    fn rounds_of_overwriting() {
        let spec = applied(Some(10), Some(2.5)).unwrap();
        assert_eq!((spec.rw, spec.io_bytes), (Rw::RandWrite, Some(spec.size_bytes / 2 * 5)));
        for bad in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(applied(None, Some(bad)).unwrap_err().to_string().contains("--age"));
        }
    }
}
