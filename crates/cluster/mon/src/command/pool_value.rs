//! Commands that get and set the values of a pool, and its quotas.

use carmine_types::errno;
use carmine_wire::osdmap::{PgPool, PoolOpt};
use serde_json::{Value, json};

use super::{Known, Outcome, View, change, either, is_set, number, present, read, required, said, write};
use crate::change::pool::pool_of;
use crate::change::pool_value::{self, CSUM_TYPES, Kind, VARS, Var, bytes_of, var_of};
use crate::change::{Change, Quota, Refusal, pg_num, refuse};
use crate::report::autoscale;
use crate::stats::unsigned;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd pool get pool:CephPoolname var:PoolValue", "get a value of a pool, or all", get),
    write(
        "osd pool set pool:CephPoolname var:PoolValue val:CephString yes_i_really_mean_it:CephBool?",
        "set a value of a pool",
        set,
    ),
    read("osd pool get-quota pool:CephPoolname", "tell what a pool may hold", get_quota),
    write(
        "osd pool set-quota pool:CephPoolname field:(max_objects|max_bytes) val:CephString",
        "limit what a pool may hold; 0 is no limit",
        set_quota,
    ),
];

/// The choices of `PoolValue`, as the `ceph` tool is told.
pub(super) fn choices() -> String {
    let names: Vec<&str> = VARS.iter().map(|(name, _)| *name).chain(["all"]).collect();
    names.join("|")
}

/// A value, or why there is none.
fn value(view: &View<'_>, name: &str, pool: &PgPool, var: &str) -> Result<Value, Refusal> {
    let absent = |code, text: &str| refuse(code, text.replace("POOL", name).replace("VAR", var));
    Ok(match (var, var_of(var)?) {
        ("size", _) => json!(pool.size),
        ("min_size", _) => json!(pool.min_size),
        ("pg_num", _) => json!(pool.pg_num),
        ("pgp_num", _) => json!(pool.pgp_num),
        ("crush_rule", _) => {
            let name = view.map.crush.rule_names.get(&i32::from(pool.crush_rule));
            name.map_or(json!(pool.crush_rule), |name| json!(name))
        }
        ("pg_autoscale_mode", _) => json!(autoscale::mode(pool)),
        ("use_gmt_hitset", _) => json!(u8::from(pool.use_gmt_hitset)),
        ("fast_read", _) => json!(u8::from(pool.fast_read)),
        (_, Var::Flag) => json!(pool.flags & pool_value::flag(var) != 0),
        (_, Var::Option(at, kind)) => match pool.opts.get(&at) {
            Some(option) => shown(option, kind),
            None => return Err(absent(errno::ENOENT, "option 'VAR' is not set on pool 'POOL'")),
        },
        (_, Var::OfErasure) => {
            return Err(absent(errno::EACCES, "pool 'POOL' is not a erasure pool: variable not applicable"));
        }
        (_, Var::OfTiers | Var::Field) => {
            return Err(absent(errno::EACCES, "pool 'POOL' is not a tier pool: variable not applicable"));
        }
    })
}

/// Whole numbers without a point, whatever they are stored as.
fn shown(option: &PoolOpt, kind: Kind) -> Value {
    match option {
        PoolOpt::Text(text) => json!(text),
        PoolOpt::Int(number) if kind == Kind::Csum => {
            let at = usize::try_from(number - 1).unwrap_or(usize::MAX);
            CSUM_TYPES.get(at).map_or(json!(number), |word| json!(word))
        }
        PoolOpt::Int(number) => json!(number),
        PoolOpt::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => json!(*number as i64),
        PoolOpt::Float(number) => json!(number),
    }
}

/// Text without its quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn get(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, pool) = pool_of(view.map, name)?;
    let of = |var: &'static str| Some((var, value(view, name, pool, var).ok()?));
    let wanted: Vec<(&str, Value)> = match var {
        "all" => VARS.iter().filter_map(|(var, _)| of(var)).collect(),
        var => vec![(var, value(view, name, pool, var)?)],
    };
    let text = || wanted.iter().map(|(var, value)| format!("{var}: {}\n", plain(value))).collect();
    let json = || {
        let mut out = json!({ "pool": name, "pool_id": id });
        wanted.iter().for_each(|(var, value)| out[*var] = value.clone());
        out
    };
    either(command, json, text)
}

