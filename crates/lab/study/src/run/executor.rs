//! Who runs commands: processes, or a test's fake.

use std::path::Path;
use std::time::Duration;

use crate::commands::Step;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    /// It failed or passed its limit: how, and the end of what it said.
    Failed(String),
    /// The user asked to stop.
    Cancelled,
}

/// Runs commands, each bounded in time.
pub trait Executor {
    /// Runs a command to its end; its output is added to the file `log`. Steps that stop and remove are run even after the user
    /// asked to stop.
    fn run(&mut self, step: &Step, log: &Path) -> End;
    /// Seconds since 1970.
    fn unix_s(&self) -> f64;
    /// Rests; false if the user asked to stop meanwhile.
    fn rest(&mut self, time: Duration) -> bool;
}
