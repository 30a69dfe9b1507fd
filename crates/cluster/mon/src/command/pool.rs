//! Commands that make, list and remove pools, note what uses them, and get and set their values. There is no autoscaler:
//! commands that switch it off are right.

use carmine_types::errno;
use carmine_wire::osdmap::PgPool;
use serde_json::{Value, json};

use super::{
    Known, Outcome, View, change, done, either, is_set, number, present, pretty, read, required, said, text,
    write,
};
use crate::change::pool::pool_of;
use crate::change::{Change, Refusal, refuse};
use crate::report::pools;

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd lspools", "list the pools with their numbers", |c, v| {
        let names = || v.map.pool_names.iter();
        let json = || names().map(|(id, name)| json!({ "poolnum": id, "poolname": name })).collect();
        either(c, json, || names().map(|(id, name)| format!("{id} {name}\n")).collect())
    }),
    read("osd pool ls detail:(detail)?", "list the pools", ls),
    read("osd pool stats pool_name:CephPoolname?", "show what pools hold", stats),
    write(
        "osd pool create pool:CephPoolname pg_num:CephInt? pgp_num:CephInt? pool_type:(replicated|erasure)? erasure_code_profile:CephString? rule:CephString? expected_num_objects:CephInt? size:CephInt? pg_num_min:CephInt? autoscale_mode:(on|off|warn)?",
        "create a pool",
        create,
    ),
    write(
        "osd pool delete pool:CephPoolname pool2:CephPoolname? yes_i_really_really_mean_it:CephBool?",
        "delete a pool (name it twice)",
        delete,
    ),
    write(
        "osd pool rm pool:CephPoolname pool2:CephPoolname? yes_i_really_really_mean_it:CephBool?",
        "delete a pool (name it twice)",
        delete,
    ),
    write(
        "osd pool application enable pool:CephPoolname app:CephString yes_i_really_mean_it:CephBool?",
        "note which application uses a pool",
        application_enable,
    ),
    write(
        "osd pool application set pool:CephPoolname app:CephString key:CephString value:CephString",
        "note a value of an application that uses a pool",
        |c, _| application_value(c, Some(required(c, "value")?.to_string())),
    ),
    write(
        "osd pool application rm pool:CephPoolname app:CephString key:CephString",
        "forget a value of an application that uses a pool",
        |c, _| application_value(c, None),
    ),
    read(
        "osd pool application get pool:CephPoolname?",
        "tell which applications use a pool",
        application_get,
    ),
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
    read("osd pool autoscale-status", "show that nothing scales the pools", |c, v| {
        either(c, || pools::autoscale_json(v), || pools::autoscale_text(v))
    }),
    write("osd pool set noautoscale", "switch the autoscaler off (it always is)", |_, _| {
        said("noautoscale is set, all pools now have autoscale off")
    }),
    read("osd pool get noautoscale", "tell whether the autoscaler is off (it always is)", |_, _| {
        said("noautoscale is on")
    }),
];

fn ls(command: &Value, view: &View<'_>) -> Outcome {
    let names = || view.map.pool_names.values();
    let detail = text(command, "detail").is_some();
    either(
        command,
        || if detail { pools::json(view.map) } else { names().map(|n| json!(n)).collect() },
        || if detail { pools::text(view.map) } else { names().map(|n| format!("{n}\n")).collect() },
    )
}

fn stats(command: &Value, view: &View<'_>) -> Outcome {
    let name = text(command, "pool_name");
    if let Some(name) = name {
        pool_of(view.map, name)?;
    }
    either(command, || pools::stats_json(view, name), || pools::stats_text(view, name))
}

fn create(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "pool")?.to_string();
    if text(command, "pool_type").is_some_and(|kind| kind != "replicated") {
        return Err(refuse(errno::EOPNOTSUPP, "only replicated pools are supported"));
    }
    // The tool puts the name of a rule into the first free text parameter.
    for rule in ["rule", "erasure_code_profile"].into_iter().filter_map(|key| text(command, key)) {
        if !rule.is_empty() && !view.map.crush.rule_names.values().any(|known| known == rule) {
            return Err(refuse(errno::ENOENT, format!("there is no CRUSH rule '{rule}'")));
        }
    }
    if text(command, "autoscale_mode").is_some_and(|mode| mode != "off") {
        return Err(refuse(errno::EOPNOTSUPP, "there is no autoscaler: take --autoscale-mode off"));
    }
    let pg_num = number(command, "pg_num")?.filter(|n| *n != 0);
    if number::<u32>(command, "pgp_num")?.is_some_and(|pgp| pgp != 0 && Some(pgp) != pg_num) {
        return Err(refuse(errno::EOPNOTSUPP, "pgp_num must be equal to pg_num"));
    }
    let status = if view.map.pool_id(&name).is_some() {
        format!("pool '{name}' already exists")
    } else {
        format!("pool '{name}' created")
    };
    let size = number(command, "size")?.filter(|n| *n != 0);
    change(Change::CreatePool { name, pg_num, size }, status)
}

