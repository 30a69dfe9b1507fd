//! Points as commands: pure functions from a configuration to command lines.

mod by_hand;
mod client;
mod load;
mod peer;
mod prepare;
mod start;
mod step;

pub use by_hand::by_hand;
pub(crate) use client::refusal;
pub use client::{is_hosted, tool};
pub use load::{LoadFiles, baseline_step, load_step};
pub(crate) use load::{seconds, size_bytes};
pub use prepare::{Prepare, is_durable, prepare_steps};
pub use start::{destroy_step, precondition_options, start_options, start_step, stop_step};
pub use step::{Step, What, shell_line};

use crate::archive::Config;

/// True if the point measures somebody else.
pub fn is_peer(config: &Config) -> bool {
    config.text("peer").is_some_and(|peer| peer != "none")
}
