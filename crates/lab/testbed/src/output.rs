//! Text for people. Writing to a closed pipe (`carmine plan | head`) is not an error and does not panic.

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Result, TestbedError, failed};

/// Prints to standard output.
///
/// # Errors
/// It cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A value as JSON for people: indented, with a line break at the end.
///
/// # Errors
/// The value has something that JSON does not have, such as a map whose keys are not text.
pub fn json_text<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|e| failed!("cannot make JSON: {e}"))? + "\n")
}

/// Prints a note to standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Time between two lines of long work in a log.
const PULSE: Duration = Duration::from_secs(30);

/// The lines of long work where no terminal shows a progress bar: one every 30 seconds.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// The time of the next line; `None`: a bar can be seen.
    due: Option<Instant>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { due: (!io::stderr().is_terminal()).then(|| Instant::now() + PULSE) }
    }
}

impl Pulse {
    /// Prints what `text` says to standard error if it is time for a line.
    pub fn beat(&mut self, text: impl FnOnce() -> String) {
        if self.is_due(Instant::now()) {
            note(&text());
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due {
            self.due = Some(now + PULSE);
        }
        is_due
    }
}

/// An error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |e: &&'a (dyn Error + 'static)| (*e).source())
}

/// An error with its causes on one line. A cause whose text its effect already has is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The exit code of a program that ends by `error`: 2 for options that cannot work, 3 if a part of a testbed runs, 1 for everything else.
pub fn exit_code(error: &(dyn Error + 'static)) -> u8 {
    match causes(error).find_map(|e| e.downcast_ref::<TestbedError>()) {
        Some(TestbedError::Usage(_)) => 2,
        Some(TestbedError::Partial(_)) => 3,
        _ => 1,
    }
}

/// True if the reader of our output has gone.
pub fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_line_every_half_minute_and_a_terminal_none() {
        let begin = Instant::now();
        let mut log = Pulse { due: Some(begin + PULSE) };
        let lines = |pulse: &mut Pulse| {
            (0..=95).filter(|second| pulse.is_due(begin + Duration::from_secs(*second))).collect::<Vec<_>>()
        };
        assert_eq!(lines(&mut log), [30, 60, 90]);
        assert!(lines(&mut Pulse { due: None }).is_empty());
    }
}
