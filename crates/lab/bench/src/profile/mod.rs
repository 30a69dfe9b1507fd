//! Flamegraphs of the OSDs by the program `perf`: where their threads spend CPU time, or where they wait without a CPU.
//!
//! `perf` writes its recording into a folder of its own while the OSDs work; stacks are read from it and drawn when the
//! measurement is over. Where `perf` cannot do it the error says why, and what to do. Facts: perf-record(1), perf-script(1), the
//! kernel's Documentation/admin-guide/sysctl/kernel.rst (perf_event_paranoid) and perf-security.rst.

mod stages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use carmine_load::profile::{HotFrame, Profile, ProfileMode};
use carmine_load::stages::{Stage, StageShare};
use inferno::flamegraph;
use stages::stage;
use tempfile::TempDir;

use crate::child::{Owned, read_within};

/// Time that is recorded: thousands of samples of each busy thread, …
const ON_CPU: Duration = Duration::from_secs(5);
/// … or, off CPU, up to some ten thousand stacks a second.
const OFF_CPU: Duration = Duration::from_secs(2);
/// Time for `perf` to attach itself before, and to write down what is left after.
const AROUND: Duration = Duration::from_secs(20);
/// Time to read the stacks and find their symbols.
const READ_LIMIT: Duration = Duration::from_secs(120);
/// How often an end is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// Functions that are named beside the picture.
const HOTTEST: usize = 10;
/// Samples a second and thread. Not a round number: nothing in the OSD happens in step with it.
const FREQUENCY: &str = "499";
/// Where the kernel shows its trace points.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Names of files in the recording's folder: the recording, and the messages of `perf` while it recorded.
const DATA: &str = "perf.data";
const SAID: &str = "said";

/// Length of a recording.
pub fn length(mode: ProfileMode) -> Duration {
    match mode {
        ProfileMode::OnCpu => ON_CPU,
        ProfileMode::OffCpu => OFF_CPU,
    }
}

/// A recording; `perf` ends when it is dropped.
#[derive(Debug)]
pub struct Recording {
    mode: ProfileMode,
    folder: TempDir,
    perf: Owned,
    until: Instant,
}

impl Recording {
    /// Begins to record the threads of these processes.
    ///
    /// # Errors
    /// Why there can be no recording, and what to do.
    pub fn start(mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        Self::start_for(length(mode), mode, pids)
    }

