//! Everything that is decided before a load of our own generator starts.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carmine_load::baseline::Baseline;
use carmine_load::report::{CacheState, Context as ReportContext};
use carmine_load::{LoadSpec, Prefill, Rw, VerifyState};
use carmine_testbed::Plan;
use carmine_testbed::TestbedError::Usage;
use carmine_types::{OsdId, StoreKind};
use serde_json::json;

use super::args::BenchArgs;
use super::bed::Bed;
use super::controller::Seen;
use super::room::present_bytes;
use crate::Doctor;

/// Length of the window with more load, and of the load before it.
const CONFIRM_MS: u64 = 3_000;
const CONFIRM_RAMP_MS: u64 = 500;

/// Why there is no profile of cold caches.
pub(super) const COLD_PROFILE: &str =
    "--cache cold: it is taken under load before the window, which would warm the caches";

/// `--cache cached` without `--ramp` loads for this long before the window.
const CACHED_RAMP_MS: u64 = 5_000;
/// Most rounds of overwriting: a typing error would take days.
const AGE_MAX: f64 = 1000.0;

/// A load that can start.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(super) args: BenchArgs,
    pub(super) spec: LoadSpec,
    pub(super) bed: Bed,
    pub(super) state: Option<VerifyState>,
}

impl Setup {
    pub(crate) fn prepare(args: BenchArgs, doctor: Doctor) -> anyhow::Result<Setup> {
        let (bed, mut spec, _) = Bed::open(&args, doctor)?;
        bed.check_room(&spec, &args, |enough| {
            if args.in_process || args.cache == Some(CacheState::Cold) {
                // Which objects these are is not known, or the look for them would warm the caches: all may be there.
                return Ok(enough);
            }
            present_bytes(bed.mon, &args.pool, &spec, enough)
        })?;
        let osds = bed.plan.osds();
        if args.in_process && args.osd >= osds {
            bail!(Usage(format!("--osd {}: the testbed has OSDs 0 to {}", args.osd, osds - 1)));
        }
        let state = load_state(&mut spec, &args)?;
        Ok(Setup { args, spec, bed, state })
    }

    /// The OSD that is loaded from within.
    pub(super) fn in_process(&self) -> Option<OsdId> {
        self.args.in_process.then_some(OsdId(self.args.osd))
    }

    /// Why there can be no load before the window, in which a profile is taken.
    pub(super) fn cannot_profile(&self) -> Option<&'static str> {
        if self.wants_cold() {
            Some(COLD_PROFILE)
        } else if self.spec.ends_by_itself() {
            Some("--io-size: it is taken under load before the window, which would be more than these bytes")
        } else {
            None
        }
    }

    /// The same load for a moment, with twice the threads, or inside an OSD, which has as many as it has reactors, with twice
    /// the depth. Second: the name and value of the doubled option.
    pub(crate) fn with_more_load(&self) -> (Setup, String) {
        let mut more = self.clone();
        let spec = &mut more.spec;
        let (name, number) = match self.args.in_process {
            true => ("iodepth", &mut spec.iodepth),
            false => ("numjobs", &mut spec.numjobs),
        };
        *number = number.saturating_mul(2);
        let doubled = format!("{name} {number}");
        spec.prefill = Prefill::Never;
        (spec.ramp_ms, spec.runtime_ms) = (CONFIRM_RAMP_MS, CONFIRM_MS.min(spec.runtime_ms));
        spec.keep_seconds = false;
        (more.args.samples, more.args.profile, more.args.cache) = (None, None, None);
        (more, doubled)
    }

    /// The store has work that it does later: its metadata is compacted.
    pub(super) fn defers_work(&self) -> bool {
        self.bed.peer.is_none() && self.bed.plan.store == StoreKind::Blue && !self.spec.verify_only
    }

    /// The OSDs' caches are to be empty: they must have served nothing yet.
    pub(super) fn wants_cold(&self) -> bool {
        self.args.cache == Some(CacheState::Cold)
    }

    /// The part of the report that this knows.
    pub(crate) fn context(&self, seen: &Seen) -> ReportContext {
        let mut context = self.bed.context(&self.spec, &self.args);
        context.marks.splice(0..0, seen.marks.iter().cloned());
        context.setting.conditions["background_work_before"] = json!(seen.settled);
        context
    }
}

