//! MON_COMMAND: what an administrator's tool asks for by name. Every command is answered at once or after the
//! map change that it asks for; an unknown one is EINVAL.

use carmine_types::errno;
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

use crate::change::{Change, Refusal, refuse};
use crate::report;
use crate::stats::ClusterStats;

/// Longest command text that is looked at; the longest real one has a few hundred bytes.
const COMMAND_BYTES_MAX: usize = 64 << 10;

/// What commands can see.
pub(crate) struct View<'a> {
    pub(crate) map: &'a OsdMap,
    /// The current map as sent to clients.
    pub(crate) map_bytes: &'a [u8],
    pub(crate) stats: &'a ClusterStats,
    /// Address of this monitor, for people.
    pub(crate) addr: String,
}

/// What a command leads to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Status text and output data.
    Done { status: String, data: Vec<u8> },
    /// A change; the text is the status once it is done.
    Change { change: Change, status: String },
}

fn done(data: impl Into<Vec<u8>>) -> Result<Answer, Refusal> {
    Ok(Answer::Done { status: String::new(), data: data.into() })
}

/// One known command: its words and parameters as the `ceph` tool is told about them, and its help.
struct Known {
    words: &'static str,
    /// `name:type` or `name:type?` for an optional one; a type in capitals names its choices: `(a|b)`.
    parameters: &'static [&'static str],
    help: &'static str,
    perm: &'static str,
    run: fn(&Value, &View<'_>) -> Result<Answer, Refusal>,
}

const POOL: &str = "pool:CephPoolname";

/// The commands, in the order in which `get_command_descriptions` lists them.
const COMMANDS: &[Known] = &[
    Known {
        words: "get_command_descriptions",
        parameters: &[],
        help: "list the commands",
        perm: "r",
        run: descriptions,
    },
    Known { words: "status", parameters: &[], help: "show the cluster's state", perm: "r", run: status },
    Known {
        words: "health",
        parameters: &["detail:(detail)?"],
        help: "show the cluster's health",
        perm: "r",
        run: health,
    },
    Known { words: "fsid", parameters: &[], help: "show the cluster's id", perm: "r", run: fsid },
    Known { words: "version", parameters: &[], help: "show the monitor's version", perm: "r", run: version },
    Known {
        words: "df",
        parameters: &["detail:(detail)?"],
        help: "show used and free space",
        perm: "r",
        run: df,
    },
    Known { words: "osd dump", parameters: &[], help: "print the OSDMap", perm: "r", run: osd_dump },
    Known { words: "osd tree", parameters: &[], help: "print the CRUSH tree", perm: "r", run: osd_tree },
    Known { words: "osd stat", parameters: &[], help: "count the OSDs", perm: "r", run: osd_stat },
    Known { words: "osd ls", parameters: &[], help: "list the OSD ids", perm: "r", run: osd_ls },
    Known { words: "osd getmap", parameters: &[], help: "get the OSDMap", perm: "r", run: osd_getmap },
    Known {
        words: "osd getcrushmap",
        parameters: &[],
        help: "get the CRUSH map",
        perm: "r",
        run: osd_getcrushmap,
    },
    Known {
        words: "osd pool ls",
        parameters: &["detail:(detail)?"],
        help: "list the pools",
        perm: "r",
        run: pool_ls,
    },
    Known {
        words: "osd pool create",
        parameters: &[
            POOL,
            "pg_num:CephInt?",
            "pgp_num:CephInt?",
            "pool_type:(replicated|erasure)?",
            "size:CephInt?",
        ],
        help: "create a pool",
        perm: "rw",
        run: pool_create,
    },
    Known {
        words: "osd pool delete",
        parameters: &[POOL, "pool2:CephPoolname?", "yes_i_really_really_mean_it:CephBool?"],
        help: "delete a pool (name it twice)",
        perm: "rw",
        run: pool_delete,
    },
    Known {
        words: "osd pool rm",
        parameters: &[POOL, "pool2:CephPoolname?", "yes_i_really_really_mean_it:CephBool?"],
        help: "delete a pool (name it twice)",
        perm: "rw",
        run: pool_delete,
    },
    Known {
        words: "osd pool application enable",
        parameters: &[POOL, "app:CephString", "yes_i_really_mean_it:CephBool?"],
        help: "note which application uses a pool",
        perm: "rw",
        run: pool_application_enable,
    },
    Known {
        words: "osd pool application get",
        parameters: &["pool:CephPoolname?"],
        help: "tell which applications use a pool",
        perm: "r",
        run: pool_application_get,
    },
    Known {
        words: "osd pool get",
        parameters: &[POOL, "var:(size|min_size|pg_num|pgp_num|crush_rule)"],
        help: "get a value of a pool",
        perm: "r",
        run: pool_get,
    },
    Known {
        words: "osd pool set",
        parameters: &[POOL, "var:(size|min_size)", "val:CephString"],
        help: "set a value of a pool",
        perm: "rw",
        run: pool_set,
    },
];

