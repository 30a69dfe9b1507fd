//! `scripts/truth`: measures how often the instrument is right.
#![allow(clippy::disallowed_methods, reason = "writes a file")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use carmine_testkit::Others;
use carmine_tests::truth::{Arm, CLEAN, Experiment, FAULTS, Fault, Score, Truth, any_different};
use clap::Parser;

const EQUAL_ARMS: &str = "equal-arms";
const SLOWDOWN: &str = "slowdown";
/// The same loads without the faults.
const CONTROLS: &str = "controls";
/// The window of each run that is compared.
const WINDOW: &str = "500ms";
/// Comparisons of equal arms for each run of a fault, and their pairs: all of it takes about 20 minutes.
const EQUAL_PER_RUN: usize = 10;
const EQUAL_PAIRS: usize = 5;
/// Percent by which one arm is slowed down.
const SLOW_PERCENT: u32 = 5;
/// Parts that must be right: 195 of 200, 18 of 20, 19 of 20.
const EQUAL_RIGHT: f64 = 0.975;
const SLOWDOWN_RIGHT: f64 = 0.9;
const FAULT_RIGHT: f64 = 0.95;
/// With --short a fault has so many attempts, as the machine may be busy with other things.
const ATTEMPTS_SHORT: usize = 3;

/// Measures whether the instrument tells the truth: equal arms are not called different, a slowdown is found, and faults
/// that are put in on purpose are named. Prints confusion matrices. Exit code 1 if a limit does not hold; where others use the CPUs it
/// prints that the machine is too busy to tell, and counts it.
#[derive(Parser)]
#[command(name = "scripts/truth", max_term_width = 110)]
struct Args {
    /// Runs of each fault and comparisons with a slowdown; ten times as many comparisons of equal arms
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: usize,
    /// Only these: equal-arms, slowdown, controls (of the faults that are named beside it, or of all), or a fault of the list
    /// below; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Length of the window in which a fault is measured
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Write all counts to this file as JSON, after each part
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Each fault must be named in one of three attempts, in windows of 1 s, and nothing is compared: under a minute
    #[arg(long)]
    short: bool,
    /// List the names and end
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let known: Vec<&str> =
        [EQUAL_ARMS, SLOWDOWN, CONTROLS].into_iter().chain(FAULTS.iter().map(|f| f.name)).collect();
    if args.list {
        println!("{}", known.join("\n"));
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("error: --only {unknown}: the names are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut truth = Truth::default();
    if wanted(EQUAL_ARMS) && !args.short {
        truth.comparisons.push(equal_arms(args.runs * EQUAL_PER_RUN));
        save(&args, &truth);
    }
    if wanted(SLOWDOWN) && !args.short {
        truth.comparisons.push(slowdown(args.runs));
        save(&args, &truth);
    }
    for fault in FAULTS.iter().filter(|fault| wanted(fault.name)) {
        truth.faults.push(if args.short { named_once(fault) } else { named(fault, args.runs, args.seconds) });
        save(&args, &truth);
    }
    if wanted(CONTROLS) && !args.short {
        let named: Vec<&Fault> =
            FAULTS.iter().filter(|fault| args.only.iter().any(|only| only == fault.name)).collect();
        for fault in if named.is_empty() { FAULTS.iter().collect() } else { named } {
            truth.controls.push(unmarked(fault, args.runs, args.seconds));
            save(&args, &truth);
        }
    }
    print!("{}", truth.text());
    if truth.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn save(args: &Args, truth: &Truth) {
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", truth.json());
        std::fs::write(path, text).unwrap_or_else(|error| eprintln!("{}: {error}", path.display()));
    }
}

fn equal_arms(comparisons: usize) -> Score {
    let what =
        format!("A/A, both at the same time on one CPU, {EQUAL_PAIRS} pairs of windows of {WINDOW} each");
    let score = Score::new(EQUAL_ARMS, what, &["no difference"], EQUAL_RIGHT);
    compared(score, 0, ("same", false), comparisons, EQUAL_PAIRS)
}

fn slowdown(comparisons: usize) -> Score {
    let pairs = carmine_stats::PAIRS_DEFAULT;
    let what = format!(
        "the OSD does {SLOW_PERCENT} % less per busy second, both arms at the same time on one CPU, {pairs} pairs of windows of {WINDOW}"
    );
    let score = Score::new(SLOWDOWN, what, &["different"], SLOWDOWN_RIGHT);
    compared(score, SLOW_PERCENT, ("slow", true), comparisons, pairs)
}

fn compared(mut score: Score, percent: u32, new: Arm, comparisons: usize, pairs: usize) -> Score {
    let others = Others::watch();
    let experiment = Experiment::new(percent, WINDOW);
    for round in 0..comparisons {
        experiment.measure(round, [("base", false), new], pairs);
        compare(&experiment, round, new.0, &mut score);
    }
    drop(experiment);
    score.note_others(others.load());
    score
}

fn compare(experiment: &Experiment, round: usize, new: &str, score: &mut Score) {
    let (_, said, judged) = experiment.compare(round, "base", new, "5%");
    let word = if any_different(&judged) { "different" } else { "no difference" };
    eprintln!("{} {}: {word}", score.name, round + 1);
    score.add(word, &said.replace('\n', "\n    "));
}

fn named(fault: &Fault, runs: usize, seconds: f64) -> Score {
    let mut score = Score::new(fault.name, fault.what, fault.expected, FAULT_RIGHT);
    let others = Others::watch();
    match fault.start() {
        Err(why) => score.cannot_run(why),
        Ok(faulty) => (0..runs).for_each(|at| {
            let seen = faulty.run(Duration::from_secs_f64(seconds));
            eprintln!("{} {}: {}: {}", fault.name, at + 1, seen.word, seen.why);
            score.add(&seen.word, &seen.why);
        }),
    }
    score.note_others(others.load());
    score
}

/// The load of a fault without the fault: it is called by no fault's name, and has no mark.
fn unmarked(fault: &Fault, runs: usize, seconds: f64) -> Score {
    let mut score = Score::new(fault.name, "the same load without the fault", &[CLEAN], FAULT_RIGHT);
    let control = fault.control();
    let others = Others::watch();
    match control.start() {
        Err(why) => score.cannot_run(why),
        Ok(running) => (0..runs).for_each(|at| {
            let seen = running.run(Duration::from_secs_f64(seconds));
            let word = control.word_of_control(&seen);
            eprintln!("{} without the fault {}: {word}: {}", fault.name, at + 1, seen.why);
            score.add(&word, &seen.why);
        }),
    }
    score.note_others(others.load());
    score
}

fn named_once(fault: &Fault) -> Score {
    let mut score = Score::new(fault.name, fault.what, fault.expected, 1.0 / ATTEMPTS_SHORT as f64);
    let others = Others::watch();
    match fault.start() {
        Err(why) => score.cannot_run(why),
        Ok(faulty) => {
            for _ in 0..ATTEMPTS_SHORT {
                let seen = faulty.run(Duration::from_secs(1));
                score.add(&seen.word, &seen.why);
                if fault.is_named_by(&seen) {
                    break;
                }
            }
        }
    }
    score.note_others(others.load());
    score
}
