//! Stacks of `perf script` as weighted lines, which is what flamegraphs are drawn from: `THREAD;OUTER;INNER WEIGHT`.
//!
//! Two kinds of recordings are read. Samples of a clock weigh 1 each. Stacks of `sched_switch` weigh the microseconds
//! until `PERF_RECORD_SWITCH IN` of the same thread.

use std::collections::{BTreeMap, HashMap};

use carmine_load::profile::HotFrame;

/// Addresses of the kernel begin here on the 64-bit machines that Linux runs on.
const KERNEL: u64 = 0xffff_0000_0000_0000;
/// Frame of a thread that could have gone on and was taken off its CPU.
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
    pub(super) stacks: u64,
}

/// A stack and where it was taken.
#[derive(Debug, Default)]
struct Stack {
    thread: String,
    us: f64,
    is_switch: bool,
    /// Names with `true` for the kernel's, the innermost first.
    frames: Vec<(String, bool)>,
}

/// The first line of an event.
struct Head<'a> {
    thread: String,
    tid: u32,
    us: f64,
    event: &'a str,
}

impl Folded {
    fn add(&mut self, stack: &Stack, weight: u64) {
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
        self.stacks += 1;
    }

    /// `FRAMES WEIGHT` of each, in order.
    pub(super) fn lines(&self) -> Vec<String> {
        self.weights.iter().filter(|(_, weight)| **weight > 0).map(|(f, w)| format!("{f} {w}")).collect()
    }

    /// The functions with most weight.
    pub(super) fn hottest(&self, most: usize) -> Vec<HotFrame> {
        let all: u64 = self.by_function.values().sum();
        let mut functions: Vec<(&String, u64)> =
            self.by_function.iter().map(|(name, w)| (name, *w)).collect();
        functions.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let percent = |weight: u64| 100.0 * weight as f64 / all.max(1) as f64;
        let hot = functions.into_iter().take(most);
        hot.map(|(name, weight)| HotFrame { name: name.clone(), percent: percent(weight) }).collect()
    }
}

/// Folds the lines of `perf script`; lines of another form are left out.
pub(super) fn fold(lines: impl Iterator<Item = String>) -> Folded {
    let mut folder = Folder::default();
    lines.for_each(|line| folder.line(&line));
    folder.end()
}

#[derive(Debug, Default)]
struct Folder {
    folded: Folded,
    /// The event whose frames come now.
    open: Option<(u32, Stack)>,
    /// Threads that have left their CPU.
    off: HashMap<u32, Stack>,
    last_us: f64,
}

impl Folder {
    fn line(&mut self, line: &str) {
        if line.trim().is_empty() {
            return self.close();
        }
        if line.starts_with(char::is_whitespace)
            && let Some((_, stack)) = &mut self.open
        {
            stack.frames.extend(frame(line));
            return;
        }
        self.close();
        let Some(head) = head(line) else { return };
        self.last_us = self.last_us.max(head.us);
        match head.event.strip_prefix("PERF_RECORD_SWITCH") {
            Some(switch) => self.switched(&head, switch.trim()),
            None => {
                let is_switch = head.event == SWITCH;
                let stack = Stack { thread: head.thread, us: head.us, is_switch, frames: Vec::new() };
                self.open = Some((head.tid, stack));
            }
        }
    }

    /// A thread left its CPU (its stack came just before), or has one again.
    fn switched(&mut self, head: &Head<'_>, how: &str) {
        if how.starts_with("OUT") {
            if how.contains("preempt")
                && let Some(stack) = self.off.get_mut(&head.tid)
            {
                stack.frames.insert(0, (PREEMPTED.to_owned(), true));
            }
            return;
        }
        if let Some(stack) = self.off.remove(&head.tid) {
            self.folded.add(&stack, (head.us - stack.us).max(0.0) as u64);
        }
    }

    fn close(&mut self) {
        let Some((tid, stack)) = self.open.take() else { return };
        if stack.is_switch {
            self.off.insert(tid, stack);
        } else {
            self.folded.add(&stack, 1);
        }
    }

    /// A thread that has not come back waits until the end.
    fn end(mut self) -> Folded {
        self.close();
        for stack in std::mem::take(&mut self.off).into_values() {
            self.folded.add(&stack, (self.last_us - stack.us).max(0.0) as u64);
        }
        self.folded
    }
}

/// `COMM TID SECONDS: EVENT`; the name of a thread may have blanks in it.
fn head(line: &str) -> Option<Head<'_>> {
    let mut words = line.split_ascii_whitespace().collect::<Vec<_>>().into_iter().peekable();
    let mut thread: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        let seconds = words.peek().and_then(|next| next.strip_suffix(':')?.parse::<f64>().ok());
        if let (Ok(tid), Some(seconds)) = (word.parse(), seconds) {
            let at = line.find(words.peek()?)? + words.peek()?.len();
            let thread = thread.join(" ").replace(';', ":");
            return Some(Head { thread, tid, us: seconds * 1e6, event: line.get(at..)?.trim() });
        }
        thread.push(word);
    }
    None
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