/// Makes `spec` cover the part of the pool's capacity that `--fill` names, and write as many times as `--age` says what it
/// covers: the stores of a comparison are equally full and equally worn.
pub(super) fn fill_and_age(
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
            bail!(Usage(format!("--age {rounds}: take a number of rounds above 0, up to {AGE_MAX}")));
        }
        spec.rw = Rw::RandWrite;
        spec.io_bytes = Some((spec.size_bytes as f64 * rounds) as u64 / spec.bs_bytes.max(1) * spec.bs_bytes);
    }
    Ok(())
}

/// Changes the load as a cache state asks for it.
pub(super) fn cache_conditions(spec: &mut LoadSpec, cache: Option<CacheState>) -> anyhow::Result<()> {
    match cache {
        Some(CacheState::Cold) if spec.prefill == Prefill::Always || spec.ramp_ms > 0 => {
            bail!(Usage("--cache cold: --prefill always and --ramp would warm the caches; leave them out".into()))
        }
        Some(CacheState::Cold) => spec.prefill = Prefill::Never,
        Some(CacheState::OnodeWarm) if spec.prefill == Prefill::Never => bail!(Usage(
            "--cache onode-warm: the metadata is loaded by the look for missing objects; leave --prefill never out".into()
        )),
        Some(CacheState::Cached) if spec.ramp_ms == 0 => spec.ramp_ms = CACHED_RAMP_MS,
        _ => {}
    }
    Ok(())
}

pub(super) fn load_baseline(path: &Path) -> anyhow::Result<Baseline> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Usage(format!("--baseline {}: {e}; `carmine baseline --json FILE` makes it", path.display()))
    })?;
    Ok(Baseline::parse(&text).map_err(|what| {
        let path = path.display();
        Usage(format!("--baseline {path}: this is {what}; `carmine baseline --json FILE` makes a baseline"))
    })?)
}

/// The state of verified blocks. Without a file, or with one that does not exist yet, nothing is known; the load then gets
/// a generation of its own, so that blocks of earlier loads can't be taken for its own.
fn load_state(spec: &mut LoadSpec, args: &BenchArgs) -> anyhow::Result<Option<VerifyState>> {
    if !spec.verify {
        return Ok(None);
    }
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let Some(path) = &args.verify_state else {
        spec.generation = fresh;
        return Ok(None);
    };
    match std::fs::read(path) {
        Ok(bytes) => {
            let state =
                VerifyState::decode(&bytes, spec).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
            spec.generation = state.generation();
            Ok(Some(state))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !spec.verify_only => {
            spec.generation = fresh;
            Ok(Some(VerifyState::new(spec)))
        }
        Err(e) => Err(e).with_context(|| format!("cannot read the verify state {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    #[test]
    fn only_the_file_of_baseline_is_a_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            load_baseline(&path).map_err(|e| e.to_string())
        };
        let raw = r#"{"iops": 1000.0, "bs_bytes": 4096, "iodepth": 1}"#;
        assert!(of(&format!(r#"{{"device": null, "messenger": {raw}}}"#)).unwrap().messenger.is_some());
        for (text, what) in [
            (r#"{"fio version": "x", "jobs": [], "carmine": {}}"#, "a result of `carmine bench --json`"),
            (r#"{"fio version": "x", "jobs": []}"#, "a result of fio"),
            ("{}", "JSON without raw figures"),
            ("[1]", "JSON without raw figures"),
            (r#"{"device": null, "messenger": null}"#, "JSON without raw figures"),
            (r#"{"device": {}}"#, "JSON without raw figures"),
            (&format!(r#"{{"device": {raw}, "points": []}}"#), "JSON without raw figures"),
            ("iops 5", "no JSON"),
        ] {
            let error = of(text).unwrap_err();
            assert!(
                error.contains(what) && error.contains("`carmine baseline --json FILE`"),
                "{text}: {error}"
            );
        }
    }

    fn applied(fill: Option<u8>, age: Option<f64>) -> anyhow::Result<LoadSpec> {
        let wish =
            Wish { osds: Some(3), osd_size_bytes: Some(1 << 30), pool_size: Some(2), ..Wish::default() };
        let plan = Plan::new(&wish, &Topology::from_short("1x8x1").unwrap(), "f").unwrap();
        let mut spec = LoadSpec::default();
        fill_and_age(&mut spec, &plan, fill, age)?;
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
