//! `carmine bench --jobfile`: reads the file and prints a note for each key that Carmine overrides.

use std::path::Path;

use anyhow::{Context, Result};
use carmine_load::LoadSpec;
use carmine_load::hosted::jobfile::JobFile;
use carmine_load::report::CacheState;
use carmine_testbed::{note, refuse, usage};

use super::args::BenchArgs;

/// The job file of these options, if they name one, and the load that its jobs make.
///
/// # Errors
/// It cannot be read, or something in it cannot run here: section, key and value.
pub(super) fn read(args: &BenchArgs, spec: LoadSpec) -> Result<(Option<JobFile>, LoadSpec)> {
    let Some(path) = &args.jobfile else { return Ok((None, spec)) };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("--jobfile {shown}: cannot read it"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let env = |name: &str| std::env::var(name).ok();
    let wrong = |why: String| usage!("--jobfile {shown}: {why}");
    let file = JobFile::parse(&name, &text, args.section.as_deref(), &env).map_err(wrong)?;
    let load = file.load(args.client, &spec).map_err(wrong)?;
    let is_cached = args.cache == Some(CacheState::Cached);
    refuse!(
        is_cached && load.ramp_ms == 0 && !file.is_timed(),
        "--cache cached: the jobs of {shown} have no ramp that could be longer; give them all the same runtime, ramp_time and time_based"
    );
    file.notes.iter().for_each(|overridden| note(&format!("{name}: overridden: {overridden}")));
    Ok((Some(file), load))
}

/// The folder where files go that a job file names for the user.
pub(super) fn folder() -> Result<String> {
    let here = std::env::current_dir().context("cannot find the working folder")?;
    Ok(here.to_string_lossy().into_owned())
}

/// The part of the result that describes a job file: its path, its text, the text that fio was given, and the keys that were overridden.
pub(super) fn about(path: &Path, file: &JobFile, given: &str) -> serde_json::Value {
    serde_json::json!({ "path": path, "text": file.text, "given": given, "overridden": file.notes })
}
