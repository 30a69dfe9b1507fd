//! What is wrong with a plan: file, line, key, value, and what to do.

use std::fmt;

/// A plan that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Name of the file, or of the shipped plan.
    pub file: String,
    /// From 1; 0 if it concerns the whole plan.
    pub line: usize,
    /// What is wrong and what to do, beginning with the key and its value.
    pub what: String,
}

impl PlanError {
    pub(super) fn new(what: impl Into<String>) -> PlanError {
        PlanError { file: String::new(), line: 0, what: what.into() }
    }

    /// Adds file and line, the latter from an offset into the text.
    pub(super) fn at(mut self, file: &str, text: &str, offset: usize) -> PlanError {
        self.file = file.to_owned();
        self.line = text.get(..offset).map_or(0, |head| head.matches('\n').count() + 1);
        self
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for PlanError {}
