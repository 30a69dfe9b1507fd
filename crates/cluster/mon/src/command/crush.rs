//! Commands about placement rules and tunables.

use carmine_types::errno;
use carmine_wire::crushmap::Tunables;
use serde_json::{Value, json};

use super::args::required;
use super::output::{done, either, pretty, said};
use super::{Known, Outcome, View, read, write};
use crate::change::refuse;
use crate::report::crush as report;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd crush show-tunables", "show the CRUSH tunables", show_tunables),
    write(
        "osd crush tunables profile:(legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default)",
        "set the CRUSH tunables to a profile",
        tunables,
    ),
    read("osd crush rule ls", "list the CRUSH rules", rule_ls),
    read("osd crush dump", "print the CRUSH map", dump),
];

fn show_tunables(command: &Value, view: &View<'_>) -> Outcome {
    done(pretty(command, &report::tunables(&view.map.crush)))
}

/// The map has the optimal ones from the start; older profiles are for clients older than those that can connect.
fn tunables(command: &Value, view: &View<'_>) -> Outcome {
    let profile = required(command, "profile")?;
    if !matches!(profile, "optimal" | "default" | "jewel") {
        let text =
            format!("the profile '{profile}' is not supported: the tunables are optimal (jewel) and stay so");
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    if view.map.crush.tunables != Tunables::default() {
        return Err(refuse(
            errno::EOPNOTSUPP,
            "this map's tunables are not the optimal ones and cannot be changed",
        ));
    }
    said(format!("adjusted tunables profile to {profile}"))
}

fn rule_ls(command: &Value, view: &View<'_>) -> Outcome {
    let names: Vec<&String> = view.map.crush.rule_names.values().collect();
    either(command, || json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn dump(command: &Value, view: &View<'_>) -> Outcome {
    done(pretty(command, &report::dump(view.map)))
}
