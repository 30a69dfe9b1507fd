//! Studies: a plan file becomes points, the points are run in a fair order, the results are archived.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "studies run outside the reactors: they deal in files, processes and wall-clock limits"
)]

pub mod answer;
pub mod archive;
pub mod commands;
pub mod compare;
pub mod drift;
pub mod expand;
pub mod lists;
pub mod model;
pub mod needs;
pub mod plan;
pub mod repeats;
pub mod run;
pub mod scaling;
mod search;
pub mod support;
pub mod table;
