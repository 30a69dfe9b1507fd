//! `carmine measure`: the work of a cluster's OSDs while any command runs.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use carmine_load::report::{OsdReport, osd_line, osd_report, show};
use carmine_load::verdict::{Evidence, verdict};
use carmine_load::window::{DeviceWindow, Window};
use carmine_testbed::{DirArgs, Layout, note, print, write_json};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Cluster, plan};
use crate::sample::host_report;

/// Time between two looks at the command.
const LOOK: Duration = Duration::from_millis(20);
/// The shell's exit code for a command that cannot be started.
const CANNOT_START: u8 = 127;

/// Options of `measure`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit code: that of COMMAND; 127 if it cannot be started, 1 if the OSDs cannot be measured.\n\n\
                  COMMAND finds the cluster by CEPH_CONF, for example:\n  \
                  carmine measure --dir /tmp/tb -- rados -p bench bench 10 write"
)]
pub struct MeasureArgs {
    /// Folder of the testbed, or of the peer, which must run
    #[command(flatten)]
    dir: DirArgs,
    /// File for the result, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What the OSDs did while a command ran.
#[derive(Clone, Debug, Serialize)]
struct Measurement {
    command: Vec<String>,
    /// `None`: a signal ended it.
    exit_code: Option<i32>,
    seconds: f64,
    /// Operations of clients that the OSDs answered, by their own count; `None` if they do not count them (a peer's).
    ops: Option<u64>,
    iops: Option<f64>,
    osd_cpu_us_per_op: Option<f64>,
    /// Operations per second and CPU that the OSDs used.
    iops_per_core_used: Option<f64>,
    /// CPUs that anything but the OSDs and the monitor used: the command is among them.
    other_cores: f64,
    osds: Vec<OsdReport>,
    devices: Vec<DeviceWindow>,
    verdict: String,
    verdict_reason: String,
    verdict_next: String,
    host: Value,
}

/// Runs a command, and prints what the OSDs did meanwhile.
///
/// # Errors
/// The cluster does not run, or cannot be read.
pub fn run(args: &MeasureArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let plan = plan(&layout)?;
    let cluster = Cluster::running(layout, plan)?;
    let start = cluster.read(&cluster.sampler)?;
    let [program, words @ ..] = &args.command[..] else { unreachable!("clap requires a command") };
    let child =
        Command::new(program).args(words).env("CEPH_CONF", cluster.layout.dir().join("ceph.conf")).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            note(&format!("{program} cannot be started: {error}"));
            return Ok(ExitCode::from(CANNOT_START));
        }
    };
    let status = loop {
        if let Some(status) = child.try_wait().context("the command's end")? {
            break status;
        }
        // A terminal's Ctrl-C reaches the command, too; anybody else's end of this command is passed on.
        if cancel.load(Ordering::Relaxed) {
            let _ = child.kill();
        }
        std::thread::sleep(LOOK);
    };
    let end = cluster.read(&cluster.sampler)?;
    let window = start.window_to(&end, &cluster.sampler, 0.0);
    let measured = Measurement::new(args.command.clone(), status.code(), &window);
    print(&measured.table())?;
    if let Some(path) = &args.json {
        write_json(path, &measured)?;
    }
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1))))
}

impl Measurement {
    fn new(command: Vec<String>, exit_code: Option<i32>, window: &Window) -> Measurement {
        let seconds = window.wall_ns as f64 / 1e9;
        let ops: Option<u64> = window.osds.iter().map(|osd| osd.client_ops).sum();
        let ops = ops.filter(|ops| *ops > 0);
        let osd_cpu = window.osds.iter().map(|osd| osd.process.cpu_ns).sum::<u64>() as f64 / 1e9;
        let per_op = |value: f64| ops.map(|ops| value / ops as f64);
        let machine = &window.machine;
        let others_ns = machine.busy_ns as f64 - osd_cpu * 1e9 - machine.mon_ns as f64;
        // Neither how much the command asks nor what it reads itself is known: only the OSDs can be named.
        let unknown = Evidence { depth: f64::INFINITY, own_ops: f64::INFINITY, ..Evidence::default() };
        let named = verdict(&Window { devices: Vec::new(), ..window.clone() }, &unknown);
        Measurement {
            command,
            exit_code,
            seconds,
            ops,
            iops: ops.map(|ops| ops as f64 / seconds),
            osd_cpu_us_per_op: per_op(osd_cpu * 1e6),
            iops_per_core_used: ops.map(|ops| ops as f64 / osd_cpu).filter(|iops| iops.is_finite()),
            other_cores: (others_ns / window.wall_ns.max(1) as f64).max(0.0),
            osds: window.osds.iter().map(osd_report).collect(),
            devices: window.devices.clone(),
            verdict: named.limiter.to_string(),
            verdict_reason: named.reason,
            verdict_next: named.next,
            host: host_report(),
        }
    }

    fn table(&self) -> String {
        let code = self.exit_code.map_or("ended by a signal".into(), |code| format!("exit code {code}"));
        let mut text = format!(
            "\ncommand   {}: {code} after {:.1} s\nOSDs      {} operations, {} a second; CPU us/op {}, IOPS per core used {}; \
             others used {:.2} CPUs\n",
            self.command.join(" "),
            self.seconds,
            show(self.ops.map(|ops| ops as f64), 0),
            show(self.iops, 0),
            show(self.osd_cpu_us_per_op, 1),
            show(self.iops_per_core_used, 0),
            self.other_cores,
        );
        for osd in &self.osds {
            text += &(osd_line(osd) + "\n");
        }
        let [reads, writes] =
            [|osd: &OsdReport| osd.device_read_bytes, |osd: &OsdReport| osd.device_write_bytes]
                .map(|of| self.osds.iter().map(of).sum::<u64>() as f64 / 1e6);
        for device in &self.devices {
            let (read, written) = (device.read_bytes as f64 / 1e6, device.write_bytes as f64 / 1e6);
            text += &format!(
                "{:<9} read {read:.1} MB (the OSDs {reads:.1}), written {written:.1} MB (the OSDs {writes:.1})\n",
                device.name
            );
        }
        text += &format!(
            "verdict   {}: {}\ntry next  {}\n",
            self.verdict, self.verdict_reason, self.verdict_next
        );
        text
    }
}
