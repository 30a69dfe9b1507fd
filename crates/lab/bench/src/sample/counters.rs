//! Cycles and instructions of the OSDs by `perf stat`, where the processor's counters can be had: most virtual machines
//! have none, and then there are no figures. Facts: perf-stat(1), "CSV FORMAT" and `--control`.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use carmine_load::window::CounterWindow;
use carmine_testbed::process::Owned;
use rustix::process::{Pid, Signal, kill_process};

/// Time for `perf` to obey a command; it does so at once, or never.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The events that are counted.
const EVENTS: &str = "cycles,instructions";

/// The processor's counters over a window, or nothing where there are none: a `perf stat`, and a message for each word that it has
/// obeyed.
#[derive(Debug)]
pub struct Counters(Option<(Owned, Receiver<()>)>);

impl Counters {
    /// Attaches to all threads of these processes, and counts nothing yet. Nothing is attached unless it is `wanted`: counting
    /// costs a little at each switch of threads, too.
    pub fn attach(pids: &[u32], wanted: bool) -> Counters {
        let mut counters = Counters(wanted.then(|| start(pids)).flatten());
        counters.stop();
        counters
    }

    /// The window begins.
    pub fn start(&mut self) {
        self.send("enable");
    }

    /// The window ends here.
    pub fn stop(&mut self) {
        self.send("disable");
    }

    /// The counts; `None` if nothing was counted.
    pub fn read(self) -> Option<CounterWindow> {
        let (mut perf, _) = self.0?;
        kill_process(Pid::from_child(&perf.0), Signal::INT).ok()?;
        let mut text = String::new();
        perf.0.stderr.take()?.read_to_string(&mut text).ok()?;
        parse(&text)
    }

    /// Sends a command to `perf`. Counters that do not follow it are dropped: their figures would be of another window.
    fn send(&mut self, word: &str) {
        self.0.take_if(|(perf, obeyed)| {
            let stdin = perf.0.stdin.as_mut();
            let told = stdin.is_some_and(|stdin| writeln!(stdin, "{word}").is_ok());
            !told || obeyed.recv_timeout(ANSWER_LIMIT).is_err()
        });
    }
}

/// Starts `perf stat`; `None` if there is none.
fn start(pids: &[u32]) -> Option<(Owned, Receiver<()>)> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args(["stat", "--field-separator", ",", "--event", EVENTS, "--pid", &pids.join(",")]);
    // Words come in by 0, their acknowledgements go out by 1; figures go to 2 when it ends.
    command.args(["--delay", "-1", "--control", "fd:0,1"]).env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut perf = Owned(command.spawn().ok()?);
    // Each is "ack\n", with a zero byte behind it.
    let acks = BufReader::new(perf.0.stdout.take()?).split(b'\n').map_while(Result::ok);
    let (obey, obeyed) = channel();
    std::thread::spawn(move || acks.map_while(|_| obey.send(()).ok()).for_each(drop));
    Some((perf, obeyed))
}

/// Lines `VALUE,UNIT,EVENT,…`. A processor with two kinds of cores has a line for each kind; `:u` is user mode only.
fn parse(text: &str) -> Option<CounterWindow> {
    let mut window = CounterWindow::default();
    for line in text.lines() {
        let mut fields = line.split(',');
        let (value, event) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        // `cycles`, `cycles:u`, `cpu_core/cycles/`, `cpu_core/cycles/u`
        let mut parts = event.split([':', '/']).filter(|part| !part.is_empty());
        let name = parts.by_ref().find(|part| !part.starts_with("cpu_"));
        let modifier = parts.next().unwrap_or_default();
        let sum = match name {
            Some("cycles" | "cpu-cycles") => &mut window.cycles,
            Some("instructions") => &mut window.instructions,
            _ => continue,
        };
        // `<not supported>` and `<not counted>` are not numbers; they do not mean zero.
        let Ok(value) = value.parse::<u64>() else { continue };
        *sum = Some(sum.unwrap_or(0) + value);
        window.user_only |= modifier.contains('u') && !modifier.contains('k');
    }
    (window.cycles.is_some() || window.instructions.is_some()).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of perf 6.1 on a virtual machine without counters.
    #[test]
    fn absent_is_not_zero() {
        let said = "Events disabled\nEvents enabled\n<not supported>,,cycles,0,100.00,,\n\
                    <not supported>,,instructions,0,100.00,,\n";
        assert_eq!(parse(said), None);
        assert_eq!(parse("<not counted>,,cycles,0,0.00,,\n"), None);
        assert_eq!(parse("Error:\nNo permission to enable cycles event.\n"), None);
    }

    #[test]
    fn both_are_read() {
        let said = "Events enabled\n3456789012,,cycles,1000123,100.00,,\n\
                    6912345678,,instructions,1000123,100.00,2.00,insn per cycle\n";
        let want = CounterWindow {
            cycles: Some(3_456_789_012),
            instructions: Some(6_912_345_678),
            user_only: false,
        };
        assert_eq!(parse(said), Some(want));
        let user = parse("77,,cycles:u,5,100.00,,\n<not supported>,,instructions:u,0,100.00,,\n").unwrap();
        assert_eq!((user.cycles, user.instructions, user.user_only), (Some(77), None, true));
    }

    #[test]
    fn two_kinds_of_cores_are_added_up() {
        let said = "10,,cpu_core/cycles/,5,50.00,,\n<not counted>,,cpu_atom/cycles/,0,0.00,,\n\
                    20,,cpu_core/instructions/,5,50.00,,\n30,,cpu_atom/instructions/u,5,50.00,,\n";
        let found = parse(said).unwrap();
        assert_eq!((found.cycles, found.instructions, found.user_only), (Some(10), Some(50), true));
    }

    /// The real `perf` counts this process: the figures are plausible, or there are none.
    #[test]
    fn counts_ourselves_or_nothing() {
        let mut counters = Counters::attach(&[std::process::id()], true);
        if counters.0.is_none() {
            return carmine_testkit::skip(
                "perf cannot count: apt-get install linux-perf, and allow it (kernel.perf_event_paranoid)",
            );
        }
        counters.start();
        let end = std::time::Instant::now() + Duration::from_millis(60);
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        counters.stop();
        assert!(counters.0.is_some(), "perf obeys");
        match counters.read() {
            Some(window) => assert!(window.cycles.is_none_or(|n| n > 1_000_000), "{window:?}"),
            None => eprintln!("this machine has no hardware counters"),
        }
    }
}
