//! Points as commands: pure functions from a configuration to command lines.

mod load;
mod testbed;

use std::path::Path;
use std::time::Duration;

use crate::archive::Config;

pub use load::{LoadFiles, baseline_step, by_hand, is_hosted, load_step, tool};
pub(crate) use load::{is_inside, refusal, seconds, size_bytes};
pub(crate) use testbed::files_bytes;
pub use testbed::{Prepare, is_durable, precondition_options, prepare_steps, start_options, testbed_step};

/// True if the point measures a peer.
pub fn is_peer(config: &Config) -> bool {
    config.text("peer").is_some_and(|peer| peer != "none")
}

carmine_types::words! {
    /// The purpose of a command.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum What: "purpose" {
        /// Part of making a layout's folder.
        Prepare = "making the layout",
        /// Starts the OSDs.
        Start = "start",
        /// Measures the raw device and messenger.
        Baseline = "baseline",
        /// The load that is measured.
        Load = "load",
        /// Stops the OSDs.
        Stop = "stop",
        /// Removes a layout's folder.
        Destroy = "removing the layout",
    }
}

/// A command, bounded in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedCommand {
    pub what: What,
    /// The program, which is always `carmine`, this very binary; and its arguments.
    pub argv: Vec<String>,
    /// After this time the command is ended and has failed.
    pub limit: Duration,
}

impl BoundedCommand {
    /// `carmine COMMAND --dir LAYOUT OPTIONS…`.
    fn new(what: What, command: &str, layout: &Path, options: Vec<String>, limit_s: f64) -> BoundedCommand {
        let layout = layout.display().to_string();
        let head = ["carmine"].into_iter().chain(command.split(' ')).chain(["--dir", &layout]);
        let argv = head.map(str::to_owned).chain(options).collect();
        BoundedCommand { what, argv, limit: Duration::from_secs_f64(limit_s) }
    }
}

/// The options that have a value. One that ends in `=` is a word with it.
fn words(options: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Vec<String> {
    let given = options.into_iter().filter_map(|(option, value)| Some((option, value?)));
    let words = given.map(|(option, value)| match option.ends_with('=') {
        true => vec![format!("{option}{value}")],
        false => vec![option.to_owned(), value],
    });
    words.flatten().collect()
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
