//! Stacks of `perf script` as weighted lines, from which flamegraphs are drawn: `THREAD;OUTER;INNER WEIGHT`.
//!
//! Two kinds of recordings are read. Samples of a clock weigh 1 each. Stacks of `sched_switch` weigh the microseconds
//! until `PERF_RECORD_SWITCH IN` of the same thread.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use carmine_load::profile::HotFrame;
use carmine_load::stages::{Stage, StageShare};

use super::stages::stage;

/// Addresses of the kernel begin here on the 64-bit machines that Linux runs on.
const KERNEL: u64 = 0xffff_0000_0000_0000;
/// Frame of a thread that could have run on but was taken off its CPU.
const PREEMPTED: &str = "(preempted)";
/// The event of a thread that leaves its CPU.
const SWITCH: &str = "sched:sched_switch:";

/// Stacks and their weights.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// Frames, the outermost first, joined by `;` → weight.
    weights: BTreeMap<String, u64>,
    /// Function that a stack is attributed to → weight.
    by_function: HashMap<String, u64>,
    /// Stage of an operation → weight; `None`: no stage's.
    by_stage: BTreeMap<Option<Stage>, u64>,
    pub(super) stacks: u64,
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
        // A function of the program waits; the frames of the scheduler add nothing to that.
        let own = stack.frames.iter().find(|(_, is_kernel)| !stack.is_switch || !is_kernel);
        // A thread of the kernel: the function that called the scheduler.
        let caller = || stack.frames.iter().find(|(name, _)| name != PREEMPTED && !name.contains("schedule"));
        if let Some((name, _)) = own.or_else(caller).or(stack.frames.first()) {
            *self.by_function.entry(name.clone()).or_default() += weight;
        }
        *self.by_stage.entry(stage(&stack.thread, &stack.frames)).or_default() += weight;
        self.stacks += 1;
    }

    /// `FRAMES WEIGHT` of each, in order.
    pub(super) fn lines(&self) -> Vec<String> {
        self.weights.iter().filter(|(_, weight)| **weight > 0).map(|(f, w)| format!("{f} {w}")).collect()
    }

    /// The share of each stage, in the order of an operation.
    pub(super) fn stages(&self) -> Vec<StageShare> {
        let all: u64 = self.by_stage.values().sum();
        let share = |(stage, weight): (&Option<Stage>, &u64)| {
            Some(StageShare { stage: (*stage)?, percent: 100.0 * *weight as f64 / all.max(1) as f64 })
        };
        self.by_stage.iter().filter_map(share).collect()
    }

    /// The functions with most weight.
    pub(super) fn hottest(&self, most: usize) -> Vec<HotFrame> {
        let all: u64 = self.by_function.values().sum();
        let mut functions: Vec<(&String, &u64)> = self.by_function.iter().collect();
        functions.sort_unstable_by_key(|(name, weight)| (Reverse(*weight), *name));
        let percent = |weight: u64| 100.0 * weight as f64 / all.max(1) as f64;
        let hot = functions.into_iter().take(most);
        hot.map(|(name, weight)| HotFrame { name: name.clone(), percent: percent(*weight) }).collect()
    }
}

/// Folds the lines of `perf script`; lines of another form are left out.
pub(super) fn fold(lines: impl Iterator<Item = String>) -> Folded {
    let (mut folded, mut last_us) = (Folded::default(), 0.0_f64);
    // The event whose frames come next, and the threads that have left their CPU.
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

/// A symbol without the hash that the compiler appends, and without the characters that separate frames.
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
