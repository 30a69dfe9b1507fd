//! MON_COMMAND: what an administrator's tool asks for by name. Every command is answered at once or after the
//! map change that it asks for; an unknown one is EINVAL.
//!
//! What Ceph leaves to its manager (`pg`, `balancer`, `osd df`, `osd pool autoscale-status`) is answered here, too: the
//! descriptions say so by not sending the tool there.

mod args;
mod blocklist;
mod cluster;
mod crush;
mod describe;
mod osd;
mod osd_change;
mod output;
mod pg;
mod pool;
mod pool_value;
#[cfg(test)]
mod tests;

use carmine_crush::MapView;
use carmine_types::{UTime, errno};
use carmine_wire::osdmap::OsdMap;
use serde_json::Value;

use crate::change::{Change, Refusal, refuse};
use crate::stats::ClusterStats;

/// Longest command text that is looked at; the longest real one has a few hundred bytes.
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// What commands can see.
pub(crate) struct View<'a> {
    pub(crate) map: &'a OsdMap,
    /// Where the PGs of `map` are.
    pub(crate) placement: &'a MapView,
    /// The current map as sent to clients.
    pub(crate) map_bytes: &'a [u8],
    pub(crate) stats: &'a ClusterStats,
    /// Address of this monitor, for people.
    pub(crate) addr: String,
    /// Seconds since it began to serve.
    pub(crate) uptime_s: u64,
    /// The time.
    pub(crate) now: UTime,
}

/// What a command leads to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Status text and output data.
    Done { status: String, data: Vec<u8> },
    /// A change; the text is the status once it is done.
    Change { change: Change, status: String },
}

type Outcome = Result<Answer, Refusal>;

/// One known command, as the `ceph` tool is told about it.
struct Known {
    /// Its words, then its parameters as `name:type`; behind the type `?` for an optional one, `+` for one or more; a
    /// type in parentheses names its choices: `(a|b)`.
    signature: &'static str,
    help: &'static str,
    perm: &'static str,
    run: Run,
}

type Run = fn(&Value, &View<'_>) -> Outcome;

/// A command that changes nothing.
const fn read(signature: &'static str, help: &'static str, run: Run) -> Known {
    Known { signature, help, perm: "r", run }
}

/// A command that changes the map.
const fn write(signature: &'static str, help: &'static str, run: Run) -> Known {
    Known { signature, help, perm: "rw", run }
}

impl Known {
    fn words(&self) -> &'static str {
        let before = self.signature.split_once(':').and_then(|(before, _)| before.rsplit_once(' '));
        before.map_or(self.signature, |(words, _)| words)
    }
}

/// The commands by family, in the order in which `get_command_descriptions` lists them.
const FAMILIES: [&[Known]; 9] = [
    describe::COMMANDS,
    cluster::COMMANDS,
    osd::COMMANDS,
    osd_change::COMMANDS,
    blocklist::COMMANDS,
    crush::COMMANDS,
    pool::COMMANDS,
    pool_value::COMMANDS,
    pg::COMMANDS,
];

fn all() -> impl Iterator<Item = &'static Known> {
    FAMILIES.into_iter().flatten()
}

/// Runs one command, given as the `cmd` strings of the message.
pub(crate) fn run(cmd: &[String], view: &View<'_>) -> Outcome {
    let text = cmd.first().map_or("", String::as_str);
    if text.len() > COMMAND_BYTES_MAX {
        return Err(refuse(errno::E2BIG, "the command is too long"));
    }
    // `rbd perf image iostat` closes a brace too many: the first value counts.
    let first = serde_json::Deserializer::from_str(text).into_iter::<Value>().next();
    let command = first
        .unwrap_or(Ok(Value::Null))
        .map_err(|e| refuse(errno::EINVAL, format!("the command is no JSON object: {e}")))?;
    let prefix = command.get("prefix").and_then(Value::as_str).unwrap_or_default();
    match all().find(|known| known.words() == prefix) {
        Some(known) => (known.run)(&command, view),
        None => Err(refuse(
            errno::EINVAL,
            format!("carmine's monitor has no command '{prefix}'; 'ceph -h' lists those that there are"),
        )),
    }
}
