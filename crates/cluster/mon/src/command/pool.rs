//! Commands that make, list and remove pools, and note what uses them.

use carmine_types::errno;
use serde_json::{Value, json};

use super::{
    Known, Outcome, View, change, done, either, is_set, number, pretty, read, required, said, text, write,
};
use crate::change::crush::rule_of;
use crate::change::pool::pool_of;
use crate::change::{Change, Refusal, SnapWish, refuse};
use crate::report::{autoscale, pools};

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
        "osd pool create pool:CephPoolname pg_num:CephInt? pgp_num:CephInt? pool_type:(replicated|erasure)? erasure_code_profile:CephString? rule:CephString? expected_num_objects:CephInt? size:CephInt? pg_num_min:CephInt? pg_num_max:CephInt? autoscale_mode:(on|off|warn)? bulk:CephBool? target_size_bytes:CephInt? target_size_ratio:CephFloat?",
        "create a pool",
        create,
    ),
    write(
        "osd pool delete pool:CephPoolname pool2:CephPoolname? yes_i_really_really_mean_it:CephBool? yes_i_really_really_mean_it_not_faking:CephBool?",
        "delete a pool (name it twice)",
        delete,
    ),
    write(
        "osd pool rm pool:CephPoolname pool2:CephPoolname? yes_i_really_really_mean_it:CephBool? yes_i_really_really_mean_it_not_faking:CephBool?",
        "delete a pool (name it twice)",
        delete,
    ),
    write(
        "osd pool rename srcpool:CephPoolname destpool:CephPoolname",
        "give a pool another name",
        |c, _| {
            let (pool, to) = (required(c, "srcpool")?.to_owned(), required(c, "destpool")?.to_owned());
            let status = format!("pool '{pool}' renamed to '{to}'");
            change(Change::RenamePool { pool, to }, status)
        },
    ),
    write("osd pool mksnap pool:CephPoolname snap:CephString", "make a snapshot of a pool", mksnap),
    write("osd pool rmsnap pool:CephPoolname snap:CephString", "remove a snapshot of a pool", rmsnap),
    write(
        "osd pool application enable pool:CephPoolname app:CephString yes_i_really_mean_it:CephBool?",
        "note which application uses a pool",
        application_enable,
    ),
    write(
        "osd pool application disable pool:CephPoolname app:CephString yes_i_really_mean_it:CephBool?",
        "forget that an application uses a pool",
        application_disable,
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
        "osd pool application get pool:CephPoolname? app:CephString? key:CephString?",
        "tell which applications use a pool",
        application_get,
    ),
    read("osd pool autoscale-status", "show the numbers of PGs that would suit the pools", |c, v| {
        either(c, || autoscale::json(v), || autoscale::text(v))
    }),
    write("osd pool set noautoscale", "switch the autoscaler off for all pools", |_, _| {
        let status = "noautoscale is set, all pools now have autoscale off";
        change(Change::NoAutoscale, status.to_owned())
    }),
    read("osd pool get noautoscale", "tell whether the autoscaler is off for all pools", |_, v| {
        let is_off = v.map.pools.values().all(|pool| pool.pg_autoscale_mode == 0);
        said(if is_off { "noautoscale is on" } else { "noautoscale is off" })
    }),
];

