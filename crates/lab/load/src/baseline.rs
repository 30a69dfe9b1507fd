//! Raw baselines: what the device and the messenger do without an OSD, measured by `carmine baseline` in the same minutes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::origin::{Origin, OsdDrive};
use crate::spec::{LoadSpec, Rw};

/// The file of `carmine baseline --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// One drive; `None` for stores that keep nothing on a device.
    pub device: Option<RawFigures>,
    /// One pair of reactors; `None` if it was not asked for.
    pub messenger: Option<RawFigures>,
    /// Build, machine, time, and the drive of OSD 0.
    pub origin: Origin,
}

/// A raw load: of a drive through the reactor, or of messages of the load's size, echoed through `carmine-messenger`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RawFigures {
    pub iops: f64,
    pub bw_bytes: f64,
    pub mean_ns: f64,
    pub p99_ns: u64,
    pub bs_bytes: u64,
    /// Requests in flight, of all jobs together.
    pub iodepth: u32,
    pub rw: Rw,
    /// Percentage of reads in `randrw`.
    pub rwmixread: u8,
    /// The same at other depths: a drive's limit is what it does at the best of them. Empty if that was not measured.
    pub other_depths: Vec<AtDepth>,
    /// Part of the windows for which a thread of the raw load was without a CPU, in the worst of them.
    pub waited: f64,
    /// Time of the measurement, seconds since 1970.
    pub unix_s: u64,
    /// How writes became durable; as [`crate::report::Setting::flush_mode`]. Of messages: `none`.
    pub flush_mode: String,
    /// Block device that was measured, and how: `vda, scratch file`; or which connection.
    pub drive: String,
}

/// Requests per second at a depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtDepth {
    pub iodepth: u32,
    pub iops: f64,
    /// Time of the measurement, seconds since 1970.
    pub unix_s: u64,
}

/// A load as percentages of its baselines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Percentages {
    /// Of what the drives do at the depth at which they do most.
    pub device_limit: Option<f64>,
    /// Of what they do at the load's depth.
    pub device: Option<f64>,
    pub messenger: Option<f64>,
    /// Why a baseline that was given says nothing about this load.
    pub refused: Vec<String>,
}

/// The load's figures, in the units of the baselines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Achieved {
    /// Client operations per second.
    pub iops: f64,
    /// Operations per second of all OSDs: writes count once for each replica.
    pub osd_iops: f64,
    /// Distinct drives under the stores.
    pub drives: u32,
    /// Pairs of reactors that can exchange messages side by side: the smaller of generator threads and reactors. 0 when the
    /// load used no sockets.
    pub pairs: u32,
}

/// A raw load whose threads lacked a CPU for this part of the window measured the CPUs.
pub const WAITED_MAX: f64 = 0.1;

impl RawFigures {
    /// All depths that were measured.
    pub fn depths(&self) -> impl Iterator<Item = AtDepth> {
        let own = AtDepth { iodepth: self.iodepth, iops: self.iops, unix_s: self.unix_s };
        std::iter::once(own).chain(self.other_depths.iter().copied())
    }
}

/// Seconds after which a baseline says nothing about a load: the machine may have other neighbours, and the drive may be fuller.
const AGE_MAX_S: u64 = 24 * 3_600;
/// Seconds after which a result remarks how old its baseline is.
const AGED_S: u64 = 3_600;