fn delete(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "pool")?;
    let sure = is_set(command, "yes_i_really_really_mean_it") || is_set(command, "sure");
    if text(command, "pool2") != Some(name) || !sure {
        let text = format!(
            "this destroys all data in pool '{name}': name it twice and add --yes-i-really-really-mean-it"
        );
        return Err(refuse(errno::EPERM, text));
    }
    match view.map.pool_id(name) {
        Some(pool) => change(Change::DeletePool { pool }, format!("pool '{name}' removed")),
        None => said(format!("pool '{name}' does not exist")),
    }
}

fn application_enable(command: &Value, _: &View<'_>) -> Outcome {
    let (pool, app) = (required(command, "pool")?.to_string(), required(command, "app")?.to_string());
    let status = format!("enabled application '{app}' on pool '{pool}'");
    change(Change::EnableApp { pool, app }, status)
}

fn application_value(command: &Value, value: Option<String>) -> Outcome {
    let word = |name: &str| required(command, name).map(str::to_string);
    let (pool, app, key) = (word("pool")?, word("app")?, word("key")?);
    let verb = if value.is_some() { "set" } else { "removed" };
    let status = format!("{verb} application '{app}' key '{key}' on pool '{pool}'");
    change(Change::AppValue { pool, app, key, value }, status)
}

fn application_get(command: &Value, view: &View<'_>) -> Outcome {
    let of = |id: &i64| view.map.pool(*id).map_or(json!({}), |p| json!(p.application_metadata));
    let value = match text(command, "pool") {
        Some(name) => of(&pool_of(view.map, name)?.0),
        None => view.map.pool_names.iter().map(|(id, name)| (name.clone(), of(id))).collect(),
    };
    done(pretty(command, &value))
}

/// A value as JSON, and as the text that Ceph prints.
fn value(view: &View<'_>, pool: &PgPool, var: &str) -> Result<(Value, String), Refusal> {
    let value = match var {
        "size" => json!(pool.size),
        "min_size" => json!(pool.min_size),
        "pg_num" => json!(pool.pg_num),
        "pgp_num" => json!(pool.pgp_num),
        "crush_rule" => {
            let name = view.map.crush.rule_names.get(&i32::from(pool.crush_rule));
            name.map_or(json!(pool.crush_rule), |name| json!(name))
        }
        "pg_autoscale_mode" => json!("off"),
        _ => return Err(refuse(errno::EINVAL, format!("pools have no value '{var}'"))),
    };
    let text = plain(&value);
    Ok((value, text))
}

/// Text without its quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values that `all` shows.
const VARS: [&str; 6] = ["size", "min_size", "pg_num", "pgp_num", "crush_rule", "pg_autoscale_mode"];

fn get(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, pool) = pool_of(view.map, name)?;
    let wanted: Vec<&str> = if var == "all" { VARS.to_vec() } else { vec![var] };
    let mut out = json!({ "pool": name, "pool_id": id });
    let mut text = String::new();
    for var in wanted {
        let (value, shown) = value(view, pool, var)?;
        text.push_str(&format!("{var}: {shown}\n"));
        out[var] = value;
    }
    either(command, || out, || text)
}

fn set(command: &Value, view: &View<'_>) -> Outcome {
    let (name, var) = (required(command, "pool")?, required(command, "var")?);
    let (id, old) = pool_of(view.map, name)?;
    let wanted = plain(present(command, "val")?);
    let status = format!("set pool {id} {var} to {wanted}");
    let pool = name.to_string();
    match var {
        "size" => change(Change::SetPool { pool, size: number(command, "val")?, min_size: None }, status),
        "min_size" => change(Change::SetPool { pool, size: None, min_size: number(command, "val")? }, status),
        _ => {
            let (_, known) = value(view, old, var)?;
            if known == wanted {
                return said(status);
            }
            let text = format!("'{var}' of a pool is given when it is created and stays ({known})");
            Err(refuse(errno::EOPNOTSUPP, text))
        }
    }
}
