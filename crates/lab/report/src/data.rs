//! What the archives say, in the order in which charts and tables ask for it.

mod axes;
mod drift;
mod latency;
mod measured;
mod setting;

pub(crate) use axes::{Axes, LOAD_AXES, PANEL_AXES, SIZE_AXES, axis_value};
pub(crate) use drift::drift;
pub(crate) use latency::Latency;
pub(crate) use measured::{Ended, Measured, RunData, load, text_of, words};
pub(crate) use setting::{Cores, Setting, settings};