/// Runs one command, given as the `cmd` strings of the message.
pub(crate) fn run(cmd: &[String], view: &View<'_>) -> Result<Answer, Refusal> {
    let text = cmd.first().map_or("", String::as_str);
    if text.len() > COMMAND_BYTES_MAX {
        return Err(refuse(errno::E2BIG, "the command is too long"));
    }
    let command: Value = serde_json::from_str(text)
        .map_err(|e| refuse(errno::EINVAL, format!("the command is no JSON object: {e}")))?;
    let prefix = command.get("prefix").and_then(Value::as_str).unwrap_or_default();
    match COMMANDS.iter().find(|known| known.words == prefix) {
        Some(known) => (known.run)(&command, view),
        None => Err(refuse(errno::EINVAL, format!("carmine's monitor has no command '{prefix}'"))),
    }
}

fn text<'a>(command: &'a Value, name: &str) -> Option<&'a str> {
    command.get(name).and_then(Value::as_str)
}

fn required<'a>(command: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    text(command, name).ok_or_else(|| refuse(errno::EINVAL, format!("the parameter '{name}' is missing")))
}

/// A whole number, given as a number or as text.
fn number<T: TryFrom<u64>>(command: &Value, name: &str) -> Result<Option<T>, Refusal> {
    let Some(value) = command.get(name) else { return Ok(None) };
    let parsed = value.as_u64().or_else(|| value.as_str()?.parse().ok()).and_then(|n| T::try_from(n).ok());
    parsed.map(Some).ok_or_else(|| refuse(errno::EINVAL, format!("{name} {value}: not a fitting number")))
}

fn wants_json(command: &Value) -> bool {
    text(command, "format").is_some_and(|f| f.starts_with("json"))
}

fn pretty(command: &Value, value: &Value) -> Vec<u8> {
    let out = if text(command, "format") == Some("json-pretty") {
        serde_json::to_vec_pretty(value)
    } else {
        serde_json::to_vec(value)
    };
    // A Value always serialises.
    out.unwrap_or_default()
}

/// JSON or text, as asked for.
fn either(
    command: &Value,
    value: impl FnOnce() -> Value,
    plain: impl FnOnce() -> String,
) -> Result<Answer, Refusal> {
    if wants_json(command) { done(pretty(command, &value())) } else { done(plain()) }
}

fn descriptions(_: &Value, _: &View<'_>) -> Result<Answer, Refusal> {
    let all = COMMANDS.iter().enumerate().map(|(n, known)| {
        let words = known.words.split(' ').map(|w| json!(w));
        let parameters = known.parameters.iter().map(|p| parameter(p));
        let sig: Vec<Value> = words.chain(parameters).collect();
        let module = known.words.split(' ').next().unwrap_or_default();
        let entry =
            json!({ "sig": sig, "help": known.help, "module": module, "perm": known.perm, "flags": 0 });
        (format!("cmd{n:03}"), entry)
    });
    done(Value::Object(all.collect()).to_string())
}

