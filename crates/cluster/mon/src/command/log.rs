//! Commands about the cluster log.

use carmine_types::errno;
use carmine_wire::mon_msg::log_level;
use serde_json::Value;

use super::{Answer, Known, Outcome, View, either, number, read, text, texts, write};
use crate::change::refuse;
use crate::log::{CLUSTER, line, line_json};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write("log logtext:CephString+", "write a line into the cluster log", |c, _| {
        let words = texts(c, "logtext");
        if words.is_empty() {
            return Err(refuse(errno::EINVAL, "there is no text"));
        }
        Ok(Answer::Log { text: words.join(" ") })
    }),
    read(
        "log last num:CephInt? level:(debug|info|sec|warn|error)? channel:CephString?",
        "print the last lines of the cluster log",
        last,
    ),
];

/// Lines that are shown if nobody says how many.
const LINES: usize = 20;

fn last(command: &Value, view: &View<'_>) -> Outcome {
    let most = number(command, "num")?.unwrap_or(LINES);
    let level = text(command, "level").unwrap_or("info");
    let level =
        log_level::from_name(level).ok_or_else(|| refuse(errno::EINVAL, format!("no level '{level}'")))?;
    let channel = text(command, "channel").unwrap_or(CLUSTER);
    let wanted = |channel_of: &str| channel == "*" || channel == channel_of;
    let all: Vec<_> = view.log.since(0, level).filter(|entry| wanted(&entry.channel)).collect();
    let shown = all.get(all.len().saturating_sub(most)..).unwrap_or_default();
    either(
        command,
        || shown.iter().map(|entry| line_json(entry)).collect(),
        || shown.iter().map(|entry| format!("{}\n", line(entry))).collect(),
    )
}
