//! `osd blocklist`: which clients are kept out. librbd asks for it when it takes the lock of a client that is gone, with the
//! word of older tools (`blacklist`) if this one is not known.

use std::time::Duration;

use carmine_types::{UTime, errno};
use carmine_wire::EntityAddr;
use serde_json::{Value, json};

use super::{Answer, Known, Outcome, Run, View, change, is_formatted, pretty, read, required, write};
use crate::change::{Change, Refusal, refuse, shown};
use crate::report::dump;

/// How long a client is kept out if nothing is said: Ceph's mon_osd_blocklist_default_expire.
const EXPIRE_DEFAULT_S: f64 = 3600.0;
/// Longer is for ever (30 years).
const EXPIRE_MAX_S: f64 = 1e9;

const HELP: &str = "keep a client out, for so many seconds, or let it in again";
const HELP_LS: &str = "list the clients that are kept out";
const HELP_CLEAR: &str = "let all clients in again";

const CLEAR: Run = |_, _| change(Change::ClearBlocklist, "removed all blocklist entries");

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    write(
        "osd blocklist blocklistop:(add|rm) addr:CephEntityAddr expire:CephFloat?",
        HELP,
        |command, view| set(command, "blocklistop", view),
    ),
    read("osd blocklist ls", HELP_LS, ls),
    write("osd blocklist clear", HELP_CLEAR, CLEAR),
    write(
        "osd blacklist blacklistop:(add|rm) addr:CephEntityAddr expire:CephFloat?",
        HELP,
        |command, view| set(command, "blacklistop", view),
    ),
    read("osd blacklist ls", HELP_LS, ls),
    write("osd blacklist clear", HELP_CLEAR, CLEAR),
];

fn set(command: &Value, op: &str, view: &View<'_>) -> Outcome {
    let named = required(command, "addr")?;
    let addr = EntityAddr::parse_any(named);
    let addr = addr.ok_or_else(|| {
        refuse(errno::EINVAL, format!("unable to parse address {named}: take IP, IP:PORT or IP:PORT/NONCE"))
    })?;
    match required(command, op)? {
        "add" => {
            let seconds = expire_s(command)?;
            let until = UTime::from_unix(view.now.to_unix() + Duration::from_secs_f64(seconds));
            let status = format!("blocklisting {} until {} ({seconds} sec)", shown(&addr), dump::time(until));
            change(Change::Blocklist { addr, until }, status)
        }
        "rm" => change(Change::Unblocklist { addr }, format!("un-blocklisting {}", shown(&addr))),
        other => Err(refuse(errno::EINVAL, format!("{op} '{other}': take add or rm"))),
    }
}

/// Seconds, as a number or as text.
fn expire_s(command: &Value) -> Result<f64, Refusal> {
    let Some(value) = command.get("expire") else { return Ok(EXPIRE_DEFAULT_S) };
    let seconds = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let fits = seconds.filter(|seconds| (0.0..=EXPIRE_MAX_S).contains(seconds));
    fits.ok_or_else(|| {
        refuse(errno::EINVAL, format!("expire {value}: take seconds from 0 to {EXPIRE_MAX_S}"))
    })
}

fn ls(command: &Value, view: &View<'_>) -> Outcome {
    let entries = || view.map.blocklist.iter().map(|(addr, until)| (shown(addr), dump::time(*until)));
    let status = format!("listed {} entries", entries().count());
    let data = if is_formatted(command) {
        pretty(command, &entries().map(|(addr, until)| json!({ "addr": addr, "until": until })).collect())
    } else {
        entries().map(|(addr, until)| format!("{addr} {until}\n")).collect::<String>().into_bytes()
    };
    Ok(Answer::Done { status, data })
}
