//! Delays of the links of `--namespaces` (`--net-delay-us`), where the kernel has no netem: for each OSD a process of ours (`carmine relay`)
//! between the two ends of its link, which holds each frame back for as long as was asked. It costs CPU time that a network would not:
//! it runs on the CPUs of the monitor and the controller, is in no OSD's CPU time, and results say what it used and what the delay was.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use carmine_reactor::{lost_packets, packet_socket, precise_timers};
use carmine_types::OsdId;
use fs_err as fs;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::error::{Result, fail_if, failed};
use crate::files::{read_json, remove_file, write_json};
use crate::folder::{self, BedKind};
use crate::layout::{Daemon, Layout};
use crate::neighbour::cpu_seconds;
use crate::network;
use crate::output::json_text;
use crate::plan::Plan;
use crate::process::{KILL_LIMIT, ProcessId, logged, restrict_to, spawn};

/// The hidden command of `carmine` that is a relay.
pub const RELAY_COMMAND: &str = "relay";
/// The largest frame with the kernel's note before it.
const FRAME_MAX_BYTES: usize = 80 << 10;
/// Bytes and frames that wait in one direction; what comes beyond them is dropped.
const QUEUE_BYTES: u64 = 32 << 20;
const QUEUE_FRAMES: usize = 64 << 10;
/// Pause between two records of what was measured.
const RECORD_PAUSE: Duration = Duration::from_millis(250);
/// A relay is there within this time.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Delays are counted in classes of this width; the last class has all longer ones.
const CLASS_US: u64 = 10;
const CLASSES: usize = 20_000;

/// What a relay has measured since its OSD was started first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayReport {
    /// The OSD whose link it is.
    pub osd: u32,
    /// The delay that was asked for, one way, microseconds.
    pub asked_us: u64,
    /// The time between a frame's arrival and its departure, microseconds: of half of the frames, and of 99 % of them, no more.
    pub median_us: Option<u64>,
    /// See `median_us`.
    pub p99_us: Option<u64>,
    /// Frames that it has passed on, both ways.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that found its queue full, or that the kernel would not take.
    pub dropped: u64,
    /// CPU time that it has used, seconds.
    pub cpu_seconds: Option<f64>,
}

/// Counts of one relay, both ways.
struct Counts {
    bytes: AtomicU64,
    dropped: AtomicU64,
    /// Frames by their delay.
    delays: Vec<AtomicU64>,
}

/// A frame that waits.
struct Frame {
    came: Instant,
    bytes: Vec<u8>,
}

