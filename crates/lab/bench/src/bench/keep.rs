//! The files beside a result: the samples of its window, and the flamegraph, which is drawn when the load is over.

use std::path::{Path, PathBuf};

use anyhow::Context;
use carmine_load::profile::{Profile, ProfileMode};
use carmine_load::samples::Samples;
use carmine_load::{JobResult, SAMPLE_NS};
use carmine_testbed::output::note;

use crate::archive;
use crate::profile::Recorded;

/// Draws the recording and writes the picture; a picture that cannot be had is a note, not an error. `json`: the result's file.
pub(super) fn profile(
    mode: ProfileMode,
    recorded: Result<Recorded, String>,
    json: Option<&Path>,
    load: &str,
) -> Profile {
    let path = path(mode, json);
    let drawn = recorded.and_then(|recorded| {
        note("reading the profile");
        recorded.draw(load)
    });
    let written = drawn.and_then(|drawing| {
        archive(&path, drawing.svg).map_err(|e| e.to_string())?;
        let svg = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Profile { mode, svg, missing: None, stacks: drawing.stacks, hottest: drawing.hottest })
    });
    written.unwrap_or_else(|why| {
        note(&format!("no flamegraph: {why}"));
        Profile::missing(mode, why)
    })
}

/// `DIR/NAME.MODE.svg` beside `DIR/NAME.json`.
fn path(mode: ProfileMode, json: Option<&Path>) -> PathBuf {
    match json {
        Some(json) => json.with_extension(format!("{mode}.svg")),
        None => PathBuf::from(format!("{mode}.svg")),
    }
}

/// Writes the file of `--samples`: what the sampler saw, with what the generator counted in the same seconds; whole or not at all.
pub(super) fn samples(
    path: &Path,
    samples: Samples,
    result: &JobResult,
    window_s: f64,
) -> anyhow::Result<()> {
    let samples = with_load(samples, result, window_s);
    let mut text = serde_json::to_string(&samples).context("cannot make the JSON of the samples")?;
    text.push('\n');
    Ok(archive(path, text.into_bytes())?)
}

/// Adds the load's own series. Its window begins within milliseconds of the sampler's.
fn with_load(mut samples: Samples, result: &JobResult, window_s: f64) -> Samples {
    samples.put("iops", per_second(&result.iops_samples(window_s)));
    for (name, stats) in [("read_iops", &result.read), ("write_iops", &result.write)] {
        if stats.ops > 0 {
            samples.put(name, per_second(&stats.iops_samples(window_s)));
        }
    }
    for (name, percent) in [("p50_ns", 50.0), ("p99_ns", 99.0)] {
        samples.put(name, result.seconds.percentiles(percent));
    }
    samples
}

/// Means of the samples of each whole second.
fn per_second(rates: &[f64]) -> Vec<Option<f64>> {
    let each = (1_000_000_000 / SAMPLE_NS) as usize;
    rates.chunks_exact(each).map(|chunk| Some(chunk.iter().sum::<f64>() / each as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_lies_beside_the_result() {
        let of = |json: Option<&str>| path(ProfileMode::OnCpu, json.map(Path::new)).display().to_string();
        assert_eq!(of(Some("points/a_qd1.6_r0.json")), "points/a_qd1.6_r0.oncpu.svg");
        assert_eq!(of(None), "oncpu.svg");
    }

    #[test]
    fn a_recording_that_failed_is_no_error() {
        let profile = profile(ProfileMode::OffCpu, Err("perf is not installed".into()), None, "randread");
        assert_eq!((profile.svg, profile.missing.as_deref()), (None, Some("perf is not installed")));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut samples = Samples { interval_ms: 1000, t_ms: vec![1000.0, 2000.0], ..Samples::default() };
        samples.put("osd_cores", vec![Some(0.5), None]);
        let mut result = JobResult::default();
        (0..2_000u64).for_each(|n| {
            result.read.record(4096, 5_000, n * 1_000_000);
            result.seconds.record(5_000, n * 1_000_000);
        });
        result.seconds.close();
        let samples = with_load(samples, &result, 2.4);
        let read: Samples = serde_json::from_value(serde_json::to_value(&samples).unwrap()).unwrap();
        assert_eq!(read.series["iops"], [Some(1000.0), Some(1000.0)]);
        assert_eq!((read.series["osd_cores"][1], read.interval_ms), (None, 1000));
        assert!(read.series["p99_ns"][1].is_some_and(|ns| (ns / 5_000.0 - 1.0).abs() < 0.01));
        assert!(!read.series.contains_key("write_iops"));
        assert_eq!(read.instrument, samples.instrument);
    }
}
