//! The end of a sweep: its table, report and archive; and `--list`, and JSON beside every table.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use carmine_load::report::show;
use carmine_study::answer::answer;
use carmine_study::archive::{Chart, Point, PointEnd, PointResult, Run};
use carmine_study::plan::{SHIPPED, WORKLOADS, axes, shipped};
use carmine_study::repeats::disagreements;
use carmine_study::run::Ending;
use carmine_study::scaling::{KNEE, Scaling, scaling_of_run};
use carmine_testbed::{json_text, note, print};
use serde_json::{Value, json};
use walkdir::{DirEntry, WalkDir};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::SweepArgs;
use crate::cmd::{code, print_as};

/// Folders and files that matter to this machine only.
const LOCAL: [&str; 3] = ["layouts", "sweep.lock", "running.json"];

/// The table, the report, the archive's place.
pub(super) fn finish(args: &SweepArgs, dir: &Path, ending: Ending) -> Result<ExitCode> {
    let run = Run::open(dir)?;
    print(&if args.json { summary_json(&run)? } else { table(&run) })?;
    let resume = format!("carmine sweep --resume --out {}", dir.display());
    let stopped = match ending {
        Ending::Complete => None,
        Ending::Stopped => Some(format!("stopped; go on with: {resume}")),
        Ending::Drifted(change) => Some(format!(
            "stopped: the machine has drifted. The first point, run again twice, gave {:+.1} % IOPS, more than the \
             tolerance of the plan: the rest of the run could not tell such differences from drift. Find out what has changed \
             (carmine doctor), and start anew; or go on anyway with: {resume} --ignore-drift",
            change * 100.0
        )),
    };
    if let Some(why) = stopped {
        note(&why);
        return Ok(code(false));
    }
    if !args.json {
        let mut told = answer(&run)?;
        if run.file.study.is_none() {
            told.extend(run.file.confounds.iter().cloned());
        }
        told.iter().try_for_each(|line| print(&format!("{line}\n")))?;
        if run.file.chart == Chart::Scaling {
            print(&scaling(&scaling_of_run(&run)?))?;
        }
    }
    match crate::cmd::report::write(&[dir.to_path_buf()], None) {
        Ok(written) => note(&format!("report: {}", written.html.display())),
        Err(e) => note(&format!("warning: no report could be made of it: {e}")),
    }
    if args.zip {
        note(&format!("packed in {}", pack(dir)?.display()));
    }
    note(&format!("archived in {}", dir.display()));
    let is_fine = |point| matches!(run.state(point), Ok(Some(state)) if state.state != PointEnd::Failed);
    Ok(code(run.points.iter().all(is_fine)))
}

