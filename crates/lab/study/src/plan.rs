//! Plan files: what is to be varied, in which order, for how long.

mod axis;
mod error;
mod expr;
mod file;
mod shipped;
mod value;
mod workload;

pub use axis::{axes, axis};
pub use carmine_testbed::spec::{Axis, Kind, Role};
pub use error::PlanError;
pub use expr::Expr;
pub use file::{Case, Exclude, Order, Overrides, Plan};
pub use shipped::{SHIPPED, Shipped, shipped};
pub(crate) use value::settle;
pub use value::{AxisValue, Values};
pub use workload::{WORKLOADS, Workload, workload};
