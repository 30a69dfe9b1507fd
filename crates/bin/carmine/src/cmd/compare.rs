//! `carmine compare`: whether a change made anything slower.

mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use carmine_study::archive::{Run, write_whole};
use carmine_study::compare::{Arm, Judgement, arm_of_files, arm_of_run, arms_of_run, compare};
use clap::Args;

use carmine_testbed::TestbedError::{self, Usage};
use carmine_testbed::output::{json_text, note, print};

/// Pairs of points with the same configuration are compared by Student's t on the logarithms of their ratios, with Holm's
/// correction over all figures. Exits with 0 if nothing is rejected, 1 if something is, 2 if the two cannot be compared.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Folder of a run, or results of `carmine bench --json`: FILE,FILE,… or a folder of them
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The results to compare with BASE, in the same form; without it, compare two arms of the run BASE
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Two arms of the run BASE [default: those that its plan compares]
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, conflicts_with = "new")]
    arms: Vec<String>,
    /// Accept what gets worse by less than this, such as 5% or 0.05
    #[arg(long, value_name = "PART", default_value = "5%", value_parser = parse_part)]
    tolerance: f64,
    /// Write the comparison to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder of a testbed (not used: BASE and NEW name the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (base, new) = arms(args)?;
    let judged = compare(&base, &new, args.tolerance).map_err(usage)?;
    print(&view::render(&judged))?;
    if let Some(path) = &args.json {
        write_json(path, &judged)?;
    }
    Ok(if judged.accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage(error: impl std::fmt::Display) -> TestbedError {
    Usage(error.to_string())
}

fn arms(args: &CompareArgs) -> anyhow::Result<(Arm, Arm)> {
    if let Some(new) = &args.new {
        return Ok((arm(&args.base)?, arm(new)?));
    }
    let names = match args.arms.as_slice() {
        [] => None,
        [base, new] => Some((base.as_str(), new.as_str())),
        names => anyhow::bail!(Usage(format!("--arms {}: name two arms, as --arms A,B", names.join(",")))),
    };
    let run = Run::open(&args.base).map_err(usage)?;
    Ok(arms_of_run(&run, names).map_err(usage)?)
}

/// A run, a folder of results, or a list of them.
fn arm(path: &Path) -> anyhow::Result<Arm> {
    if path.join("run.json").is_file() {
        return Ok(arm_of_run(&Run::open(path).map_err(usage)?).map_err(usage)?);
    }
    let files = if path.is_dir() {
        results_in(path).with_context(|| format!("cannot read {}", path.display()))?
    } else {
        path.to_string_lossy().split(',').map(PathBuf::from).collect()
    };
    Ok(arm_of_files(&path.display().to_string(), &files).map_err(usage)?)
}

/// The folder's JSON files in the order of their names.
fn results_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn write_json(path: &Path, judged: &Judgement) -> anyhow::Result<()> {
    write_whole(path, json_text(judged)?.as_bytes())?;
    note(&format!("comparison in {}", path.display()));
    Ok(())
}

/// A part of 1, or percent: `0.05`, `5%`.
fn parse_part(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    let part = digits.parse::<f64>().map_err(|_| "write it as 5% or 0.05".to_owned())? * unit;
    if (0.0..1.0).contains(&part) {
        Ok(part)
    } else {
        Err("it must be 0 % or more, and less than 100 %".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        assert_eq!(parse_part("5%"), Ok(0.05));
        assert_eq!((parse_part(" 2.5 %"), parse_part("0.1"), parse_part("0")), (Ok(0.025), Ok(0.1), Ok(0.0)));
        for bad in ["5", "100%", "-1%", "five", "", "nan"] {
            assert!(parse_part(bad).is_err(), "{bad}");
        }
    }
}
