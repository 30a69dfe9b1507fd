//! Points as commands: pure functions from a configuration to command lines.

mod load;
mod testbed;

use std::fmt;
use std::time::Duration;

use crate::archive::Config;

pub use load::{LoadFiles, baseline_step, by_hand, is_hosted, load_step, tool};
pub(crate) use load::{refusal, seconds, size_bytes};
pub(crate) use testbed::files_bytes;
pub use testbed::{
    Prepare, destroy_step, is_durable, precondition_options, prepare_steps, start_options, start_step,
    stop_step,
};

/// True if the point measures somebody else.
pub fn is_peer(config: &Config) -> bool {
    config.text("peer").is_some_and(|peer| peer != "none")
}

/// The purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Part of making a layout's folder.
    Prepare,
    /// Starts the OSDs.
    Start,
    /// Measures the raw device and messenger.
    Baseline,
    /// The load that is measured.
    Load,
    /// Stops the OSDs.
    Stop,
    /// Removes a layout's folder.
    Destroy,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            What::Prepare => "making the layout",
            What::Start => "start",
            What::Baseline => "baseline",
            What::Load => "load",
            What::Stop => "stop",
            What::Destroy => "removing the layout",
        })
    }
}

/// A command, bounded in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedCommand {
    pub what: What,
    /// Program and arguments; the program `carmine` is this very binary.
    pub argv: Vec<String>,
    /// Past it the command is ended and has failed.
    pub limit: Duration,
}

impl BoundedCommand {
    fn new(what: What, argv: Vec<String>, limit_s: f64) -> BoundedCommand {
        BoundedCommand { what, argv, limit: Duration::from_secs_f64(limit_s) }
    }
}

/// A command as it is typed into a shell.
pub fn shell_line(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        let argv = ["carmine", "--osd-wrap", "perf stat", "it's", ""].map(str::to_owned);
        assert_eq!(shell_line(&argv), "carmine --osd-wrap 'perf stat' 'it'\\''s' ''");
    }
}