/// Packs a run's folder into `FOLDER.zip` beside it, whole or not at all.
fn pack(dir: &Path) -> Result<PathBuf> {
    let name = dir.file_name().context("the run's folder has no name")?;
    let target = dir.with_file_name(format!("{}.zip", name.display()));
    let part = dir.with_file_name(format!(".{}.zip.part", name.display()));
    let file = File::create(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let mut zip = ZipWriter::new(file);
    let is_local = |entry: &DirEntry| LOCAL.iter().any(|local| entry.file_name() == *local);
    let entries = WalkDir::new(dir).sort_by_file_name().into_iter();
    for entry in entries.filter_entry(|entry| entry.depth() == 0 || !is_local(entry)) {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            let inside = Path::new(name).join(entry.path().strip_prefix(dir)?);
            zip.start_file_from_path(inside, SimpleFileOptions::default()).context("cannot add a file")?;
            zip.write_all(&std::fs::read(entry.path())?)?;
        }
    }
    let file = zip.finish().context("cannot finish the zip file")?;
    file.sync_all()?;
    std::fs::rename(&part, &target).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

/// Shipped plans, axes, workloads.
pub(super) fn list(as_json: bool) -> Result<ExitCode> {
    let plans = SHIPPED.iter().filter_map(|plan| Some((plan.name, shipped(plan.name)?.ok()?.about)));
    let (plans, axes): (Vec<_>, Vec<_>) =
        (plans.collect(), axes().map(|a| (a.name, a.about().to_owned())).collect());
    let objects = |rows: &[(&str, String)]| -> Vec<Value> {
        rows.iter().map(|(name, about)| json!({"name": name, "about": about})).collect()
    };
    let all = json!({"plans": objects(&plans), "axes": objects(&axes), "workloads": WORKLOADS});
    let lines = |rows: &[(&str, String)]| -> String {
        rows.iter().map(|(name, about)| format!("  {name:<18} {about}\n")).collect()
    };
    print_as(as_json, &all, || {
        format!(
            "Plans (a copy of one is in each archive, as plan.toml):\n{}\nAxes of plans:\n{}  peer_opt.NAME      an option of \
             the peer's configuration\n\nWorkloads: {}\n",
            lines(&plans),
            lines(&axes),
            WORKLOADS.join(" ")
        )
    })
}

/// Run, points, states and the figures of the table.
fn summary_json(run: &Run) -> Result<String> {
    let point = |point: &Point| -> Result<Value> {
        let result = run.result(point)?.filter(|_| run.is_done(point));
        let latency = result.as_ref().and_then(|r| r.latency().cloned());
        Ok(json!({
            "stem": point.stem,
            "config": point.config,
            "state": run.state(point)?,
            "iops": result.as_ref().map(|r| r.iops()),
            "bw_bytes": result.as_ref().map(|r| r.bw_bytes()),
            "mean_ns": latency.as_ref().map(|l| l.mean),
            "p99_ns": latency.as_ref().and_then(|l| l.at(99.0)),
            "verdict": result.as_ref().and_then(|r| r.carmine.verdict.as_ref()),
            "marks": result.as_ref().map(|r| &r.carmine.marks),
        }))
    };
    let points: Vec<Value> = run.points.iter().map(point).collect::<Result<_>>()?;
    let (scaling, answer) = (scaling_of_run(run)?, answer(run)?);
    let all = json!({"dir": run.dir(), "run": run.file, "points": points, "scaling": scaling, "answer": answer,
            "disagreements": disagreements(run)});
    Ok(json_text(&all)?)
}

/// One row a point.
fn table(run: &Run) -> String {
    let header = "point | IOPS | MB/s | mean us | p99 us | IOPS/core | verdict | marks";
    let rows = run.points.iter().map(|point| {
        let state = run.state(point).ok().flatten().map(|state| state.state);
        let result = run.result(point).ok().flatten().filter(|_| state == Some(PointEnd::Done));
        let missing = || vec![point.stem.clone(), state.map_or("not run", |state| state.word()).to_owned()];
        result.map_or_else(missing, |result| row(&point.stem, &result))
    });
    let disagree = disagreements(run).into_iter();
    let disagree = disagree
        .map(|(point, limiters)| format!("{point}: the repeats disagree on the limiter: {limiters}\n"));
    crate::cmd::table(header, 1..6, rows) + &disagree.collect::<String>()
}

/// How a scaling run ends: slope, knee and what bound each line, and what the knee is.
fn scaling(lines: &[Scaling]) -> String {
    if lines.is_empty() {
        return "no slope: the points that fit this machine have one number of reactors, CPUs and OSDs\n"
            .into();
    }
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if lines.iter().any(|line| line.knee.is_some()) {
        text.push_str(&format!("(the knee is {KNEE})\n"));
    }
    text
}

fn row(stem: &str, result: &PointResult) -> Vec<String> {
    let latency = result.latency().cloned().unwrap_or_default();
    let us = |ns: Option<f64>| show(ns.map(|ns| ns / 1e3), 0);
    vec![
        stem.to_owned(),
        format!("{:.0}", result.iops()),
        format!("{:.1}", result.bw_bytes() / 1e6),
        us(Some(latency.mean)),
        us(latency.at(99.0)),
        show(result.carmine.iops_per_core.used, 0),
        result.carmine.verdict.clone().unwrap_or_else(|| "-".to_owned()),
        result.mark_words().join(" "),
    ]
}
