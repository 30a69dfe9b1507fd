//! MON_COMMAND: what an administrator's tool asks for by name. Every command is answered at once or after the
//! map change that it asks for; an unknown one is EINVAL.
//!
//! Commands that Ceph leaves to its manager (`pg`, `balancer`, `osd df`, `osd pool autoscale-status`) are answered here, too: the
//! descriptions say so by not sending the tool there.

mod blocklist;
mod classes;
mod cluster;
mod entities;
mod few;
mod group;
mod inventory;
mod keys;
mod leave;
mod limits;
mod log;
mod mutes;
mod options;
mod osd;
mod pg;
mod place;
mod pool;
mod pool_value;
mod reweight;
mod rules;
mod scrub;
mod tell;
#[cfg(test)]
mod tests;
mod tools;
mod tree;
mod upmap;

use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_crush::MapView;
use carmine_messenger::Peer;
use carmine_types::{Errno, OsdId, UTime, errno};
use carmine_wire::mon_msg::log_level;
use carmine_wire::osdmap::OsdMap;
use carmine_wire::scrub::OsdScrub;
use serde_json::{Value, json};

use crate::auth;
use crate::change::{Change, Refusal, refuse};
use crate::history::History;
use crate::log::ClusterLog;
use crate::options::{ClientOptions, OptionEdit};
use crate::report::service::Daemon;
use crate::report::xml;
use crate::stats::ClusterStats;

/// Longest command text that is looked at; the longest real ones store the value of a key.
pub(crate) const COMMAND_BYTES_MAX: usize = 128 << 10;

/// The state that commands can see.
pub(crate) struct View<'a> {
    pub(crate) map: &'a OsdMap,
    /// Where the PGs of `map` are.
    pub(crate) placement: &'a MapView,
    /// The current map as sent to clients.
    pub(crate) map_bytes: &'a [u8],
    /// The maps before it.
    pub(crate) history: &'a History,
    pub(crate) stats: &'a ClusterStats,
    pub(crate) log: &'a ClusterLog,
    /// Those of clients.
    pub(crate) options: &'a ClientOptions,
    /// Processes that offer services.
    pub(crate) services: &'a [Rc<Daemon>],
    /// Facts about this monitor and its machine.
    pub(crate) facts: &'a BTreeMap<String, String>,
    /// Who has a session.
    pub(crate) sessions: &'a dyn Fn() -> Vec<Peer>,
    /// The MonMap, as sent to clients.
    pub(crate) monmap: &'a dyn Fn() -> Vec<u8>,
    /// Address of this monitor, for people.
    pub(crate) addr: String,
    /// Seconds since it began to serve.
    pub(crate) uptime_s: u64,
    /// The time.
    pub(crate) now: UTime,
    /// The data that came with the command: a file's, by `-i FILE`.
    pub(crate) input: &'a [u8],
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Status text and output data.
    Done { status: String, data: Vec<u8> },
    /// The same with an errno: what was asked for is not so.
    Not { code: Errno, status: String, data: Vec<u8> },
    /// A change; the text is the status once it is done.
    Change { change: Change, status: String },
    /// A change, and the output once it is done.
    ChangeAndTell { change: Change, data: Vec<u8> },
    /// Orders for these OSDs, and the status once they are sent.
    Scrub { orders: Vec<(OsdId, OsdScrub)>, status: String },
    /// A change of the stored options and keys, and the status once it is done.
    Options { edit: OptionEdit, status: String },
    /// The same, and the output once it is done.
    OptionsAndTell { edit: OptionEdit, data: Vec<u8> },
    /// A line for the cluster log.
    Log { text: String },
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

/// Runs a command that is given as the `cmd` strings of its message.
pub(crate) type Runner = fn(&[String], &View<'_>) -> Outcome;

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
const FAMILIES: &[&[Known]] = &[
    &[read("get_command_descriptions", "list the commands", descriptions)],
    cluster::COMMANDS,
    options::COMMANDS,
    osd::COMMANDS,
    place::COMMANDS,
    reweight::COMMANDS,
    upmap::COMMANDS,
    blocklist::COMMANDS,
    tree::COMMANDS,
    rules::COMMANDS,
    classes::COMMANDS,
    pool::COMMANDS,
    pool_value::COMMANDS,
    log::COMMANDS,
    tools::COMMANDS,
    inventory::COMMANDS,
    limits::COMMANDS,
    keys::COMMANDS,
    entities::COMMANDS,
    few::COMMANDS,
    group::COMMANDS,
    mutes::COMMANDS,
    leave::COMMANDS,
    pg::COMMANDS,
    scrub::COMMANDS,
];

fn all() -> impl Iterator<Item = &'static Known> {
    FAMILIES.iter().copied().flatten()
}

