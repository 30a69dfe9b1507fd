//! Plans that the binary carries.

use super::{Plan, PlanError};

/// A plan by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! plans {
    ($($name:literal),+ $(,)?) => {
        /// All shipped plans, in the order of `--list`.
        pub const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../../plans/", $name, ".toml")) }),+];
    };
}

plans![
    "smoke",
    "cores-per-osd",
    "split-the-cores",
    "placement",
    "reactors",
    "curve",
    "open-loop",
    "like-for-like",
    "weak-scale",
    "qd1",
    "stores",
    "pgs",
    "latency-target",
    "hysteresis",
];

/// The shipped plan of this name.
pub fn shipped(name: &str) -> Option<Result<Plan, PlanError>> {
    let found = SHIPPED.iter().find(|plan| plan.name == name)?;
    Some(Plan::parse(&format!("{name}.toml (shipped)"), found.text))
}
