//! Values of pools. There is no autoscaler: commands that switch it off are right.

use carmine_types::errno;
use carmine_wire::osdmap::PgPool;
use serde_json::{Value, json};

use super::args::{number, required};
use super::output::{change, either, said};
use super::{Known, Outcome, View, read, write};
use crate::change::pool::pool_of;
use crate::change::{Change, refuse};
use crate::report::pools;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read(
        "osd pool get pool:CephPoolname var:(size|min_size|pg_num|pgp_num|crush_rule|pg_autoscale_mode|all)",
        "get a value of a pool",
        get,
    ),
    write(
        "osd pool set pool:CephPoolname var:(size|min_size|pg_num|pgp_num|crush_rule|pg_autoscale_mode) val:CephString yes_i_really_mean_it:CephBool?",
        "set a value of a pool",
        set,
    ),
    read("osd pool autoscale-status", "show that nothing scales the pools", autoscale_status),
    write("osd pool set noautoscale", "switch the autoscaler off (it always is)", set_noautoscale),
    read("osd pool get noautoscale", "tell whether the autoscaler is off (it always is)", get_noautoscale),
];

/// A value as JSON and as the text that Ceph prints.
fn value(view: &View<'_>, pool: &PgPool, var: &str) -> Option<Value> {
    Some(match var {
        "size" => json!(pool.size),
        "min_size" => json!(pool.min_size),
        "pg_num" => json!(pool.pg_num),
        "pgp_num" => json!(pool.pgp_num),
        "crush_rule" => {
            let name = view.map.crush.rule_names.get(&i32::from(pool.crush_rule));
            name.map_or(json!(pool.crush_rule), |name| json!(name))
        }
        "pg_autoscale_mode" => json!("off"),
        _ => return None,
    })
}

/// What `all` shows.
const VARS: [&str; 6] = ["size", "min_size", "pg_num", "pgp_num", "crush_rule", "pg_autoscale_mode"];

fn get(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, pool) = pool_of(view.map, name)?;
    let wanted: Vec<&str> = if var == "all" { VARS.to_vec() } else { vec![var] };
    let mut out = json!({ "pool": name, "pool_id": id });
    let mut plain = String::new();
    for var in wanted {
        let value = value(view, pool, var);
        let value = value.ok_or_else(|| refuse(errno::EINVAL, format!("pools have no value '{var}'")))?;
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        plain.push_str(&format!("{var}: {shown}\n"));
        out[var] = value;
    }
    either(command, || out, || plain)
}

fn set(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, old) = pool_of(view.map, name)?;
    let wanted = command.get("val").map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    let wanted = wanted.ok_or_else(|| refuse(errno::EINVAL, "the parameter 'val' is missing"))?;
    let status = format!("set pool {id} {var} to {wanted}");
    let pool = name.to_string();
    match var {
        "size" => change(Change::SetPool { pool, size: number(command, "val")?, min_size: None }, status),
        "min_size" => change(Change::SetPool { pool, size: None, min_size: number(command, "val")? }, status),
        _ => {
            let known = value(view, old, var);
            let known = known.ok_or_else(|| refuse(errno::EINVAL, format!("pools have no value '{var}'")))?;
            let known = known.as_str().map_or_else(|| known.to_string(), str::to_owned);
            if known == wanted {
                return said(status);
            }
            let text = format!("'{var}' of a pool is given when it is created and stays ({known})");
            Err(refuse(errno::EOPNOTSUPP, text))
        }
    }
}

fn autoscale_status(command: &Value, view: &View<'_>) -> Outcome {
    either(command, || pools::autoscale_json(view), || pools::autoscale_text(view))
}

fn set_noautoscale(_: &Value, _: &View<'_>) -> Outcome {
    said("noautoscale is set, all pools now have autoscale off")
}

fn get_noautoscale(_: &Value, _: &View<'_>) -> Outcome {
    said("noautoscale is on")
}
