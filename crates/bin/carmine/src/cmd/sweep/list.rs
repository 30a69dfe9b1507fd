//! `--list`, and JSON beside every table.

use std::fmt::Write as _;

use anyhow::Context;
use carmine_study::archive::Run;
use carmine_study::expand::Expansion;
use carmine_study::plan::{SHIPPED, WORKLOADS, axes, shipped};
use carmine_study::scaling::scaling_of_run;
use serde_json::{Value, json};

/// Shipped plans, axes, workloads.
pub(crate) fn list(as_json: bool) -> anyhow::Result<String> {
    let plans: Vec<(&str, String)> =
        SHIPPED.iter().filter_map(|plan| Some((plan.name, shipped(plan.name)?.ok()?.about))).collect();
    if as_json {
        let plans: Vec<Value> =
            plans.iter().map(|(name, about)| json!({"name": name, "about": about})).collect();
        let axes: Vec<Value> = axes().map(|axis| json!({"name": axis.name, "about": axis.about()})).collect();
        return pretty(&json!({"plans": plans, "axes": axes, "workloads": WORKLOADS.map(|w| w.name)}));
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
    pretty(&json!({
        "points": points,
        "dropped": dropped,
        "comparison": expansion.comparison,
        "estimate_s": expansion.estimate.as_secs_f64(),
    }))
}

/// Run, points, states and the figures of the table.
pub(crate) fn summary_json(run: &Run) -> anyhow::Result<String> {
    let point = |point: &carmine_study::archive::Point| -> anyhow::Result<Value> {
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
        }))
    };
    let points: Vec<Value> = run.points.iter().map(point).collect::<anyhow::Result<_>>()?;
    let scaling = scaling_of_run(run)?;
    pretty(&json!({"dir": run.dir(), "run": run.file, "points": points, "scaling": scaling}))
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("cannot print JSON")? + "\n")
}