/// A command's level and text in the audit log; `None` for those that tools send before each other one. The values that tools keep
/// may be secrets: they are left out, as in Ceph, and so is all text that cannot be read, in which they may stand.
pub(crate) fn audited(cmd: &[String]) -> Option<(u16, String)> {
    let Ok(mut command) = parse(cmd) else {
        let bytes: usize = cmd.iter().map(String::len).sum();
        return Some((log_level::DEBUG, format!("{bytes} bytes that are no command")));
    };
    let prefix = command.get("prefix").and_then(Value::as_str).unwrap_or_default().to_owned();
    let perm = all().find(|known| known.words() == prefix).map_or("r", |known| known.perm);
    let level = if perm == "r" { log_level::DEBUG } else { log_level::INFO };
    let fields =
        command.as_object_mut().filter(|_| matches!(prefix.as_str(), "config-key set" | "config-key put"));
    let text = match fields {
        Some(fields) => {
            fields.remove("val");
            command.to_string()
        }
        None => cmd.join(","),
    };
    (prefix != "get_command_descriptions").then_some((level, text))
}

/// Parses a command, given as the `cmd` strings of the message.
fn parse(cmd: &[String]) -> Result<Value, Refusal> {
    let text = cmd.first().map_or("", String::as_str);
    if text.len() > COMMAND_BYTES_MAX {
        return Err(refuse(errno::E2BIG, "the command is too long"));
    }
    // `rbd perf image iostat` closes a brace too many: the first value counts.
    let first = serde_json::Deserializer::from_str(text).into_iter::<Value>().next();
    first
        .unwrap_or(Ok(Value::Null))
        .map_err(|e| refuse(errno::EINVAL, format!("the command is no JSON object: {e}")))
}

/// Whether the caps of a peer allow a command.
pub(crate) fn is_allowed(peer: &Peer, cmd: &[String]) -> bool {
    if peer.guest.is_none() {
        return true;
    }
    // One that cannot be read is refused for that.
    let Ok(command) = parse(cmd) else { return true };
    let prefix = text(&command, "prefix").unwrap_or_default();
    let known = all().chain(tell::COMMANDS).find(|known| known.words() == prefix);
    if prefix == "get_command_descriptions" {
        return true;
    }
    let service = match prefix.split(' ').next().unwrap_or_default() {
        own @ ("osd" | "pg" | "auth" | "log" | "config-key" | "mgr" | "mds" | "fs" | "config") => own,
        _ => "mon",
    };
    let rights = match (service, known.map_or("rw", |known| known.perm)) {
        ("auth", "r") => "rx",
        ("auth", _) => "rwx",
        (_, perm) => perm,
    };
    let args = command.as_object().into_iter().flatten().filter(|(name, _)| *name != "prefix");
    let args = args.map(|(name, value)| {
        let words: Vec<&str> = list(value).iter().filter_map(Value::as_str).collect();
        let value = if words.is_empty() { value.to_string() } else { words.join(" ") };
        (name.clone(), value)
    });
    auth::allows(peer, service, prefix, &args.collect(), rights)
}

/// Runs one command that was sent to this monitor, not to the monitors at large.
pub(crate) fn run_told(cmd: &[String], view: &View<'_>) -> Outcome {
    let command = parse(cmd)?;
    let prefix = command.get("prefix").and_then(Value::as_str).unwrap_or_default();
    match tell::COMMANDS.iter().find(|known| known.words() == prefix) {
        Some(known) => (known.run)(&command, view),
        None if prefix == "get_command_descriptions" => done(described(all_told()).to_string()),
        None => run(cmd, view),
    }
}

/// The commands to this monitor.
fn all_told() -> impl Iterator<Item = &'static Known> {
    let is_hidden = |known: &&Known| tell::COMMANDS.iter().any(|own| own.words() == known.words());
    tell::COMMANDS.iter().chain(all().filter(move |known| !is_hidden(known)))
}

/// Runs one command.
pub(crate) fn run(cmd: &[String], view: &View<'_>) -> Outcome {
    let command = parse(cmd)?;
    let prefix = command.get("prefix").and_then(Value::as_str).unwrap_or_default();
    match all().find(|known| known.words() == prefix) {
        Some(known) => (known.run)(&command, view),
        None => Err(refuse(
            errno::EINVAL,
            format!("carmine's monitor has no command '{prefix}'; 'ceph -h' lists those that there are"),
        )),
    }
}

/// A text parameter.
fn text<'a>(command: &'a Value, name: &str) -> Option<&'a str> {
    command.get(name).and_then(Value::as_str)
}

/// The words of a list, or the one word.
fn texts<'a>(command: &'a Value, name: &str) -> Vec<&'a str> {
    command.get(name).map(list).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The values of a list, or the one value.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

fn missing(name: &str) -> Refusal {
    refuse(errno::EINVAL, format!("the parameter '{name}' is missing"))
}

/// A parameter that must be there, of any kind.
fn present<'a>(command: &'a Value, name: &str) -> Result<&'a Value, Refusal> {
    command.get(name).ok_or_else(|| missing(name))
}

/// A text parameter that must be there.
fn required<'a>(command: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    text(command, name).ok_or_else(|| missing(name))
}

