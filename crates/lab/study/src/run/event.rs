//! What a sweep tells while it runs.

use std::time::Duration;

use crate::archive::{PointState, State};
use crate::commands::What;

/// Progress of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A point begins.
    Point { index: usize, of: usize, stem: String, left: Duration },
    /// One of its commands begins.
    Step(What),
    /// It has ended.
    Ended { stem: String, state: State, error: Option<String> },
    /// Something that the user should know.
    Note(String),
}

impl Event {
    pub(super) fn ended(stem: &str, state: &PointState) -> Event {
        Event::Ended { stem: stem.to_owned(), state: state.state, error: state.error.clone() }
    }
}