    /// Stacks are walked by frame pointers, which this workspace is built with.
    fn start_for(time: Duration, mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("no folder for perf's recording: {e}"))?;
        let said = File::create(folder.path().join(SAID));
        let said = said.map_err(|e| format!("no file for perf's messages: {e}"))?;
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--call-graph", "fp", "--pid", &pids.join(",")]);
        match mode {
            // A clock of the kernel's: there need not be a hardware counter.
            ProfileMode::OnCpu => command.args(["--event", "cpu-clock", "--freq", FREQUENCY]),
            // The stack of each thread that leaves its CPU, and the time when it comes back.
            ProfileMode::OffCpu => command.args(["--event", "sched:sched_switch", "--switch-events"]),
        };
        command.arg("--output").arg(folder.path().join(DATA));
        command.args(["--", "sleep", &time.as_secs_f64().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
        let perf = Owned(command.spawn().map_err(|e| not_started(&e))?);
        Ok(Recording { mode, folder, perf, until: Instant::now() + time + AROUND })
    }

    /// True when `perf` is done, or its time is over.
    pub fn has_ended(&mut self) -> bool {
        Instant::now() >= self.until || !matches!(self.perf.0.try_wait(), Ok(None))
    }

    /// The whole recording; waits for `perf` to write it down.
    ///
    /// # Errors
    /// Why `perf` could not record, and what to do.
    pub fn finish(mut self) -> Result<Recording, String> {
        while !self.has_ended() {
            std::thread::sleep(LOOK);
        }
        match self.perf.0.try_wait() {
            Ok(Some(status)) if status.success() => Ok(self),
            Ok(None) => Err(format!("perf did not end within {} s of its time", AROUND.as_secs())),
            _ => {
                let said = std::fs::read_to_string(self.folder.path().join(SAID));
                Err(why_not(self.mode, &said.unwrap_or_default()))
            }
        }
    }

    /// Reads the stacks of a whole recording and draws them. The profile does not name the picture's file yet.
    ///
    /// # Errors
    /// When `perf` cannot read its own recording, or there is nothing in it.
    pub fn draw(&self, title: &str) -> Result<(Vec<u8>, Profile), String> {
        let folded = self.fold()?;
        if folded.stacks == 0 {
            let idle = "the OSDs' threads did nothing while perf looked";
            return Err(format!("perf recorded no stack: {idle}, or it may not see them"));
        }
        let (what, unit, palette) = match self.mode {
            ProfileMode::OnCpu => ("On CPU", "samples", "hot"),
            ProfileMode::OffCpu => ("Off CPU", "us", "blue"),
        };
        let mut options = flamegraph::Options::default();
        options.title = format!("{what}: {title}");
        options.count_name = unit.to_owned();
        options.deterministic = true;
        options.colors = palette.parse()?;
        let (lines, mut svg) = (folded.lines(), Vec::new());
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
            .map_err(|e| format!("the flamegraph could not be drawn: {e}"))?;
        let (stacks, hottest) = (folded.stacks, folded.hottest(HOTTEST));
        let stages = if self.mode == ProfileMode::OnCpu { folded.stages() } else { Vec::new() };
        Ok((svg, Profile { mode: self.mode, svg: None, missing: None, stacks, hottest, stages }))
    }

    /// Without inlined functions: finding them takes minutes.
    fn fold(&self) -> Result<Folded, String> {
        let mut command = Command::new("perf");
        command.args(["script", "--show-switch-events", "--no-inline"]);
        command.args(["--fields", "comm,tid,time,event,ip,sym", "--input"]);
        let read = |out: ChildStdout| {
            let lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
            fold(lines.map(|line| String::from_utf8_lossy(&line).into_owned()))
        };
        let folded = read_within(command.arg(self.folder.path().join(DATA)), READ_LIMIT, read);
        let folded = folded.map_err(|e| not_started(&e))?;
        folded.ok_or_else(|| format!("perf script took more than {} s", READ_LIMIT.as_secs()))
    }
}

fn not_started(error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound {
        return "perf is not installed: apt-get install linux-perf (Ubuntu: linux-tools-$(uname -r))".into();
    }
    format!("perf cannot be started: {error}")
}

/// Why `perf` did not record, and what to do, by what it said and by what the kernel allows.
fn why_not(mode: ProfileMode, said: &str) -> String {
    let paranoid = std::fs::read_to_string(PARANOID).ok().and_then(|text| text.trim().parse().ok());
    let paranoid = paranoid.filter(|_| !rustix::process::geteuid().is_root());
    let has_tracepoints = TRACEFS.iter().any(|dir| Path::new(dir).join("events/sched").exists());
    explain(mode, said, paranoid, has_tracepoints)
}

/// `paranoid`: the kernel's setting, which root need not care for.
fn explain(mode: ProfileMode, said: &str, paranoid: Option<i32>, has_tracepoints: bool) -> String {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
    let line = line.unwrap_or("it says nothing");
    let may = match mode {
        ProfileMode::OnCpu => 1,
        ProfileMode::OffCpu => -1,
    };
    if let Some(level) = paranoid.filter(|level| *level > may) {
        return format!(
            "perf may not do it: kernel.perf_event_paranoid is {level}; be root, or as root: \
             sysctl kernel.perf_event_paranoid={may} (perf: {line})"
        );
    }
    if mode == ProfileMode::OffCpu && !has_tracepoints {
        let (mount, or) =
            (format!("mount -t tracefs tracefs {}", TRACEFS[0]), "take a kernel with CONFIG_FTRACE");
        return format!(
            "the scheduler's trace points cannot be seen; as root: {mount}, or {or} (perf: {line})"
        );
    }
    format!("perf failed: {line}")
}

// Stacks of `perf script` as weighted lines, which is what flamegraphs are drawn from: `THREAD;OUTER;INNER WEIGHT`.
//
// Two kinds of recordings are read. Samples of a clock weigh 1 each. Stacks of `sched_switch` weigh the microseconds
// until `PERF_RECORD_SWITCH IN` of the same thread.

/// Addresses of the kernel begin here on the 64-bit machines that Linux runs on.
const KERNEL: u64 = 0xffff_0000_0000_0000;
/// Frame of a thread that could have gone on and was taken off its CPU.
const PREEMPTED: &str = "(preempted)";
/// The event of a thread that leaves its CPU.
const SWITCH: &str = "sched:sched_switch:";

/// Stacks and their weights.
#[derive(Debug, Default)]
struct Folded {
    /// Frames, the outermost first, joined by `;` → weight.
    weights: BTreeMap<String, u64>,
    /// Function that a stack is attributed to → weight.
    by_function: HashMap<String, u64>,
    /// Stage of an operation → weight; `None`: no stage's.
    by_stage: BTreeMap<Option<Stage>, u64>,
    stacks: u64,
}

/// A stack and where it was taken.
#[derive(Debug, Default)]
struct Stack {
    thread: String,
    tid: u32,
    us: f64,
    is_switch: bool,
    /// Names with `true` for the kernel's, the innermost first.
    frames: Vec<(String, bool)>,
}

impl Folded {
    fn add(&mut self, stack: &Stack, weight: f64) {
        let weight = weight.max(0.0) as u64;
        let outer_first = stack.frames.iter().rev().map(|(name, _)| name.as_str());
        let path: Vec<&str> = std::iter::once(stack.thread.as_str()).chain(outer_first).collect();
        *self.weights.entry(path.join(";")).or_default() += weight;
        // A function of the program waits; that it waits in the scheduler says nothing.
        let own = stack.frames.iter().find(|(_, is_kernel)| !stack.is_switch || !is_kernel);
        // A thread of the kernel: who called the scheduler.
        let caller = || stack.frames.iter().find(|(name, _)| name != PREEMPTED && !name.contains("schedule"));
        if let Some((name, _)) = own.or_else(caller).or(stack.frames.first()) {
            *self.by_function.entry(name.clone()).or_default() += weight;
        }
        *self.by_stage.entry(stage(&stack.thread, &stack.frames)).or_default() += weight;
        self.stacks += 1;
    }

