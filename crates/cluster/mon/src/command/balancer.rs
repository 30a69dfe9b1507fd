//! The balancer: there is none, so it is off.

use serde_json::{Value, json};

use super::output::{done, pretty, said};
use super::{Known, Outcome, View};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    Known {
        words: "balancer status",
        parameters: &[],
        help: "show that nothing moves PGs by itself",
        perm: "r",
        run: status,
    },
    Known {
        words: "balancer off",
        parameters: &[],
        help: "switch the balancer off (it always is)",
        perm: "rw",
        run: off,
    },
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
