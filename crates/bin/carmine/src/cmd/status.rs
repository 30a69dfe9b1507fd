//! `carmine status`.

use std::fmt::Write as _;
use std::process::ExitCode;

use carmine_testbed::{Layout, Status, status};

use crate::args::StatusArgs;
use carmine_testbed::output::{json_text, print};
use carmine_types::counted;

/// 0 for a testbed that runs as it should or is stopped; 1 for one with a problem.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status = status(&Layout::new(&args.dir.dir)?)?;
    if args.json {
        print(&json_text(&status)?)?;
    } else {
        print(&render(&status))?;
    }
    Ok(if status.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(status: &Status) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}: {}", status.dir, status.state);
    if let (Some(addr), Some(pid)) = (&status.mon_addr, status.mon_pid) {
        let epoch = status.epoch.map_or_else(|| "?".into(), |e| e.to_string());
        let _ = writeln!(out, "mon      pid {pid}, {addr}, map epoch {epoch}");
    }
    for osd in &status.osds {
        let pid = osd.pid.map_or_else(|| "not running".into(), |pid| format!("pid {pid}"));
        let _ = write!(out, "osd.{:<4} {pid}, {}", osd.id, if osd.up { "up" } else { "down" });
        if let Some(reactors) = osd.reactors {
            let _ = write!(out, ", {reactors} reactors");
        }
        if let Some(pgs) = osd.pgs {
            let _ = write!(out, ", primary of {} PGs ({} active)", pgs.total, pgs.active);
        }
        if let Some(http) = &osd.http {
            let _ = write!(out, ", http://{http}/metrics");
        }
        out.push('\n');
    }
    if let (Some(total), Some(pgs)) = (status.pgs_total, status.pgs) {
        let _ = writeln!(out, "PGs      {total}: {} active, {} clean", pgs.active, pgs.clean);
    }
    let plan = &status.plan;
    let pool = &plan.pool;
    let _ = writeln!(
        out,
        "plan     {} x {}, {}, pool {} size {} min_size {} PGs {}",
        counted(plan.osds() as usize, "OSD"),
        counted(plan.cpu.reactors, "reactor"),
        plan.store,
        pool.name,
        pool.size,
        pool.min_size,
        pool.pg_num
    );
    if !plan.osd_wrap.is_empty() {
        let _ = writeln!(out, "wrapper  {}", plan.osd_wrap.join(" "));
    }
    for drive in &plan.preconditioned {
        let _ = writeln!(out, "precondition {drive}");
    }
    for problem in &status.problems {
        let _ = writeln!(out, "problem  {problem}");
    }
    out
}
