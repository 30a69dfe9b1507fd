//! The generator of a point, and what it can't do.

use carmine_load::hosted::{self, Tool};
use carmine_load::{Arrivals, LoadSpec, Rw};

use super::load::{bs_bytes, iodepth, jobs, shape_of, size_bytes};
use crate::archive::Config;

/// Who makes the load of a point.
pub fn tool(config: &Config) -> Tool {
    match config.text("client") {
        Some("fio-rbd") => Tool::FioRbd,
        Some("fio-rados") => Tool::FioRados,
        Some("rados-bench") => Tool::RadosBench,
        _ => Tool::Carmine,
    }
}

/// True if a stock tool makes the load.
pub fn is_hosted(config: &Config) -> bool {
    tool(config) != Tool::Carmine
}

/// The load of a point in the generator's words; times and seed are not in it.
pub(super) fn load_spec(config: &Config) -> LoadSpec {
    let small = |axis: &str| config.number(axis).map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let workload = shape_of(config);
    let fixed = config.text("arrivals") == Some("fixed");
    LoadSpec {
        rw: workload.rw,
        rwmixread: workload.rwmixread,
        bs_bytes: bs_bytes(config),
        iodepth: u32::try_from(iodepth(config)).unwrap_or(u32::MAX),
        numjobs: u32::try_from(jobs(config)).unwrap_or(u32::MAX),
        size_bytes: size_bytes(config),
        rate_iops: config.float("rate_iops"),
        arrivals: if fixed { Arrivals::Fixed } else { Arrivals::Poisson },
        volumes: small("volumes"),
        processes: small("processes"),
        ..LoadSpec::default()
    }
}

/// What the load of a point asks that can't be done, before anything is started.
pub(crate) fn refusal(config: &Config) -> Option<String> {
    let follows = |axis: &str| config.number(axis).is_some_and(|n| n > 0).then_some(1.0);
    let spec = load_spec(config);
    let rate_iops = spec.rate_iops.or(follows("rate_percent")).or(follows("search_step"));
    let spec = LoadSpec { rate_iops, ..spec };
    let aged = LoadSpec {
        rw: Rw::RandWrite,
        io_bytes: config.number("age").filter(|rounds| *rounds > 0).map(|rounds| rounds * spec.size_bytes),
        rate_iops: None,
        ..spec.clone()
    };
    if config.text("cache") == Some("cold") && tool(config) == Tool::RadosBench && spec.rw.reads() {
        return Some("cache = cold: rados-bench reads only what it wrote itself, which warms the caches; take another client".into());
    }
    let check = |spec: &LoadSpec| spec.check().and_then(|()| hosted::check(tool(config), spec).map(drop));
    check(&spec).and_then(|()| check(&aged)).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(axes: &[(&str, u64)], client: &str, workload: &str) -> Option<String> {
        let mut config = Config::default();
        config.set("client", client);
        config.set("workload", workload);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        refusal(&config)
    }

    #[test]
    fn what_is_cold_was_not_just_written() {
        let mut config = Config::default();
        config.set("client", "rados-bench");
        config.set("cache", "cold");
        assert!(refusal(&config).unwrap().starts_with("cache = cold"));
        config.set("client", "fio-rados");
        assert_eq!(refusal(&config), None);
    }

    #[test]
    fn what_a_client_can_not_do_is_known_before() {
        assert_eq!(refused(&[("age", 2), ("jobs", 4), ("volumes", 2)], "fio-rbd", "randrw4k"), None);
        assert_eq!(refused(&[("rate_percent", 0)], "rados-bench", "randread4k"), None);
        for (axes, client, workload, part) in [
            (&[("age", 2)][..], "rados-bench", "randread4k", "--age"),
            (&[("rate_percent", 10)], "rados-bench", "randread4k", "--rate"),
            (&[], "rados-bench", "randrw4k", "--rw randrw"),
            (&[("jobs", 2), ("volumes", 2)], "fio-rados", "randread4k", "--volumes 2"),
            (&[("volumes", 2)], "fio-rbd", "randread4k", "raise --numjobs"),
            (&[("jobs", 2), ("processes", 2)], "own", "randread4k", "--processes 2"),
            (&[("jobs", 32), ("size_bytes", 64 << 20)], "own", "randread4k", "--numjobs 32"),
        ] {
            let why = refused(axes, client, workload).unwrap_or_default();
            assert!(why.contains(part), "{axes:?} {client}: {why}");
        }
    }
}
