//! The balancer: there is none, so it is off.

use serde_json::{Value, json};

use super::output::{done, pretty, said};
use super::{Known, Outcome, View, read, write};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("balancer status", "show that nothing moves PGs by itself", status),
    write("balancer off", "switch the balancer off (it always is)", off),
];

fn status(command: &Value, _: &View<'_>) -> Outcome {
    let value = json!({
        "active": false, "last_optimize_duration": "", "last_optimize_started": "", "mode": "none",
        "optimize_result": "", "plans": [],
    });
    done(pretty(command, &value))
}

fn off(_: &Value, _: &View<'_>) -> Outcome {
    said("")
}