/// Starts the relay of an OSD whose link has a delay, unless it runs.
///
/// # Errors
/// It does not get ready.
pub(crate) fn start(layout: &Layout, plan: &Plan, programs: &Path, daemon: Daemon) -> Result<()> {
    let Daemon::Osd(osd) = daemon else { return Ok(()) };
    let record = layout.relay_pid(osd);
    let running: Option<ProcessId> = read_json(&record)?;
    if plan.net_delay_us == 0 || running.is_some_and(|id| id.alive()) {
        return Ok(());
    }
    remove_file(&layout.relay_measured(osd))?;
    let mut command: Command = logged(programs.join("carmine"), &layout.relay_log(osd))?;
    command.args([RELAY_COMMAND, "--dir"]).arg(layout.dir()).args(["--id", &osd.0.to_string()]);
    let child = network::within_relay(plan, daemon, || spawn(command.stdin(Stdio::null())))?;
    let id = ProcessId::find(child.id() as i32).ok_or_else(|| failed!("the relay of {daemon} has ended"))?;
    write_json(&record, &id)?;
    let end = Instant::now() + START_LIMIT;
    while !layout.relay_measured(osd).exists() {
        let log = layout.relay_log(osd);
        fail_if!(
            !id.alive() || Instant::now() > end,
            "the relay of {daemon} did not start; see {}",
            log.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Ends all relays of a testbed, whose namespaces go next.
pub(crate) fn stop_all(layout: &Layout) -> Result<()> {
    for osd in recorded(layout) {
        if let Some(id) = read_json::<ProcessId>(&layout.relay_pid(osd))? {
            id.signal(Signal::KILL)?;
            fail_if!(!id.wait_gone(KILL_LIMIT), "the relay of {osd} (process {}) does not end", id.pid);
        }
        remove_file(&layout.relay_pid(osd))?;
    }
    Ok(())
}

/// OSDs that have the record of a relay.
fn recorded(layout: &Layout) -> Vec<OsdId> {
    let names = fs::read_dir(layout.run_dir()).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let id = |name: String| name.strip_prefix("relay.")?.strip_suffix(".json")?.parse().ok();
    let mut ids: Vec<u32> = names.filter_map(id).collect();
    ids.sort_unstable();
    ids.into_iter().map(OsdId).collect()
}

/// What the relays of a testbed have measured so far; none where no link has a delay.
///
/// # Errors
/// A record cannot be read.
pub fn reports(layout: &Layout) -> Result<Vec<RelayReport>> {
    let mut all = Vec::new();
    for osd in recorded(layout) {
        let id: Option<ProcessId> = read_json(&layout.relay_pid(osd))?;
        let report: Option<RelayReport> = read_json(&layout.relay_measured(osd))?;
        if let (Some(id), Some(report)) = (id.filter(ProcessId::alive), report) {
            all.push(RelayReport { cpu_seconds: cpu_seconds(id.pid as u32), ..report });
        }
    }
    Ok(all)
}

/// Subtracts the counts of `before` from those of the same relays now. The percentiles of delays still cover every frame since a relay
/// started.
#[must_use]
pub fn since(before: &[RelayReport], mut now: Vec<RelayReport>) -> Vec<RelayReport> {
    for report in &mut now {
        let Some(old) = before.iter().find(|old| old.osd == report.osd) else { continue };
        report.frames = report.frames.saturating_sub(old.frames);
        report.bytes = report.bytes.saturating_sub(old.bytes);
        report.dropped = report.dropped.saturating_sub(old.dropped);
        let used = report.cpu_seconds.zip(old.cpu_seconds).map(|(now, old)| now - old);
        report.cpu_seconds = used;
    }
    now
}

impl RelayReport {
    /// What people must know of a result that has it.
    #[must_use]
    pub fn mark(&self) -> String {
        let us = |us: Option<u64>| us.map_or("?".to_owned(), |us| us.to_string());
        format!(
            "RELAY: a process of ours, no network, delayed the link of osd.{} by {} us each way (asked {}; p99 {}): {} frames, {} dropped, \
             {:.2} s of CPU time that count for nobody",
            self.osd,
            us(self.median_us),
            self.asked_us,
            us(self.p99_us),
            self.frames,
            self.dropped,
            self.cpu_seconds.unwrap_or_default()
        )
    }
}

/// Acts as the relay of an OSD until it is ended; its process is in the relays' namespace.
///
/// # Errors
/// The ends of the link are not there, or this user may not read frames.
pub fn run(layout: &Layout, osd: OsdId) -> Result<()> {
    crate::process::detach();
    let plan = folder::require(BedKind::Testbed, layout)?;
    restrict_to(&plan.grid.system_cpus().to_vec())?;
    let delay = Duration::from_micros(plan.net_delay_us.into());
    let counts = Arc::new(Counts {
        bytes: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        delays: (0..CLASSES).map(|_| AtomicU64::new(0)).collect(),
    });
    let [outer, inner] = network::relay_ends(&plan, osd)?.map(|end| socket(&end));
    let sockets = [outer?, inner?];
    let [outer, inner] = sockets.each_ref().map(|socket| socket.try_clone().map(File::from));
    let (outer, inner) = (outer?, inner?);
    std::thread::scope(|scope| {
        for (from, to) in [(&outer, &inner), (&inner, &outer)] {
            let (sender, receiver) = mpsc::sync_channel(QUEUE_FRAMES);
            let (own, queued) = (&counts, Arc::new(AtomicU64::new(0)));
            let waiting = queued.clone();
            scope.spawn(move || take_in(from, &sender, &waiting, own));
            scope.spawn(move || give_out(to, &receiver, delay, &queued, own));
        }
        loop {
            for socket in &sockets {
                let lost = lost_packets(socket).unwrap_or(0);
                counts.dropped.fetch_add(lost.into(), Ordering::Relaxed);
            }
            let text = json_text(&counts.report(osd, delay))?;
            // Readers see a whole file, but it need not survive a crash.
            let (path, new) = (layout.relay_measured(osd), layout.relay_measured(osd).with_extension("new"));
            fs::write(&new, text)?;
            fs::rename(&new, &path)?;
            std::thread::sleep(RECORD_PAUSE);
        }
    })
}

/// The raw socket of an interface of this namespace.
fn socket(interface: &str) -> Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(interface).map_err(|e| failed!("{interface}: {e}"))?;
    packet_socket(index).map_err(|e| failed!("cannot read the frames of {interface}: {e}"))
}

/// Reads frames and queues them.
fn take_in(mut from: &File, queue: &mpsc::SyncSender<Frame>, queued: &AtomicU64, counts: &Counts) {
    precise_timers();
    let mut buffer = vec![0; FRAME_MAX_BYTES];
    loop {
        let Some(len) = went(from.read(&mut buffer)) else { continue };
        let frame = Frame { came: Instant::now(), bytes: buffer[..len].to_vec() };
        // Counted before it is queued: the other thread may take it out at once.
        let has_room = queued.fetch_add(len as u64, Ordering::Relaxed) < QUEUE_BYTES;
        if !has_room || queue.try_send(frame).is_err() {
            queued.fetch_sub(len as u64, Ordering::Relaxed);
            counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends each frame when its time has come. The delay is the same for all, so they leave in the order in which they came.
fn give_out(
    mut to: &File,
    queue: &mpsc::Receiver<Frame>,
    delay: Duration,
    queued: &AtomicU64,
    counts: &Counts,
) {
    precise_timers();
    while let Ok(frame) = queue.recv() {
        let due = frame.came + delay;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        queued.fetch_sub(frame.bytes.len() as u64, Ordering::Relaxed);
        match went(to.write(&frame.bytes)) {
            Some(len) => counts.passed(len as u64, frame.came.elapsed()),
            None => _ = counts.dropped.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Bytes that were read or written; where the link is down, as `thrash` sets it, there are none.
fn went(done: io::Result<usize>) -> Option<usize> {
    if done.is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    done.ok()
}

impl Counts {
    fn passed(&self, bytes: u64, delay: Duration) {
        let class = (delay.as_micros() as u64 / CLASS_US).min(CLASSES as u64 - 1);
        self.delays[class as usize].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn report(&self, osd: OsdId, asked: Duration) -> RelayReport {
        let classes: Vec<u64> = self.delays.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let frames = classes.iter().sum();
        RelayReport {
            osd: osd.0,
            asked_us: asked.as_micros() as u64,
            median_us: percentile_us(&classes, 50),
            p99_us: percentile_us(&classes, 99),
            frames,
            bytes: self.bytes.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            cpu_seconds: None,
        }
    }
}

/// The upper end of the class in which a percentile of the frames is; none without frames.
fn percentile_us(classes: &[u64], percent: u64) -> Option<u64> {
    let all: u64 = classes.iter().sum();
    let mut below = 0;
    let class = classes.iter().position(|count| {
        below += count;
        below > 0 && below * 100 >= all * percent
    })?;
    Some((class as u64 + 1) * CLASS_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_its_own_counts() {
        let report =
            |osd, frames, cpu_seconds| RelayReport { osd, frames, cpu_seconds, ..RelayReport::default() };
        let now = since(&[report(1, 10, Some(0.5))], vec![report(0, 7, None), report(1, 30, Some(2.0))]);
        assert_eq!(now, [report(0, 7, None), report(1, 20, Some(1.5))]);
        assert!(now[1].mark().contains("20 frames, 0 dropped, 1.50 s"), "{}", now[1].mark());
    }

    #[test]
    fn percentiles_of_classes() {
        assert_eq!(percentile_us(&[0, 0], 50), None);
        assert_eq!(percentile_us(&[1, 0, 2], 50), Some(30));
        assert_eq!(percentile_us(&[98, 0, 2], 50), Some(10));
        assert_eq!(percentile_us(&[98, 0, 2], 99), Some(30));
    }
}