    /// `FRAMES WEIGHT` of each, in order.
    fn lines(&self) -> Vec<String> {
        self.weights.iter().filter(|(_, weight)| **weight > 0).map(|(f, w)| format!("{f} {w}")).collect()
    }

    /// The share of each stage, in the order of an operation.
    fn stages(&self) -> Vec<StageShare> {
        let all: u64 = self.by_stage.values().sum();
        let share = |(stage, weight): (&Option<Stage>, &u64)| {
            Some(StageShare { stage: (*stage)?, percent: 100.0 * *weight as f64 / all.max(1) as f64 })
        };
        self.by_stage.iter().filter_map(share).collect()
    }

    /// The functions with most weight.
    fn hottest(&self, most: usize) -> Vec<HotFrame> {
        let all: u64 = self.by_function.values().sum();
        let mut functions: Vec<(&String, &u64)> = self.by_function.iter().collect();
        functions.sort_unstable_by_key(|(name, weight)| (Reverse(*weight), *name));
        let percent = |weight: u64| 100.0 * weight as f64 / all.max(1) as f64;
        let hot = functions.into_iter().take(most);
        hot.map(|(name, weight)| HotFrame { name: name.clone(), percent: percent(*weight) }).collect()
    }
}

/// Folds the lines of `perf script`; lines of another form are left out.
fn fold(lines: impl Iterator<Item = String>) -> Folded {
    let (mut folded, mut last_us) = (Folded::default(), 0.0_f64);
    // The event whose frames come now, and the threads that have left their CPU.
    let (mut open, mut off) = (None::<Stack>, HashMap::<u32, Stack>::new());
    for line in lines.chain([String::new()]) {
        if line.starts_with(char::is_whitespace)
            && let Some(stack) = &mut open
        {
            stack.frames.extend(frame(&line));
            continue;
        }
        match open.take() {
            Some(stack) if stack.is_switch => _ = off.insert(stack.tid, stack),
            Some(stack) => folded.add(&stack, 1.0),
            None => {}
        }
        let Some((now, event)) = head(&line) else { continue };
        last_us = last_us.max(now.us);
        match event.strip_prefix("PERF_RECORD_SWITCH").map(str::trim) {
            None => open = Some(Stack { is_switch: event == SWITCH, ..now }),
            // It left its CPU; its stack came just before.
            Some(how) if how.starts_with("OUT") => {
                let left = off.get_mut(&now.tid).filter(|_| how.contains("preempt"));
                left.into_iter().for_each(|left| left.frames.insert(0, (PREEMPTED.to_owned(), true)));
            }
            Some(_) => {
                off.remove(&now.tid).into_iter().for_each(|left| folded.add(&left, now.us - left.us));
            }
        }
    }
    // A thread that has not come back waits until the end.
    off.into_values().for_each(|left| folded.add(&left, last_us - left.us));
    folded
}

/// `COMM TID SECONDS: EVENT`: where the stack was taken, and the event. The name of a thread may have blanks in it.
fn head(line: &str) -> Option<(Stack, &str)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let places = words.windows(2).enumerate().filter_map(|(at, pair)| {
        let seconds: f64 = pair[1].strip_suffix(':')?.parse().ok()?;
        Some((at, pair[0].parse().ok()?, seconds, pair[1]))
    });
    let (at, tid, seconds, word) = places.into_iter().next()?;
    let event = line.get(line.find(word)? + word.len()..)?.trim();
    let thread = words[..at].join(" ").replace(';', ":");
    Some((Stack { thread, tid, us: seconds * 1e6, ..Stack::default() }, event))
}

