//! `carmine bench --client`: the tools that Ceph's users know load a Carmine testbed or a peer, and are measured as our own
//! generator is.

mod meter;
mod prefill;
mod process;
mod programs;
mod target;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carmine_load::hosted::{self, HostedFigures, Tool};
use carmine_load::report::{self, LatencyHistograms, Report};
use carmine_load::{LoadSpec, Route, hosted::limit};
use carmine_testbed::{Layout, archive};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::BenchArgs;
use crate::output::{Usage, print};
use crate::signals;
use meter::{Meter, Metered};
use process::Clients;
use programs::ToolPrograms;
use target::Target;

/// How often processes and Ctrl-C are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Time for a tool to connect, also on a busy machine.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);
/// Time for a tool to end after its window: `rados bench` removes what it wrote.
const END_LIMIT: Duration = Duration::from_secs(300);

/// A load by a hosted tool.
struct Run<'a> {
    tool: Tool,
    spec: LoadSpec,
    target: Target,
    programs: ToolPrograms,
    pool: &'a str,
    cancel: &'a AtomicBool,
    bar: ProgressBar,
}

/// 0: measured without errors; 1: errors, or no measurement.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let tool = args.client;
    // A stock client has one connection per OSD.
    let spec = LoadSpec { route: Route::Single, ..args.spec() };
    spec.check().map_err(|e| Usage(e.to_string()))?;
    let mut marks = hosted::check(tool, &spec).map_err(|e| Usage(e.to_string()))?;
    if args.in_process {
        bail!(Usage(format!("--in-process: {tool} runs in a process of its own")));
    }
    let target = Target::open(&args.dir.dir)?;
    target.check(tool)?;
    let programs = ToolPrograms::find(tool)?;
    let cancel = signals::cancel_flag()?;
    print(&target.grid.render())?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let run = Run { tool, spec, target, programs, pool: &args.pool, cancel: &cancel, bar };
    let measured = run.measure();
    run.bar.finish_and_clear();
    let (figures, metered, command) = measured?;
    marks.extend(window_mark(&figures, &metered));
    let mut report = run.report(&figures, &metered, marks);
    run.judge(&figures, &mut report);
    print(&report::table(&figures.result, &report))?;
    if let Some(latency) = figures.latency {
        print(&format!(
            "latency   mean {:.1} us, max {:.1} us\n",
            latency.mean_ns / 1e3,
            latency.max_ns / 1e3
        ))?;
    }
    if let Some(path) = &args.json {
        let value = run.result_json(&figures, &report, &command)?;
        let mut text = serde_json::to_string_pretty(&value).context("cannot make the result's JSON")?;
        text.push('\n');
        archive(path, text.into_bytes())?;
    }
    Ok(if figures.result.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Our own client cannot load a peer.
pub(crate) fn refuse_peer(dir: &Path) -> anyhow::Result<()> {
    if carmine_peer::load_plan(&Layout::new(dir)?)?.is_some() {
        bail!(Usage(format!(
            "--dir {} holds a peer: load it with --client rados-bench, fio-rados or fio-rbd",
            dir.display()
        )));
    }
    Ok(())
}

/// The tool times itself; its window and the kernel's should be the same one.
fn window_mark(figures: &HostedFigures, metered: &Metered) -> Option<String> {
    let wall = metered.window.wall_ns as f64 / 1e9;
    let apart = (figures.seconds / wall - 1.0).abs();
    (apart > 0.02).then(|| {
        format!("NOISY: the tool measured {:.2} s, the kernel's accounting {wall:.2} s", figures.seconds)
    })
}

impl Run<'_> {
    /// Prefill, ramp and window; the tool's figures, the kernel's, and the command line.
    fn measure(&self) -> anyhow::Result<(HostedFigures, Metered, Vec<String>)> {
        self.bar.set_message(format!("{}: prefilling with {}", self.spec.summary(), self.tool));
        prefill::run(self)?;
        let meter = Meter::new(&self.target)?;
        if self.tool == Tool::RadosBench && self.spec.ramp_ms > 0 {
            // It cannot leave a part of its run out: the ramp is a run of its own.
            self.bar.set_message(format!("{}: ramp", self.spec.summary()));
            self.finish(self.start(self.spec.ramp_ms)?)?;
        }
        let mut clients = self.start(self.spec.runtime_ms)?;
        self.bar.set_message(format!("{}: {} connects", self.spec.summary(), self.tool));
        self.wait_for_begin(&mut clients)?;
        let ramp_ms = if self.tool == Tool::RadosBench { 0 } else { self.spec.ramp_ms };
        self.run_for(&mut clients, Duration::from_millis(ramp_ms))?;
        self.bar.set_message(format!("{}: measuring", self.spec.summary()));
        let begin = meter.read(&clients)?;
        self.run_for(&mut clients, Duration::from_millis(self.spec.runtime_ms))?;
        let end = meter.read(&clients)?;
        self.bar.set_message(format!("{}: {} ends", self.spec.summary(), self.tool));
        let command = clients.command().to_vec();
        let mut figures = self.finish(clients)?;
        let metered = meter.metered(&begin, &end);
        figures.result.client = metered.client;
        Ok((figures, metered, command))
    }

    fn start(&self, millis: u64) -> anyhow::Result<Clients> {
        Clients::start(self.tool, &self.spec, &self.programs, &self.target, self.pool, millis)
    }

    fn check_alive(&self) -> anyhow::Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if let Some((id, pid)) = self.target.osds.iter().find(|(_, process)| !process.alive()) {
            bail!("{id} (pid {}) died under the load; see its log", pid.pid);
        }
        Ok(())
    }

    fn wait_for_begin(&self, clients: &mut Clients) -> anyhow::Result<()> {
        let end = Instant::now() + BEGIN_LIMIT;
        while !clients.have_begun() {
            self.check_alive()?;
            clients.check_running()?;
            if Instant::now() > end {
                bail!("{} did not begin within {} s: {}", self.tool, BEGIN_LIMIT.as_secs(), clients.said());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets the load run; a tool that ends before is an error.
    fn run_for(&self, clients: &mut Clients, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.check_alive()?;
            // In the last moments it may end before its window does by our clock.
            if left > Duration::from_millis(200) {
                clients.check_running()?;
            }
            std::thread::sleep(left.min(LOOK * 10));
        }
    }

    fn finish(&self, mut clients: Clients) -> anyhow::Result<HostedFigures> {
        let end = Instant::now() + END_LIMIT.max(Duration::from_millis(self.spec.ramp_ms * 2));
        while !clients.have_ended()? {
            self.check_alive()?;
            if Instant::now() > end {
                bail!("{} did not end: {}", self.tool, clients.said());
            }
            std::thread::sleep(LOOK * 5);
        }
        clients.figures()
    }

    fn report(&self, figures: &HostedFigures, metered: &Metered, mut marks: Vec<String>) -> Report {
        let cpus = self.target.client_cpus.len();
        if self.spec.numjobs as usize > cpus {
            marks.push(format!("{} jobs share {cpus} client CPUs", self.spec.numjobs));
        }
        let mut report =
            report::report(&self.spec, &figures.result, &metered.window, self.target.context(marks));
        if figures.latency.is_some() {
            report.latency_histogram = LatencyHistograms::default();
        }
        report
    }

    /// Ceph's OSDs have no reactors to look at: their CPUs say whether they are the limit.
    fn judge(&self, figures: &HostedFigures, report: &mut Report) {
        let allocated = self.target.grid.allocated_cpus().len();
        if let Some((limiter, reason)) = limit::by_cpus(report, allocated) {
            (report.verdict, report.verdict_reason) = (limiter, reason);
        }
        if self.spec.rate_iops.is_none() && figures.result.ops() == 0 {
            report.marks.push("no operation completed".into());
        }
    }

    fn result_json(
        &self,
        figures: &HostedFigures,
        report: &Report,
        command: &[String],
    ) -> anyhow::Result<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut value = report::result_json(&self.spec, &figures.result, report, now);
        value["fio version"] = json!(figures.version);
        value["jobs"] = figures.jobs(&self.spec);
        value["carmine"]["client"] = json!({
            "tool": self.tool,
            "version": self.programs.version,
            "command": command,
        });
        value["carmine"]["peer"] = self.target.about_json()?;
        Ok(value)
    }
}