fn ls(command: &Value, view: &View<'_>) -> Outcome {
    let names = || view.map.pool_names.values();
    let detail = text(command, "detail").is_some();
    either(
        command,
        || if detail { pools::detail_json(view.map) } else { names().map(|n| json!(n)).collect() },
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
    let mode = text(command, "autoscale_mode").filter(|mode| *mode != "off");
    let pg_num = number(command, "pg_num")?.filter(|n| *n != 0);
    if number::<u32>(command, "pgp_num")?.is_some_and(|pgp| pgp != 0 && Some(pgp) != pg_num) {
        return Err(refuse(errno::EOPNOTSUPP, "pgp_num must be equal to pg_num"));
    }
    if view.map.pool_id(&name).is_some() {
        return said(format!("pool '{name}' already exists"));
    }
    let size = number::<u8>(command, "size")?.filter(|n| *n != 0);
    let inside = view.map.osds().filter(|osd| view.map.is_in(*osd)).count();
    let note = match size {
        Some(size) if usize::from(size) > inside => {
            format!("; its PGs are undersized, as {inside} OSDs are in")
        }
        _ => String::new(),
    };
    let status = format!("pool '{name}' created{note}");
    let mut values = values(command);
    values.extend(mode.map(|mode| ("pg_autoscale_mode".to_owned(), mode.to_owned())));
    let wish = Change::CreatePool { name, pg_num, size, rule: rule(command, view)?, values };
    change(wish, status)
}

/// Values that a new pool gets, by their names.
fn values(command: &Value) -> Vec<(String, String)> {
    let names = ["pg_num_min", "pg_num_max", "bulk", "target_size_bytes", "target_size_ratio"].into_iter();
    let given = names.filter_map(|name| Some((name, command.get(name)?)));
    let as_text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    given.map(|(name, value)| (name.to_owned(), as_text(value))).collect()
}

/// The slot of the rule that places a new pool. The tool puts its name into the first free text parameter.
fn rule(command: &Value, view: &View<'_>) -> Result<u8, Refusal> {
    let mut named = ["rule", "erasure_code_profile"].into_iter().filter_map(|key| text(command, key));
    let Some(name) = named.find(|name| !name.is_empty()) else { return Ok(0) };
    let slot = rule_of(&view.map.crush, name).and_then(|slot| u8::try_from(slot).ok());
    slot.ok_or_else(|| refuse(errno::ENOENT, format!("specified rule {name} doesn't exist")))
}

fn delete(command: &Value, view: &View<'_>) -> Outcome {
    let name = required(command, "pool")?;
    let Some(pool) = view.map.pool_id(name) else { return said(format!("pool '{name}' does not exist")) };
    let switches = ["yes_i_really_really_mean_it", "yes_i_really_really_mean_it_not_faking", "sure"]
        .map(|s| is_set(command, s));
    if text(command, "pool2") != Some(name) || !switches.contains(&true) {
        let text = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* \
             that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
        );
        return Err(refuse(errno::EPERM, text));
    }
    change(Change::DeletePool { pool }, format!("pool '{name}' removed"))
}

fn mksnap(command: &Value, view: &View<'_>) -> Outcome {
    let (name, snap) = (required(command, "pool")?, required(command, "snap")?.to_owned());
    let (pool, old) = pool_of(view.map, name)?;
    let status = match old.snap_id(&snap) {
        Some(_) => format!("pool {name} snap {snap} already exists"),
        None => format!("created pool {name} snap {snap}"),
    };
    change(Change::Snap { pool, wish: SnapWish::Make(snap) }, status)
}

fn rmsnap(command: &Value, view: &View<'_>) -> Outcome {
    let (name, snap) = (required(command, "pool")?, required(command, "snap")?.to_owned());
    let (pool, old) = pool_of(view.map, name)?;
    let status = match old.snap_id(&snap) {
        Some(_) => format!("removed pool {name} snap {snap}"),
        None => format!("pool {name} snap {snap} does not exist"),
    };
    change(Change::Snap { pool, wish: SnapWish::Remove(snap) }, status)
}

fn application_enable(command: &Value, _: &View<'_>) -> Outcome {
    let (pool, app) = (required(command, "pool")?.to_string(), required(command, "app")?.to_string());
    let status = format!("enabled application '{app}' on pool '{pool}'");
    change(Change::EnableApp { pool, app, force: is_set(command, "yes_i_really_mean_it") }, status)
}

fn application_disable(command: &Value, view: &View<'_>) -> Outcome {
    let (pool, app) = (required(command, "pool")?.to_string(), required(command, "app")?.to_string());
    let (_, old) = pool_of(view.map, &pool)?;
    if !is_set(command, "yes_i_really_mean_it") {
        let text = "Are you SURE? Disabling an application within a pool might result in loss of application \
            functionality; pass --yes-i-really-mean-it to proceed anyway";
        return Err(refuse(errno::EPERM, text));
    }
    if !old.application_metadata.contains_key(&app) {
        return said(format!("application '{app}' is not enabled on pool '{pool}'"));
    }
    let status = format!("disable application '{app}' on pool '{pool}'");
    change(Change::DisableApp { pool, app }, status)
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
    let Some(name) = text(command, "pool") else {
        let all = view.map.pool_names.iter().map(|(id, name)| (name.clone(), of(id))).collect();
        return done(pretty(command, &all));
    };
    let mut value = of(&pool_of(view.map, name)?.0);
    if let Some(app) = text(command, "app") {
        let found = value.get(app).cloned();
        let missing = || refuse(errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
        value = found.ok_or_else(missing)?;
        if let Some(key) = text(command, "key") {
            let found = value.get(key).cloned();
            let text = || format!("application '{app}' on pool '{name}' does not have key '{key}'");
            let found = found.ok_or_else(|| refuse(errno::ENOENT, text()))?;
            return either(command, || found.clone(), || format!("{}\n", found.as_str().unwrap_or_default()));
        }
    }
    done(pretty(command, &value))
}