/// `ADDRESS SYMBOL`: the symbol, and whether it is the kernel's.
fn frame(line: &str) -> Option<(String, bool)> {
    let (address, symbol) = line.trim().split_once(' ')?;
    let is_kernel = u64::from_str_radix(address, 16).ok()? >= KERNEL;
    Some((plain(symbol), is_kernel))
}

/// A symbol without the hash that the compiler puts behind it, and without what separates frames.
fn plain(symbol: &str) -> String {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let symbol = match symbol.trim().rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name,
        _ => symbol.trim(),
    };
    symbol.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the real `perf`, of this process; where it cannot, the reason has something to do in it.
    #[test]
    fn a_flamegraph_of_ourselves_or_a_reason() {
        for mode in [ProfileMode::OnCpu, ProfileMode::OffCpu] {
            let begin = Instant::now();
            let recording = Recording::start_for(Duration::from_millis(300), mode, &[std::process::id()]);
            let recorded = recording.and_then(|mut recording| {
                while !recording.has_ended() {
                    std::thread::sleep(Duration::from_millis(5));
                    while begin.elapsed().as_millis() % 20 < 10 {
                        std::hint::spin_loop();
                    }
                }
                recording.finish()
            });
            match recorded.and_then(|recorded| recorded.draw("this test")) {
                Ok((svg, profile)) => {
                    let svg = String::from_utf8(svg).unwrap();
                    assert!(svg.contains("<svg") && svg.contains("this test"));
                    assert!(profile.stacks > 10 && !profile.hottest.is_empty(), "{profile:?}");
                }
                Err(why) => {
                    assert!(why.len() > 20, "{why}");
                    carmine_testkit::skip(why);
                }
            }
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let denied = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        let of = |mode, said, is_root: bool, paranoid: Option<i32>, traces| {
            explain(mode, said, paranoid.filter(|_| !is_root), traces)
        };
        let why = of(ProfileMode::OnCpu, denied, false, Some(3), true);
        assert!(why.contains("sysctl kernel.perf_event_paranoid=1") && why.contains("is 3"), "{why}");
        let why = of(ProfileMode::OffCpu, denied, false, Some(1), true);
        assert!(why.contains("paranoid=-1"), "{why}");
        let why = of(ProfileMode::OffCpu, "event syntax error: 'sched:sched_switch'\n", true, Some(3), false);
        assert!(why.contains("mount -t tracefs") && why.contains("event syntax error"), "{why}");
        let why = of(ProfileMode::OnCpu, "\nWARNING: perf not found for kernel 9\n", true, Some(3), true);
        assert_eq!(why, "perf failed: WARNING: perf not found for kernel 9");
        let missing = not_started(&std::io::Error::from(ErrorKind::NotFound));
        assert!(missing.contains("apt-get install linux-perf"), "{missing}");
    }
}

