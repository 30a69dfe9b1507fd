//! The end of a sweep: its table, report and archive; and `--list`, and JSON beside every table.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use carmine_study::answer::answer;
use carmine_study::archive::{Chart, Point, PointEnd, Run};
use carmine_study::expand::Expansion;
use carmine_study::plan::{SHIPPED, WORKLOADS, axes, shipped};
use carmine_study::run::Ending;
use carmine_study::scaling::scaling_of_run;
use carmine_testbed::output::{json_text, note, print};
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{SweepArgs, view};

/// Folders and files that are of this machine only.
const LOCAL: [&str; 3] = ["layouts", "sweep.lock", "running.json"];

/// The table, the report, the archive's place.
pub(super) fn finish(args: &SweepArgs, dir: &Path, ending: Ending) -> anyhow::Result<ExitCode> {
    let run = Run::open(dir)?;
    print(&if args.json { summary_json(&run)? } else { view::table(&run) })?;
    let resume = format!("carmine sweep --resume --out {}", dir.display());
    match ending {
        Ending::Complete => {}
        Ending::Stopped => {
            note(&format!("stopped; go on with: {resume}"));
            return Ok(ExitCode::FAILURE);
        }
        Ending::Drifted(change) => {
            note(&format!(
                "stopped: the machine has drifted. The first point, run again twice, gave {:+.1} % IOPS, more than the \
                 tolerance of the plan: what is left would not tell such differences from drift. Find out what has changed \
                 (carmine doctor), and start anew; or go on all the same with: {resume} --ignore-drift",
                change * 100.0
            ));
            return Ok(ExitCode::FAILURE);
        }
    }
    if !args.json {
        let answer = answer(&run)?;
        let told = if answer.is_empty() { &run.file.confounds } else { &answer };
        told.iter().try_for_each(|line| print(&format!("{line}\n")))?;
    }
    if !args.json && run.file.chart == Chart::Scaling {
        print(&view::scaling(&scaling_of_run(&run)?))?;
    }
    match crate::cmd::report::write(&[dir.to_path_buf()], None) {
        Ok(written) => note(&format!("report: {}", written.html.display())),
        Err(e) => note(&format!("warning: no report could be made of it: {e}")),
    }
    if args.zip {
        note(&format!("packed in {}", pack(dir)?.display()));
    }
    note(&format!("archived in {}", dir.display()));
    let missed = run.points.iter().filter(|point| {
        !matches!(run.state(point), Ok(Some(state)) if matches!(state.state, PointEnd::Done | PointEnd::Skipped))
    });
    Ok(if missed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Packs a run's folder into `FOLDER.zip` beside it, whole or not at all.
fn pack(dir: &Path) -> anyhow::Result<PathBuf> {
    let name = dir.file_name().context("the run's folder has no name")?;
    let target = dir.with_file_name(format!("{}.zip", name.display()));
    let part = dir.with_file_name(format!(".{}.zip.part", name.display()));
    let file = File::create(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let mut zip = ZipWriter::new(file);
    add(&mut zip, dir, &name.display().to_string())?;
    let file = zip.finish().context("cannot finish the zip file")?;
    file.sync_all()?;
    std::fs::rename(&part, &target).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

fn add(zip: &mut ZipWriter<File>, folder: &Path, prefix: &str) -> anyhow::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().display().to_string();
        if LOCAL.contains(&name.as_str()) {
            continue;
        }
        let inside = format!("{prefix}/{name}");
        if entry.file_type()?.is_dir() {
            add(zip, &entry.path(), &inside)?;
        } else {
            zip.start_file(inside, SimpleFileOptions::default()).context("cannot add a file")?;
            zip.write_all(&std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Shipped plans, axes, workloads.
pub(super) fn list(as_json: bool) -> anyhow::Result<String> {
    let plans: Vec<(&str, String)> =
        SHIPPED.iter().filter_map(|plan| Some((plan.name, shipped(plan.name)?.ok()?.about))).collect();
    if as_json {
        let plans: Vec<Value> =
            plans.iter().map(|(name, about)| json!({"name": name, "about": about})).collect();
        let axes: Vec<Value> = axes().map(|axis| json!({"name": axis.name, "about": axis.about()})).collect();
        return Ok(json_text(
            &json!({"plans": plans, "axes": axes, "workloads": WORKLOADS.map(|w| w.name)}),
        )?);
    }
    let mut text = String::from("Plans (a copy of one is in each archive, as plan.toml):\n");
    for (name, about) in plans {
        let _ = writeln!(text, "  {name:<18} {about}");
    }
    text.push_str("\nAxes of plans:\n");
    for axis in axes() {
        let _ = writeln!(text, "  {:<18} {}", axis.name, axis.about());
    }
    let _ = writeln!(text, "  {:<18} an option of the peer's configuration", "peer_opt.NAME");
    let _ = writeln!(text, "\nWorkloads: {}", WORKLOADS.map(|w| w.name).join(" "));
    Ok(text)
}

/// The expansion: points as in `points.json`, with grid and estimate.
pub(crate) fn points_json(expansion: &Expansion) -> anyhow::Result<String> {
    let points: Vec<Value> = expansion
        .points
        .iter()
        .map(|p| json!({"point": p.point, "grid": p.grid, "estimate_s": p.estimate.as_secs_f64()}))
        .collect();
    let dropped: Vec<Value> = expansion
        .dropped
        .iter()
        .map(|d| json!({"config": d.config, "reason": d.word, "why": d.why}))
        .collect();
    Ok(json_text(&json!({
        "points": points,
        "dropped": dropped,
        "comparison": expansion.comparison,
        "confounds": expansion.confounds,
        "estimate_s": expansion.estimate.as_secs_f64(),
        "disk_bytes": expansion.disk_bytes,
        "memory_bytes": expansion.memory_bytes,
    }))?)
}

/// Run, points, states and the figures of the table.
fn summary_json(run: &Run) -> anyhow::Result<String> {
    let point = |point: &Point| -> anyhow::Result<Value> {
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
            "verdict": result.as_ref().and_then(|r| r.carmine.verdict.clone()),
            "marks": result.as_ref().map(|r| &r.carmine.marks),
        }))
    };
    let points: Vec<Value> = run.points.iter().map(point).collect::<anyhow::Result<_>>()?;
    let scaling = scaling_of_run(run)?;
    let answer = answer(run)?;
    let text = json!({
        "dir": run.dir(), "run": run.file, "points": points, "scaling": scaling, "answer": answer
    });
    Ok(json_text(&text)?)
}