/// `name:type?` as the object the `ceph` tool expects.
fn parameter(text: &str) -> Value {
    let (name, kind) = text.split_once(':').unwrap_or((text, "CephString"));
    let (kind, optional) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let mut out = match kind.strip_prefix('(').and_then(|k| k.strip_suffix(')')) {
        Some(choices) => json!({ "name": name, "type": "CephChoices", "strings": choices }),
        None => json!({ "name": name, "type": kind }),
    };
    if optional {
        out["req"] = json!(false);
    }
    out
}

fn status(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    either(command, || report::status_json(view), || report::status_text(view))
}

fn health(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    either(command, || report::health_json(view.map), || report::health_text(view.map))
}

fn fsid(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let fsid = view.map.fsid.to_string();
    either(command, || json!({ "fsid": fsid }), || format!("{fsid}\n"))
}

fn version(command: &Value, _: &View<'_>) -> Result<Answer, Refusal> {
    let version = concat!("carmine ", env!("CARGO_PKG_VERSION"));
    either(command, || json!({ "version": version }), || format!("{version}\n"))
}

fn df(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    either(command, || report::df_json(view), || report::df_text(view))
}

fn osd_dump(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let status = format!("dumped osdmap epoch {}", view.map.epoch);
    let Answer::Done { data, .. } =
        either(command, || report::dump_json(view.map), || report::dump_text(view.map))?
    else {
        return done("");
    };
    Ok(Answer::Done { status, data })
}

fn osd_tree(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    either(command, || report::tree_json(view.map), || report::tree_text(view.map))
}

fn osd_stat(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let (all, up, inside) = report::osd_counts(view.map);
    let epoch = view.map.epoch.0;
    either(
        command,
        || json!({ "epoch": epoch, "num_osds": all, "num_up_osds": up, "num_in_osds": inside }),
        || format!("{all} osds: {up} up, {inside} in; epoch: e{epoch}\n"),
    )
}

fn osd_ls(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let ids: Vec<u32> = view.map.osds().map(|osd| osd.0).collect();
    either(command, || json!(ids), || ids.iter().map(|id| format!("{id}\n")).collect())
}

fn osd_getmap(_: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::Done { status: format!("got osdmap epoch {}", view.map.epoch), data: view.map_bytes.to_vec() })
}

fn osd_getcrushmap(_: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::Done { status: view.map.crush_version.to_string(), data: view.map.crush.encode() })
}

fn pool_ls(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let detail = text(command, "detail").is_some();
    let names = || view.map.pool_names.values();
    either(
        command,
        || if detail { report::pools_json(view.map) } else { names().map(|n| json!(n)).collect() },
        || if detail { report::pools_text(view.map) } else { names().map(|n| format!("{n}\n")).collect() },
    )
}

fn pool_create(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let name = required(command, "pool")?.to_string();
    if text(command, "pool_type").is_some_and(|kind| kind != "replicated") {
        return Err(refuse(errno::EOPNOTSUPP, "only replicated pools are supported"));
    }
    let pg_num = number(command, "pg_num")?;
    if number::<u32>(command, "pgp_num")?.is_some_and(|pgp| Some(pgp) != pg_num) {
        return Err(refuse(errno::EOPNOTSUPP, "pgp_num must be equal to pg_num"));
    }
    let status = if view.map.pool_id(&name).is_some() {
        format!("pool '{name}' already exists")
    } else {
        format!("pool '{name}' created")
    };
    Ok(Answer::Change { change: Change::CreatePool { name, pg_num, size: number(command, "size")? }, status })
}

