//! Everything that is decided before a load of our own generator starts.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carmine_load::baseline::Baseline;
use carmine_load::profile::ProfileMode;
use carmine_load::report::{CacheState, Context as ReportContext};
use carmine_load::window::DrainWindow;
use carmine_load::{LoadSpec, Prefill, VerifyState};
use carmine_types::{OsdId, StoreKind};
use serde_json::json;

use super::args::BenchArgs;
use super::bed::{Bed, Checked, Conditions};
use super::room::present_bytes;
use crate::Doctor;
use crate::sample::series::SampleOptions;
use carmine_testbed::TestbedError::Usage;

/// A load that can start.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(super) spec: LoadSpec,
    pub(super) bed: Bed,
    pub(super) pool: String,
    /// The OSD that is loaded from within.
    pub(super) in_process: Option<OsdId>,
    pub(super) state: Option<VerifyState>,
    pub(super) state_path: Option<PathBuf>,
    /// Samples are wanted.
    samples: bool,
    /// A flamegraph is wanted.
    pub(super) profile: Option<ProfileMode>,
    conditions: Conditions,
}

/// Length of the window with more load, and of the load before it.
const CONFIRM_MS: u64 = 3_000;
const CONFIRM_RAMP_MS: u64 = 500;

/// Why there is no profile of cold caches.
pub(super) const COLD_PROFILE: &str =
    "--cache cold: it is taken under load before the window, which would warm the caches";

/// `--cache cached` without `--ramp` loads for this long before the window.
const CACHED_RAMP_MS: u64 = 5_000;

impl Setup {
    pub(crate) fn prepare(args: BenchArgs, doctor: Doctor) -> anyhow::Result<Setup> {
        let mut checked = Checked::new(&args)?;
        let conditions =
            Conditions { in_process: args.in_process, cache: args.cache, baseline: checked.baseline.take() };
        let mut spec = checked.spec.clone();
        let bed = Bed::open(checked, doctor)?;
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
        Ok(Setup {
            spec,
            bed,
            pool: args.pool,
            in_process: args.in_process.then_some(OsdId(args.osd)),
            state,
            state_path: args.verify_state,
            samples: args.samples.is_some(),
            profile: args.profile,
            conditions,
        })
    }

    /// What is to be sampled, if anything is.
    pub(super) fn sample_options(&self) -> Option<SampleOptions> {
        self.samples.then(|| self.bed.sample_options())
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
    /// the depth. Second: what was doubled.
    pub(crate) fn with_more_load(&self) -> (Setup, String) {
        let mut more = self.clone();
        let spec = &mut more.spec;
        let what = if self.in_process.is_some() {
            spec.iodepth = spec.iodepth.saturating_mul(2);
            format!("iodepth {}", spec.iodepth)
        } else {
            spec.numjobs = spec.numjobs.saturating_mul(2);
            format!("numjobs {}", spec.numjobs)
        };
        spec.prefill = Prefill::Never;
        (spec.ramp_ms, spec.runtime_ms) = (CONFIRM_RAMP_MS, CONFIRM_MS.min(spec.runtime_ms));
        spec.keep_seconds = false;
        more.samples = false;
        more.profile = None;
        more.conditions.cache = None;
        (more, what)
    }

    /// The store has work that it does later: its metadata is compacted.
    pub(super) fn defers_work(&self) -> bool {
        self.bed.peer.is_none() && self.bed.plan.store == StoreKind::Blue && !self.spec.verify_only
    }

    /// The OSDs' caches are to be empty: they must have served nothing yet.
    pub(super) fn wants_cold(&self) -> bool {
        self.conditions.cache == Some(CacheState::Cold)
    }

    /// The part of the report that this knows. `settled`: the OSDs' background work before the load.
    pub(crate) fn context(&self, marks: Vec<String>, settled: Option<DrainWindow>) -> ReportContext {
        let mut context = self.bed.context(&self.spec, &self.conditions);
        context.marks.splice(0..0, marks);
        context.setting.conditions["background_work_before"] = json!(settled);
        context
    }
}

/// Sets what a cache state asks of the load.
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

/// What is known of verified blocks. Without a file, or with one that does not exist yet, nothing is; the load then gets
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
}