/// A whole number, given as a number or as text.
fn number<T: TryFrom<u64>>(command: &Value, name: &str) -> Result<Option<T>, Refusal> {
    let Some(value) = command.get(name) else { return Ok(None) };
    let parsed = value.as_u64().or_else(|| value.as_str()?.parse().ok()).and_then(|n| T::try_from(n).ok());
    parsed.map(Some).ok_or_else(|| refuse(errno::EINVAL, format!("{name} {value}: not a fitting number")))
}

/// A switch such as `--yes-i-really-mean-it`; older tools send it as a word.
fn is_set(command: &Value, name: &str) -> bool {
    command.get(name).is_some_and(|v| v.as_bool() == Some(true) || v.is_string())
}

/// An OSD given as `3`, `"3"` or `"osd.3"`.
fn osd_of(value: &Value) -> Result<OsdId, Refusal> {
    let of_text = || value.as_str().and_then(|s| s.strip_prefix("osd.").unwrap_or(s).parse().ok());
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).or_else(of_text);
    id.map(OsdId).ok_or_else(|| refuse(errno::EINVAL, format!("{value} is no OSD: take 3 or osd.3")))
}

/// One or more OSDs in the list `ids`; `any`, `all` and `*` are all that there are.
fn osds_of(command: &Value, map: &OsdMap) -> Result<Vec<OsdId>, Refusal> {
    let ids = list(present(command, "ids")?);
    if ids.is_empty() {
        return Err(refuse(errno::EINVAL, "name one OSD at least"));
    }
    if ids.iter().any(|id| matches!(id.as_str(), Some("any" | "all" | "*"))) {
        return Ok(map.osds().collect());
    }
    ids.iter().map(osd_of).collect()
}

/// Output without a status.
fn done(data: impl Into<Vec<u8>>) -> Outcome {
    Ok(Answer::Done { status: String::new(), data: data.into() })
}

/// A status without output: tools print it to their standard error.
fn said(status: impl Into<String>) -> Outcome {
    Ok(Answer::Done { status: status.into(), data: Vec::new() })
}

/// A change, and the status once it is done.
fn change(change: Change, status: impl Into<String>) -> Outcome {
    Ok(Answer::Change { change, status: status.into() })
}

/// Some other format than text is asked for.
fn is_formatted(command: &Value) -> bool {
    wants_xml(command) || text(command, "format").is_some_and(|f| f.starts_with("json"))
}

fn wants_xml(command: &Value) -> bool {
    matches!(text(command, "format"), Some("xml" | "xml-pretty"))
}

/// XML if that is asked for, else JSON: Ceph has no text for it.
fn pretty(command: &Value, value: &Value) -> Vec<u8> {
    if wants_xml(command) {
        let is_pretty = text(command, "format") == Some("xml-pretty");
        return xml::render(text(command, "prefix").unwrap_or_default(), value, is_pretty).into_bytes();
    }
    let compact = text(command, "format") == Some("json");
    let out = if compact { serde_json::to_vec(value) } else { serde_json::to_vec_pretty(value) };
    // A Value always serialises.
    let mut out = out.unwrap_or_default();
    out.push(b'\n');
    out
}

/// JSON, XML or text, as asked for.
fn either(command: &Value, value: impl FnOnce() -> Value, plain: impl FnOnce() -> String) -> Outcome {
    if is_formatted(command) { done(pretty(command, &value())) } else { done(plain()) }
}

/// The flags are 0: a command with Ceph's flag for the manager (8) would be sent there.
fn descriptions(_: &Value, _: &View<'_>) -> Outcome {
    done(described(all()).to_string())
}

fn described(commands: impl Iterator<Item = &'static Known>) -> Value {
    let described = commands.enumerate().map(|(n, known)| {
        let sig: Vec<Value> = known.signature.split(' ').map(part).collect();
        let module = known.signature.split(' ').next().unwrap_or_default();
        let entry =
            json!({ "sig": sig, "help": known.help, "module": module, "perm": known.perm, "flags": 0 });
        (format!("cmd{n:03}"), entry)
    });
    Value::Object(described.collect())
}

/// A word as itself, a parameter `name:type?` as the object that the `ceph` tool expects.
fn part(text: &str) -> Value {
    let Some((name, kind)) = text.split_once(':') else { return json!(text) };
    let (kind, is_optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
    let (kind, is_list) = kind.strip_suffix('+').map_or((kind, false), |kind| (kind, true));
    let mut out = match kind.strip_prefix('(').and_then(|k| k.strip_suffix(')')) {
        None if kind == "PoolValue" => {
            json!({ "name": name, "type": "CephChoices", "strings": pool_value::choices() })
        }
        Some(choices) => json!({ "name": name, "type": "CephChoices", "strings": choices }),
        None => json!({ "name": name, "type": kind }),
    };
    if is_optional {
        out["req"] = json!(false);
    }
    if is_list {
        out["n"] = json!("N");
    }
    out
}