fn set(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, old) = pool_of(view.map, name)?;
    let wanted = plain(present(command, "val")?);
    let status = format!("set pool {id} {var} to {wanted}");
    let (pool, sure) = (name.to_string(), is_set(command, "yes_i_really_mean_it"));
    if matches!(var, "pg_num" | "pgp_num") {
        pg_num::check_flag(old, var)?;
    }
    match (var, var_of(var)?) {
        ("size", _) => {
            let size = number(command, "val")?;
            if size == Some(1) && old.size != 1 && !sure {
                let text = "WARNING: setting pool size 1 could lead to data loss without recovery. If you are \
                    *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.";
                return Err(refuse(errno::EPERM, text));
            }
            change(Change::SetPool { pool, size, min_size: None }, status)
        }
        ("min_size", _) => {
            change(Change::SetPool { pool, size: None, min_size: number(command, "val")? }, status)
        }
        ("hashpspool", _) if !sure => Err(refuse(
            errno::EPERM,
            "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass \
             --yes-i-really-mean-it if you really do.",
        )),
        ("hashpspool", _) if matches!(&*wanted, "false" | "0") => {
            Err(refuse(errno::EOPNOTSUPP, "the PGs of a pool stay where hashpspool places them"))
        }
        ("pg_num", _) => change(Change::PgNum { pool, wanted: integer(&wanted)? }, status),
        ("pgp_num", _) => change(Change::PgpNum { pool, wanted: integer(&wanted)? }, status),
        ("crush_rule", _) if !view.map.crush.rule_names.values().any(|rule| *rule == wanted) => {
            Err(refuse(errno::ENOENT, format!("crush rule {wanted} does not exist")))
        }
        ("pg_autoscale_mode", _) if !matches!(&*wanted, "on" | "off" | "warn") => {
            Err(refuse(errno::EINVAL, format!("specified invalid mode {wanted}")))
        }
        (_, Var::Field) if var != "pg_autoscale_mode" => match plain(&value(view, name, old, var)?) {
            known if known == wanted => said(status),
            known => {
                let text = format!("'{var}' of a pool is given when it is created and stays ({known})");
                Err(refuse(errno::EOPNOTSUPP, text))
            }
        },
        _ => change(Change::PoolValue { pool, var: var.to_owned(), value: wanted }, status),
    }
}

/// A whole number, perhaps below 0.
fn integer(text: &str) -> Result<i64, Refusal> {
    let wrong = |_| {
        let text = format!(
            "error parsing integer value '{text}': Expected option value to be integer, got '{text}'"
        );
        refuse(errno::EINVAL, text)
    };
    text.parse().map_err(wrong)
}

fn set_quota(command: &Value, view: &View<'_>) -> Outcome {
    let (name, field) = (required(command, "pool")?, required(command, "field")?);
    pool_of(view.map, name)?;
    let limit = bytes_of(&plain(present(command, "val")?))?;
    let quota = match field {
        "max_objects" => Quota { objects: Some(limit), bytes: None },
        "max_bytes" => Quota { objects: None, bytes: Some(limit) },
        _ => return Err(refuse(errno::EINVAL, format!("unrecognized field '{field}'"))),
    };
    let status = format!("set-quota {field} = {limit} for pool {name}");
    change(Change::Quota { pool: name.to_owned(), quota }, status)
}

fn get_quota(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "pool")?;
    let (id, pool) = pool_of(view.map, name)?;
    let held = view.stats.pools().get(&id).copied().unwrap_or_default();
    let (held_objects, held_bytes) = (unsigned(held.num_objects), unsigned(held.num_bytes));
    let (objects, bytes) = (pool.quota_max_objects, pool.quota_max_bytes);
    let line = |limit: u64, unit: &str, held: u64| match limit {
        0 => "N/A".to_owned(),
        limit => format!("{limit} {unit}  (current num {unit}: {held} {unit})"),
    };
    either(
        command,
        || {
            json!({
                "pool_name": name, "pool_id": id, "quota_max_objects": objects, "current_num_objects": held_objects,
                "quota_max_bytes": bytes, "current_num_bytes": held_bytes,
            })
        },
        || {
            let (objects, bytes) = (line(objects, "objects", held_objects), line(bytes, "bytes", held_bytes));
            format!("quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {bytes}\n")
        },
    )
}