fn pool_delete(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let name = required(command, "pool")?;
    let sure = command.get("yes_i_really_really_mean_it").and_then(Value::as_bool) == Some(true)
        || text(command, "sure").is_some();
    if text(command, "pool2") != Some(name) || !sure {
        let text = format!(
            "this destroys all data in pool '{name}': name it twice and add --yes-i-really-really-mean-it"
        );
        return Err(refuse(errno::EPERM, text));
    }
    match view.map.pool_id(name) {
        Some(pool) => Ok(Answer::Change {
            change: Change::DeletePool { pool },
            status: format!("pool '{name}' removed"),
        }),
        None => Ok(Answer::Done { status: format!("pool '{name}' does not exist"), data: Vec::new() }),
    }
}

fn pool_application_enable(command: &Value, _: &View<'_>) -> Result<Answer, Refusal> {
    let (pool, app) = (required(command, "pool")?.to_string(), required(command, "app")?.to_string());
    let status = format!("enabled application '{app}' on pool '{pool}'");
    Ok(Answer::Change { change: Change::EnableApp { pool, app }, status })
}

fn pool_application_get(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let of = |id: &i64| view.map.pool(*id).map_or(json!({}), |p| json!(p.application_metadata));
    let value = match text(command, "pool") {
        Some(name) => {
            let id = view.map.pool_id(name);
            of(&id.ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool '{name}'")))?)
        }
        None => view.map.pool_names.iter().map(|(id, name)| (name.clone(), of(id))).collect(),
    };
    done(pretty(command, &value))
}

fn pool_get(command: &Value, view: &View<'_>) -> Result<Answer, Refusal> {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let id =
        view.map.pool_id(name).ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool '{name}'")))?;
    let pool = view.map.pool(id).ok_or_else(|| refuse(errno::ENOENT, format!("there is no pool {id}")))?;
    let value = match var {
        "size" => u32::from(pool.size),
        "min_size" => u32::from(pool.min_size),
        "pg_num" => pool.pg_num,
        "pgp_num" => pool.pgp_num,
        "crush_rule" => u32::from(pool.crush_rule),
        _ => return Err(refuse(errno::EINVAL, format!("there is no value '{var}' of pools"))),
    };
    either(command, || json!({ "pool": name, "pool_id": id, var: value }), || format!("{var}: {value}\n"))
}

fn pool_set(command: &Value, _: &View<'_>) -> Result<Answer, Refusal> {
    let (pool, var) = (required(command, "pool")?.to_string(), required(command, "var")?);
    let value = number::<u8>(command, "val")?;
    let (size, min_size) = match var {
        "size" => (value, None),
        "min_size" => (None, value),
        _ => return Err(refuse(errno::EOPNOTSUPP, format!("'{var}' of a pool cannot be set"))),
    };
    let status = format!("set pool '{pool}' {var} to {}", value.unwrap_or_default());
    Ok(Answer::Change { change: Change::SetPool { pool, size, min_size }, status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, up};
    use proptest::prelude::*;

    fn run_on(map: &OsdMap, text: &str) -> Result<Answer, Refusal> {
        let stats = ClusterStats::default();
        let bytes = map.encode();
        let view = View { map, map_bytes: &bytes, stats: &stats, addr: "127.0.0.1:3300".into() };
        run(&[text.to_string()], &view)
    }

    fn data(map: &OsdMap, text: &str) -> String {
        match run_on(map, text) {
            Ok(Answer::Done { data, .. }) => String::from_utf8_lossy(&data).into_owned(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn every_command_is_described_and_answers() {
        let mut map = cluster(3);
        up(&mut map, 1, 9);
        let all: Value =
            serde_json::from_str(&data(&map, r#"{"prefix":"get_command_descriptions"}"#)).unwrap();
        assert_eq!(all.as_object().unwrap().len(), COMMANDS.len());
        let ls = all.as_object().unwrap().values().find(|c| c["help"] == "list the pools").unwrap();
        assert_eq!(
            ls["sig"][3],
            json!({"name": "detail", "type": "CephChoices", "strings": "detail", "req": false})
        );
        for known in COMMANDS {
            for format in ["plain", "json", "json-pretty"] {
                let command = json!({ "prefix": known.words, "format": format, "pool": "bench", "app": "rgw",
                    "var": "size", "val": "3", "pool2": "bench", "yes_i_really_really_mean_it": true, "pg_num": 8 });
                let answer = run_on(&map, &command.to_string());
                assert!(answer.is_ok(), "{}: {answer:?}", known.words);
            }
        }
    }

    #[test]
    fn what_tools_read() {
        let mut map = cluster(3);
        assert_eq!(data(&map, r#"{"prefix":"osd pool ls"}"#), "bench\n");
        assert_eq!(data(&map, r#"{"prefix":"osd pool ls","format":"json"}"#), r#"["bench"]"#);
        assert_eq!(data(&map, r#"{"prefix":"osd pool get","pool":"bench","var":"size"}"#), "size: 3\n");
        assert!(data(&map, r#"{"prefix":"health"}"#).starts_with("HEALTH_WARN OSD_DOWN: 3 osds down"));
        (0..3).for_each(|osd| up(&mut map, osd, 1));
        assert_eq!(data(&map, r#"{"prefix":"health"}"#), "HEALTH_OK\n");
        let tree = data(&map, r#"{"prefix":"osd tree"}"#);
        assert!(tree.contains("root default") && tree.contains("osd.2") && tree.contains("up"), "{tree}");
        let dump: Value =
            serde_json::from_str(&data(&map, r#"{"prefix":"osd dump","format":"json"}"#)).unwrap();
        assert_eq!((&dump["epoch"], &dump["pools"][0]["pool_name"]), (&json!(4), &json!("bench")));
        assert!(data(&map, r#"{"prefix":"osd dump"}"#).contains("max_osd 3"));
        assert!(data(&map, r#"{"prefix":"status"}"#).contains("3 osds: 3 up, 3 in"));
    }

    #[test]
    fn wrong_commands_are_refused() {
        let map = cluster(1);
        for (text, code) in [
            ("", errno::EINVAL),
            ("[]", errno::EINVAL),
            ("{}", errno::EINVAL),
            (r#"{"prefix":"pg dump"}"#, errno::EINVAL),
            (r#"{"prefix":7}"#, errno::EINVAL),
            (r#"{"prefix":"osd pool create"}"#, errno::EINVAL),
            (r#"{"prefix":"osd pool create","pool":"x","pg_num":"many"}"#, errno::EINVAL),
            (r#"{"prefix":"osd pool create","pool":"x","pg_num":-1}"#, errno::EINVAL),
            (r#"{"prefix":"osd pool create","pool":"x","pool_type":"erasure"}"#, errno::EOPNOTSUPP),
            (r#"{"prefix":"osd pool delete","pool":"bench","pool2":"bench"}"#, errno::EPERM),
            (r#"{"prefix":"osd pool get","pool":"none","var":"size"}"#, errno::ENOENT),
            (r#"{"prefix":"osd pool get","pool":"bench","var":"colour"}"#, errno::EINVAL),
        ] {
            assert_eq!(run_on(&map, text).unwrap_err().code.0, code, "{text}");
        }
        assert_eq!(
            run(
                &[],
                &View { map: &map, map_bytes: &[], stats: &ClusterStats::default(), addr: String::new() }
            )
            .unwrap_err()
            .code
            .0,
            errno::EINVAL
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,60}", prefix in 0..COMMANDS.len(), key in "[a-z_]{1,8}", value: Option<i64>) {
            let map = cluster(2);
            let _ = run_on(&map, &text);
            let mut command = json!({ "prefix": COMMANDS[prefix].words, "pool": "bench" });
            command[key] = json!(value);
            let _ = run_on(&map, &command.to_string());
        }
    }
}
