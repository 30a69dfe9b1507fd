//! The fio and rados commands that do by hand what a point does.

use std::path::Path;
use std::time::Duration;

use carmine_load::LoadSpec;
use carmine_load::hosted::{Place, Tool, check, fio, rados};

use super::client::{load_spec, tool};
use super::load::{ramp_of, seconds};
use super::step::shell_line;
use crate::archive::Point;

/// Pool of every testbed and peer.
const POOL: &str = "bench";

/// Commands of fio and of `rados bench` for the load of a point, against the layout while its OSDs run: what writes the data,
/// then the load itself, as `carmine bench --client` would run them. A point that loads rbd images has those, all others
/// have objects. What `rados bench` can't do has no command of it.
pub fn by_hand(layout: &Path, point: &Point, ramp: Duration, seed: u64) -> Vec<String> {
    let spec = LoadSpec {
        runtime_ms: (seconds(&point.config) * 1e3) as u64,
        ramp_ms: ramp_of(&point.config, ramp).as_millis() as u64,
        seed,
        ..load_spec(&point.config)
    };
    let place = Place { conf: layout.join("ceph.conf").display().to_string(), pool: POOL.to_owned() };
    let engine = if tool(&point.config) == Tool::FioRbd { Tool::FioRbd } else { Tool::FioRados };
    let mut lines = Vec::new();
    if engine == Tool::FioRbd {
        let images = (0..spec.volumes.max(1)).map(|volume| fio::create_image(&spec, &place, volume));
        lines.extend(images.map(|args| line(&["rbd", "-c", &place.conf], args)));
    }
    // fio's engine rbd takes the configuration from the environment only.
    let conf = format!("CEPH_CONF={}", place.conf);
    let fio_line = |args| line(&["env", &conf, "fio"], args);
    let output = |what: &str| format!("{}.{what}.json", point.stem);
    lines.push(fio_line(fio::prefill_arguments(engine, &spec, &place, &output("fio-prefill"))));
    for process in 0..spec.processes.max(1) {
        let output = output(&format!("fio{process}"));
        lines.push(fio_line(fio::arguments(engine, &spec, &place, &output, process)));
    }
    if check(Tool::RadosBench, &LoadSpec { volumes: 1, processes: 1, ..spec.clone() }).is_ok() {
        for job in 0..spec.numjobs {
            if !spec.rw.writes() {
                lines.push(line(&["rados"], rados::prefill_arguments(&spec, &place, job)));
            }
            lines.push(line(&["rados"], rados::arguments(&spec, &place, job, spec.runtime_ms)));
        }
    }
    lines
}

fn line(head: &[&str], args: Vec<String>) -> String {
    let words: Vec<String> = head.iter().map(|word| (*word).to_owned()).chain(args).collect();
    shell_line(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Config, PointKind};

    fn lines(axes: &[(&str, u64)], client: &str, workload: &str) -> Vec<String> {
        let mut config = Config::default();
        config.set("workload", workload);
        config.set("client", client);
        config.set("size_bytes", 64_u64 << 20);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        let point = Point {
            index: 0,
            stem: "a_point".into(),
            kind: PointKind::Point,
            arm: None,
            curve: None,
            repeat: 0,
            pair: None,
            layout: "l".into(),
            config,
        };
        by_hand(Path::new("/l"), &point, Duration::from_millis(500), 7)
    }

    #[test]
    fn a_point_of_objects_has_them_written_before_they_are_read() {
        let lines = lines(&[("iodepth", 16), ("jobs", 2)], "own", "randread4k");
        let [prefill, load, rados @ ..] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(prefill.contains("--ioengine=rados") && prefill.contains("--rw=write"), "{prefill}");
        for part in [
            "fio --output-format",
            "a_point.fio0.json",
            "--rw=randread",
            "--iodepth=16",
            "--numjobs=2",
            "--ramp_time=500ms",
            "--randseed=7",
        ] {
            assert!(load.contains(part), "no {part} in {load}");
        }
        assert_eq!(rados.len(), 4, "each job writes what it reads: {rados:?}");
        assert!(rados[1].starts_with("rados -c /l/ceph.conf -p bench bench 10 rand -t 16"), "{}", rados[1]);
    }

    #[test]
    fn a_point_of_images_has_the_engine_and_the_images() {
        let axes = [("volumes", 2), ("jobs", 4), ("processes", 2)];
        let lines = lines(&axes, "fio-rbd", "randrw4k");
        assert_eq!(lines.len(), 2 + 1 + 2, "two images, one prefill, two processes, no rados: {lines:?}");
        let create = "rbd -c /l/ceph.conf create --size 32M --image-feature layering bench/carmine-32m";
        assert_eq!(lines[..2], [create.to_owned(), format!("{create}-1")]);
        for line in &lines[2..] {
            assert!(line.starts_with("env CEPH_CONF=/l/ceph.conf fio "), "{line}");
            assert!(line.contains("--ioengine=rbd") && !line.contains("rados"), "{line}");
        }
        assert!(lines[3].contains("--rbdname=carmine-32m ") && !lines[3].contains("--rbdname=carmine-32m-1"));
        assert!(lines[4].contains("--rbdname=carmine-32m-1"), "{}", lines[4]);
    }

    #[test]
    fn a_rate_is_a_rate() {
        let lines = lines(&[("rate_iops", 1200), ("jobs", 2)], "own", "randwrite4k");
        assert!(lines[1].contains("--rate_iops=600 --rate_process=poisson"), "{}", lines[1]);
        assert!(!lines.iter().any(|line| line.starts_with("rados")), "it has no rate: {lines:?}");
    }
}