impl Baseline {
    /// Reads the file of `carmine baseline --json`.
    ///
    /// # Errors
    /// The actual kind of the text.
    pub fn parse(text: &str) -> Result<Baseline, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON ({e})"))?;
        let has = |name: &str| !value[name].is_null();
        let what = match &value {
            _ if has("jobs") && has("carmine") => "a result of `carmine bench --json`",
            _ if has("jobs") && has("fio version") => "a result of fio",
            // Every field has a default, so any object would be read as one without figures.
            Value::Object(map)
                if map.keys().all(|key| ["device", "messenger", "origin"].contains(&key.as_str()))
                    && (has("device") || has("messenger"))
                    && ["device", "messenger"]
                        .iter()
                        .all(|raw| !has(raw) || value[raw]["iops"].is_number()) =>
            {
                return serde_json::from_value(value).map_err(|e| format!("a damaged baseline ({e})"));
            }
            _ => "JSON without raw figures",
        };
        Err(what.to_owned())
    }

    /// Seconds from the oldest of its measurements to a load; `None` if either time is not known.
    pub fn age_s(&self, load: &Origin) -> Option<u64> {
        let raw = self.device.iter().chain(&self.messenger);
        let oldest = raw.flat_map(RawFigures::depths).map(|at| at.unix_s).min()?;
        (oldest > 0 && load.is_known()).then(|| load.started_unix_s.saturating_sub(oldest))
    }

    /// The mark of a result whose baseline is old.
    pub fn aged(&self, load: &Origin) -> Option<String> {
        let age_s = self.age_s(load).filter(|age_s| *age_s > AGED_S)?;
        Some(format!("AGED: the raw baseline was measured {:.1} h before the load", age_s as f64 / 3_600.0))
    }

    /// Why it says nothing about loads of this machine, these drives and this day.
    fn is_foreign_to(&self, load: &Origin) -> Option<String> {
        let own = &self.origin;
        if !load.is_known() {
            return None;
        }
        if !own.is_known() {
            return Some("the baseline does not say where it was measured: measure it again".to_owned());
        }
        if own.host != load.host {
            return Some(format!("the baseline was measured on {}, the load on {}", own.host, load.host));
        }
        let is_same = |a: &OsdDrive, b: &OsdDrive| (&a.name, &a.model) == (&b.name, &b.model);
        if own.drives.iter().any(|drive| !load.drives.iter().any(|of_load| is_same(drive, of_load))) {
            let (raw, loaded) = (own.drive_names(), load.drive_names());
            return Some(format!("the baseline is of {raw}, and the load's drives are {loaded}"));
        }
        let age_s = self.age_s(load).filter(|age_s| *age_s > AGE_MAX_S)?;
        Some(format!("the baseline was measured {:.1} days before the load", age_s as f64 / 86_400.0))
    }

    /// Compares a load with its baselines. A baseline of another machine, drive or day is refused, one of another block size,
    /// direction, mix or flush mode, and one that was measured without CPUs; for the messenger, and for the drive at the load's
    /// depth, also one of another depth.
    pub fn percentages(
        &self,
        load: &LoadSpec,
        origin: &Origin,
        flush_mode: &str,
        achieved: &Achieved,
    ) -> Percentages {
        if let Some(why) = self.is_foreign_to(origin) {
            return Percentages { refused: vec![why], ..Percentages::default() };
        }
        let mut refused = Vec::new();
        let is_mixed = load.rw == Rw::RandRw;
        let mut is_usable = |what: &str, raw: &RawFigures, is_device: bool| {
            let is_flush = !load.rw.writes() || raw.flush_mode == flush_mode;
            let same = [
                (load.jobfile.is_none(), "load (this is a job file)"),
                (load.bssplit.is_none() && raw.bs_bytes == load.bs_bytes, "block size"),
                (is_device || u64::from(raw.iodepth) == load.depth_total(), "depth"),
                (!is_device || raw.rw == load.rw, "direction"),
                (!is_device || !is_mixed || raw.rwmixread == load.rwmixread, "mix"),
                (!is_device || is_flush, "flush mode"),
            ];
            let other: Vec<&str> = same.into_iter().filter(|(same, _)| !same).map(|(_, name)| name).collect();
            if !other.is_empty() {
                refused.push(format!("the {what}'s baseline has another {}", other.join(", ")));
            } else if raw.waited >= WAITED_MAX {
                let percent = raw.waited * 100.0;
                refused
                    .push(format!("the {what}'s baseline was without a CPU for {percent:.0} % of its time"));
            }
            other.is_empty() && raw.waited < WAITED_MAX
        };
        let Achieved { iops, osd_iops, drives, pairs } = *achieved;
        let percent = |iops: f64, raw_iops: f64, times: u32| {
            let whole = raw_iops * f64::from(times);
            (whole > 0.0 && iops.is_finite()).then(|| iops / whole * 100.0)
        };
        let device = self.device.as_ref().filter(|raw| is_usable("device", raw, true));
        // A limit shows only where more than one depth was measured.
        let best = |raw: &RawFigures| raw.depths().map(|at| at.iops).fold(0.0, f64::max);
        let several = device.filter(|raw| !raw.other_depths.is_empty());
        let device_limit = several.and_then(|raw| percent(osd_iops, best(raw), drives));
        let same_depth =
            device.and_then(|raw| raw.depths().find(|at| u64::from(at.iodepth) == load.depth_total()));
        let device = same_depth.and_then(|at| percent(osd_iops, at.iops, drives));
        let messenger = self.messenger.as_ref().filter(|raw| pairs > 0 && is_usable("messenger", raw, false));
        let messenger = messenger.and_then(|raw| percent(iops, raw.iops, pairs));
        Percentages { device_limit, device, messenger, refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        Baseline {
            device: Some(RawFigures {
                iops: 10_000.0,
                bw_bytes: 40_960_000.0,
                mean_ns: 1e5,
                p99_ns: 200_000,
                bs_bytes: 4096,
                iodepth: 16,
                rw: Rw::RandWrite,
                rwmixread: 50,
                other_depths: vec![AtDepth { iodepth: 64, iops: 40_000.0, unix_s: 1 }],
                waited: 0.0,
                unix_s: 2,
                flush_mode: "flush".into(),
                drive: "vda, scratch file".into(),
            }),
            messenger: Some(RawFigures {
                iops: 50_000.0,
                bw_bytes: 2e8,
                mean_ns: 2e4,
                p99_ns: 60_000,
                bs_bytes: 4096,
                iodepth: 16,
                unix_s: 3,
                ..RawFigures::default()
            }),
            origin: origin("box", "vda", 2),
        }
    }

    fn origin(host: &str, drive: &str, started_unix_s: u64) -> Origin {
        let drive = OsdDrive { name: drive.into(), ..OsdDrive::default() };
        let here = Origin::here("0.1.0", "abc", host.into(), "6.1".into(), started_unix_s);
        Origin { drives: vec![drive], ..here }
    }

    /// Of a load in the same minute on the same machine.
    fn here() -> Origin {
        origin("box", "vda", 60)
    }

    #[test]
    fn replicas_count_against_the_drives_and_clients_against_the_messenger() {
        let load = LoadSpec { rw: Rw::RandWrite, iodepth: 16, ..LoadSpec::default() };
        let achieved = Achieved { iops: 5_000.0, osd_iops: 15_000.0, drives: 3, pairs: 2 };
        let got = baseline().percentages(&load, &here(), "flush", &achieved);
        let want = Percentages {
            device_limit: Some(12.5),
            device: Some(50.0),
            messenger: Some(5.0),
            refused: vec![],
        };
        assert_eq!(got, want);
    }

    #[test]
    fn a_drives_limit_is_what_it_does_at_its_best_depth() {
        let load = LoadSpec { rw: Rw::RandWrite, iodepth: 2, ..LoadSpec::default() };
        let achieved = Achieved { iops: 30_000.0, osd_iops: 30_000.0, drives: 1, pairs: 0 };
        let mut baseline = baseline();
        let got =
            |baseline: &Baseline, load: &LoadSpec| baseline.percentages(load, &here(), "flush", &achieved);
        assert_eq!((got(&baseline, &load).device_limit, got(&baseline, &load).device), (Some(75.0), None));
        let mixed = LoadSpec { rw: Rw::RandRw, rwmixread: 70, ..load.clone() };
        let device = baseline.device.as_mut().unwrap();
        device.rw = Rw::RandRw;
        let refused = got(&baseline, &mixed);
        assert!(refused.device_limit.is_none() && refused.refused[0].contains("mix"), "{refused:?}");
        let device = baseline.device.as_mut().unwrap();
        (device.rw, device.waited) = (Rw::RandWrite, 0.4);
        let refused = got(&baseline, &load);
        assert!(refused.device_limit.is_none() && refused.refused[0].contains("40 %"), "{refused:?}");
        let device = baseline.device.as_mut().unwrap();
        (device.waited, device.other_depths) = (0.0, Vec::new());
        let deep = LoadSpec { iodepth: 16, ..load };
        assert_eq!((got(&baseline, &deep).device_limit, got(&baseline, &deep).device), (None, Some(300.0)));
    }

    #[test]
    fn a_baseline_of_another_load_says_nothing() {
        let load = LoadSpec { rw: Rw::RandRead, iodepth: 8, ..LoadSpec::default() };
        let achieved = Achieved { iops: 5_000.0, osd_iops: 5_000.0, drives: 1, pairs: 1 };
        let got = baseline().percentages(&load, &here(), "flush", &achieved);
        assert_eq!((got.device, got.messenger), (None, None));
        assert!(got.refused[0].contains("direction") && got.refused[1].contains("depth"), "{got:?}");
        let write = LoadSpec { rw: Rw::RandWrite, iodepth: 16, ..LoadSpec::default() };
        let got = baseline().percentages(&write, &here(), "none", &Achieved { pairs: 0, ..achieved });
        assert!(got.device.is_none() && got.messenger.is_none() && got.refused[0].contains("flush mode"));
    }

    #[test]
    fn a_baseline_of_another_machine_drive_or_day_says_nothing() {
        let load = LoadSpec { rw: Rw::RandWrite, iodepth: 16, ..LoadSpec::default() };
        let achieved = Achieved { iops: 5_000.0, osd_iops: 5_000.0, drives: 1, pairs: 1 };
        let got = |origin: Origin| baseline().percentages(&load, &origin, "flush", &achieved);
        assert_eq!((got(here()).device, got(here()).refused), (Some(50.0), vec![]));
        let day_s = 24 * 3_600;
        for (of_load, why) in [
            (origin("other", "vda", 60), "measured on box, the load on other"),
            (origin("box", "sdb", 60), "is of vda, and the load's drives are sdb"),
            (origin("box", "vda", 3 * day_s), "3.0 days before"),
        ] {
            let got = got(of_load);
            assert!((got.device, got.messenger) == (None, None) && got.refused[0].contains(why), "{got:?}");
        }
        let nowhere = Baseline { origin: Origin::default(), ..baseline() };
        let got = nowhere.percentages(&load, &here(), "flush", &achieved);
        assert!(got.device.is_none() && got.refused[0].contains("does not say where"), "{got:?}");
    }

    #[test]
    fn an_old_baseline_is_marked_by_its_oldest_depth() {
        let after_hours = |hours: u64| origin("box", "vda", 1 + hours * 3_600);
        assert_eq!(
            (baseline().age_s(&after_hours(1)), baseline().aged(&after_hours(1))),
            (Some(3_600), None)
        );
        let mark = baseline().aged(&after_hours(2)).unwrap();
        assert_eq!(mark, "AGED: the raw baseline was measured 2.0 h before the load");
    }
}
