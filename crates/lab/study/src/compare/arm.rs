//! One side of a comparison.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::archive::{Config, PointResult};

/// A measured point.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Name of its files.
    pub name: String,
    pub config: Config,
    /// Points of both arms with the same configuration and the same turn are a pair.
    pub turn: u32,
    pub result: PointResult,
}

/// One side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Arm {
    pub name: String,
    /// Folder of the run that it was measured in; `None` for plain files, whose run is not known.
    pub run: Option<PathBuf>,
    pub points: Vec<Measured>,
    /// What is the same for all of its points but stands in no configuration: builds, kernel, host. Name → value.
    pub facts: BTreeMap<String, String>,
    /// Points that were not measured, with the reason.
    pub left_out: Vec<String>,
}
