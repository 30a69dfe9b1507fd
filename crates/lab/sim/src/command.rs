//! `carmine sim`: whole clusters in the simulator, one for each seed.
// Its progress is shown in real time.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use carmine_testbed::output::{Pulse, json_text, print};
use carmine_types::counted;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Outcome;

/// The text below the options.
const AFTER_HELP: &str = "\
Each seed makes a cluster with a monitor, three or four OSDs on simulated drives, and clients, all in one thread and in virtual
time. For a while it draws faults of processes, network, drives and map. Then everything is healed: all PGs must be active+clean
within a minute of virtual time, all copies equal, and a checker finds an order of the writes that explains every answer.
The same seed gives the same run. A seed that fails is printed with its faults and with the command that repeats it.
With CARMINE_LOG=info in the environment its daemons log to the standard error.

Exit codes: 0 every seed passed; 1 a seed failed, or it was interrupted; 2 it cannot be done as asked.";

/// Options of `carmine sim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct SimArgs {
    /// Seeds from A up to, not including, B; or a single seed, whose faults are printed whether it fails or not
    #[arg(long, visible_alias = "seed", value_name = "A..B", default_value = "0..100", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Begin no further seed after this many minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Print JSON: the sums, and every seed that failed
    #[arg(long)]
    json: bool,
}

/// The sums over all seeds.
#[derive(Default, Serialize)]
struct Sum {
    seeds: u64,
    faults: usize,
    requests: usize,
    answered: usize,
    /// The longest virtual time from the end of the faults until every PG was clean.
    healed_ms_max: f64,
    failed: usize,
    /// Those that failed, or the only one.
    outcomes: Vec<Outcome>,
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number =
        |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a seed; write 7 or 0..100"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => number(text)?..number(text)?.saturating_add(1),
    };
    if range.is_empty() { Err(format!("{text} has no seed")) } else { Ok(range) }
}

/// The outcome of a seed with its faults.
fn text_of(outcome: &Outcome) -> String {
    let Outcome { seed, error, trace, .. } = outcome;
    let end = match error {
        Some(error) => format!("seed {seed} FAILED: {error}\nrepeat it: carmine sim --seed {seed}\n"),
        None => format!("seed {seed} passed\n"),
    };
    let lines: String = trace.iter().map(|line| format!("  {line}\n")).collect();
    lines + &end
}

impl Sum {
    fn add(&mut self, outcome: Outcome, keeps: bool) {
        self.seeds += 1;
        self.faults += outcome.faults;
        self.requests += outcome.requests;
        self.answered += outcome.answered;
        self.healed_ms_max = self.healed_ms_max.max(outcome.healed_ms);
        self.failed += usize::from(outcome.error.is_some());
        self.outcomes.extend(Some(outcome).filter(|_| keeps));
    }

    fn line(&self) -> String {
        let Sum { faults, requests, answered, healed_ms_max, failed, .. } = self;
        format!(
            "{}: {faults} faults, {answered} of {requests} requests answered, clean after {healed_ms_max:.0} ms at most; {failed} failed\n",
            counted(self.seeds as usize, "seed")
        )
    }
}

/// Runs the seeds; the exit code is 1 if one has failed.
///
/// # Errors
/// `cancel` ended it early, or the result cannot be printed.
pub fn run(args: &SimArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    crate::keep_panics();
    let count = args.seeds.end - args.seeds.start;
    let style = ProgressStyle::with_template("{pos}/{len} seeds [{bar:24}] {elapsed} {msg}")?;
    let bar = ProgressBar::new(count).with_style(style);
    let (began, mut sum, mut pulse) = (Instant::now(), Sum::default(), Pulse::default());
    let limit = args.minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(60 * minutes));
    for seed in args.seeds.clone().take_while(|_| began.elapsed() < limit) {
        if cancel.load(Ordering::Relaxed) {
            bail!("interrupted before seed {seed}: {}", sum.line().trim_end());
        }
        let outcome = crate::run(seed);
        let keeps = count == 1 || outcome.error.is_some();
        if keeps && !args.json {
            bar.suspend(|| print(&text_of(&outcome)))?;
        }
        sum.add(outcome, keeps);
        bar.set_message(format!("{} failed", sum.failed));
        bar.inc(1);
        pulse.beat(|| sum.line().trim_end().to_owned());
    }
    bar.finish_and_clear();
    print(&if args.json { json_text(&sum)? } else { sum.line() })?;
    Ok(if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!((parse_seeds("3..7"), parse_seeds("7")), (Ok(3..7), Ok(7..8)));
        for wrong in ["", "7..7", "7..3", "a", "1..b"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
    }
}