#[cfg(test)]
mod fold_tests {
    use super::*;

    fn folded(text: &str) -> Folded {
        fold(text.lines().map(str::to_owned))
    }

    /// Captured from `perf script` 6.1, shortened.
    const ON_CPU: &str = "\
osd.0-0 22773 23550.098789: cpu-clock: 
	ffffffff821facd8 native_write_msr
	            e2bc carmine_osd::pg::exec::run::h0123456789abcdef
	           1ab78 start_thread

osd.0-0 22773 23550.100789: cpu-clock: 
	            e2bc carmine_osd::pg::exec::run::h0123456789abcdef
	           1ab78 start_thread

rocksdb:low one 22780 23550.101000: cpu-clock: 
	            e2bc crc32c::Extend(unsigned int, char const*)
";

    #[test]
    fn samples_weigh_one_each() {
        let folded = folded(ON_CPU);
        assert_eq!(
            folded.lines(),
            [
                "osd.0-0;start_thread;carmine_osd::pg::exec::run 1",
                "osd.0-0;start_thread;carmine_osd::pg::exec::run;native_write_msr 1",
                "rocksdb:low one;crc32c::Extend(unsigned int, char const*) 1",
            ]
        );
        let hottest = folded.hottest(2);
        assert_eq!((folded.stacks, hottest.len()), (3, 2));
        assert!((hottest[0].percent - 33.3).abs() < 0.1, "{hottest:?}");
    }

    /// Captured from `perf script --show-switch-events`, shortened: 3 is still off its CPU at the end.
    const OFF_CPU: &str = "\
a 1 10.000100: sched:sched_switch: 
	ffffffff821facd8 __schedule
	            d3bd3 wait4

a 1 10.000101: PERF_RECORD_SWITCH OUT        
b 2 10.000200: sched:sched_switch: 
	ffffffff821facd8 __schedule
	            d3bd3 poll

b 2 10.000201: PERF_RECORD_SWITCH OUT preempt        
b 2 10.000300: PERF_RECORD_SWITCH IN         
a 1 10.001100: PERF_RECORD_SWITCH IN         
c 3 10.001150: sched:sched_switch: 
	ffffffff821facd8 __schedule
	ffffffff821facd9 schedule_timeout
	ffffffff821facda io_wq_worker

c 3 10.001151: PERF_RECORD_SWITCH OUT        
a 1 10.001200: PERF_RECORD_SWITCH IN         
";

    #[test]
    fn switches_weigh_the_time_until_the_thread_is_back() {
        let folded = folded(OFF_CPU);
        let lines = folded.lines();
        let weight = |start: &str| {
            let line = lines.iter().find(|line| line.starts_with(start));
            let line = line.unwrap_or_else(|| panic!("no {start} in {lines:?}"));
            line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()
        };
        // The times come as fractions of seconds: rounded to a microsecond.
        assert!((weight("a;wait4;__schedule ") - 1000).abs() <= 1);
        assert!((weight("b;poll;__schedule;(preempted) ") - 100).abs() <= 1);
        assert!((weight("c;io_wq_worker;schedule_timeout;__schedule ") - 50).abs() <= 1);
        assert_eq!((folded.stacks, lines.len()), (3, 3));
        let names: Vec<String> = folded.hottest(3).into_iter().map(|frame| frame.name).collect();
        assert_eq!(names, ["wait4", "poll", "io_wq_worker"], "not the scheduler");
    }

    #[test]
    fn strange_lines_are_left_out() {
        assert_eq!(folded("").stacks, 0);
        let strange = "hello\n\tnonsense\nx 1 2: cpu-clock:\n\tzz sym\n\tff\n\tff a;b::hxyz\n# comment\n";
        assert_eq!(folded(strange).lines(), ["x;a:b::hxyz 1"]);
    }
}
