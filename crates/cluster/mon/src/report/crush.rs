//! The CRUSH map and its tunables by name, as `osd crush dump` prints them.

use carmine_wire::crushmap::{BucketKind, ChooseArg, CrushMap, Rule, RuleStep, Tunables};
use carmine_wire::osdmap::OsdMap;
use serde_json::{Value, json};

/// The tunables of a profile. As in Ceph only those that name the best or the oldest ones say how straws are computed.
pub(crate) fn profile(name: &str, now: &Tunables) -> Option<Tunables> {
    let is_extreme = matches!(name, "legacy" | "optimal" | "default");
    let best = Tunables {
        straw_calc_version: if is_extreme { 1 } else { now.straw_calc_version },
        ..Tunables::default()
    };
    let hammer = Tunables { chooseleaf_stable: 0, ..best };
    // No straw2.
    let firefly = Tunables { allowed_bucket_algs: ALGS_BEFORE_STRAW2, ..hammer };
    let bobtail = Tunables { chooseleaf_vary_r: 0, ..firefly };
    let argonaut = Tunables {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        ..bobtail
    };
    match name {
        "legacy" => Some(Tunables { straw_calc_version: 0, ..argonaut }),
        "argonaut" => Some(argonaut),
        "bobtail" => Some(bobtail),
        "firefly" => Some(firefly),
        "hammer" => Some(hammer),
        "jewel" | "optimal" | "default" => Some(best),
        _ => None,
    }
}

/// Bit per kind of bucket: uniform, list and straw.
const ALGS_BEFORE_STRAW2: u32 = 0b1_0110;
/// Profiles by their names in `osd crush show-tunables`, the oldest first.
const PROFILES: [&str; 5] = ["argonaut", "bobtail", "firefly", "hammer", "jewel"];

/// `osd crush show-tunables`.
pub(crate) fn tunables(crush: &CrushMap) -> Value {
    let t = &crush.tunables;
    let own = PROFILES.into_iter().find(|name| profile(name, t).as_ref() == Some(t)).unwrap_or("unknown");
    let has_straw2 = crush.buckets.iter().flatten().any(|b| matches!(b.kind, BucketKind::Straw2 { .. }));
    let needs_2 = t.chooseleaf_descend_once != 0;
    let needs_1 = (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries) != (2, 5, 19);
    json!({
        "choose_local_tries": t.choose_local_tries,
        "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries,
        "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r,
        "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version,
        "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": own,
        "optimal_tunables": u8::from(own == "jewel"),
        "legacy_tunables": u8::from(own == "argonaut"),
        "minimum_required_version": minimum(t, has_straw2),
        "require_feature_tunables": u8::from(needs_1),
        "require_feature_tunables2": u8::from(needs_2),
        "has_v2_rules": 0,
        "require_feature_tunables3": u8::from(t.chooseleaf_vary_r != 0),
        "has_v3_rules": 0,
        "has_v4_buckets": u8::from(has_straw2),
        "require_feature_tunables5": u8::from(t.chooseleaf_stable != 0),
        "has_v5_rules": 0,
    })
}

/// The name of a weight set: its pool's, or that of the one for all.
fn weight_set_name(map: &OsdMap, set: i64) -> String {
    map.pool_names.get(&set).cloned().unwrap_or_else(|| "(compat)".to_owned())
}

/// `osd crush weight-set ls`.
pub(crate) fn weight_set_names(map: &OsdMap) -> Vec<String> {
    map.crush.choose_args.keys().map(|set| weight_set_name(map, *set)).collect()
}

/// `osd crush weight-set dump`.
pub(crate) fn weight_sets(crush: &CrushMap) -> Value {
    let sets = crush.choose_args.iter();
    let all = sets.map(|(set, args)| {
        (set.to_string(), args.iter().map(|(slot, arg)| weight_set(*slot, arg)).collect())
    });
    Value::Object(all.collect())
}

fn weight_set(slot: u32, arg: &ChooseArg) -> Value {
    let weights =
        |set: &Vec<u32>| set.iter().map(|weight| json!(f64::from(*weight) / 65_536.0)).collect::<Value>();
    let mut out = json!({ "bucket_id": -1 - i64::from(slot) });
    if !arg.weight_sets.is_empty() {
        out["weight_set"] = arg.weight_sets.iter().map(weights).collect();
    }
    if !arg.ids.is_empty() {
        out["ids"] = json!(arg.ids);
    }
    out
}

/// Oldest release whose clients understand the map.
fn minimum(t: &Tunables, has_straw2: bool) -> &'static str {
    match (t.chooseleaf_stable, has_straw2, t.chooseleaf_vary_r) {
        (1.., _, _) => "jewel",
        (_, true, _) => "hammer",
        (_, _, 1..) => "firefly",
        _ => "bobtail",
    }
}

/// `osd crush dump`.
pub(crate) fn dump(map: &OsdMap) -> Value {
    let crush = &map.crush;
    let named = |id: i32| crush.item_name(id).map_or_else(|| format!("osd.{id}"), str::to_owned);
    let devices: Vec<Value> = (0..crush.max_devices)
        .filter(|id| crush.item_names.contains_key(id))
        .map(|id| match crush.item_classes.get(&id).and_then(|class| crush.class_names.get(class)) {
            Some(class) => json!({ "id": id, "name": named(id), "class": class }),
            None => json!({ "id": id, "name": named(id) }),
        })
        .collect();
    let types: Vec<Value> =
        crush.type_names.iter().map(|(id, name)| json!({ "type_id": id, "name": name })).collect();
    let buckets: Vec<Value> = crush.buckets.iter().flatten().map(|b| bucket(crush, b)).collect();
    json!({
        "devices": devices, "types": types, "buckets": buckets, "rules": rules(crush),
        "tunables": tunables(crush), "choose_args": weight_sets(crush),
    })
}

/// `osd crush rule dump`.
pub(crate) fn rules(crush: &CrushMap) -> Vec<Value> {
    let all = crush.rules.iter().enumerate();
    all.filter_map(|(id, rule)| Some(shown_rule(crush, id, rule.as_ref()?))).collect()
}

fn bucket(crush: &CrushMap, b: &carmine_wire::crushmap::Bucket) -> Value {
    let kind = i32::from(b.kind_id);
    let items = b.items.iter().enumerate();
    let items: Vec<Value> =
        items.map(|(at, id)| json!({ "id": id, "weight": b.item_weight(at), "pos": at })).collect();
    const ALGS: [&str; 6] = ["unknown", "uniform", "list", "tree", "straw", "straw2"];
    json!({
        "id": b.id, "name": crush.item_name(b.id).unwrap_or_default(), "type_id": kind,
        "type_name": crush.type_names.get(&kind), "weight": b.weight,
        "alg": ALGS.get(usize::from(b.kind.alg())).copied().unwrap_or(ALGS[0]), "hash": "rjenkins1", "items": items,
    })
}

fn shown_rule(crush: &CrushMap, id: usize, rule: &Rule) -> Value {
    let name = i32::try_from(id).ok().and_then(|id| crush.rule_names.get(&id));
    json!({
        "rule_id": id, "rule_name": name, "ruleset": rule.ruleset, "type": rule.kind,
        "min_size": rule.min_size, "max_size": rule.max_size,
        "steps": rule.steps.iter().map(|step| shown_step(crush, *step)).collect::<Vec<_>>(),
    })
}

fn shown_step(crush: &CrushMap, step: RuleStep) -> Value {
    let choose =
        |op: &str, num: i32, kind: i32| json!({ "op": op, "num": num, "type": crush.type_names.get(&kind) });
    let set = |op: &str, num: i32| json!({ "op": op, "num": num });
    match step {
        RuleStep::Noop => json!({ "op": "noop" }),
        RuleStep::Take(item) => json!({ "op": "take", "item": item, "item_name": crush.item_name(item) }),
        RuleStep::Emit => json!({ "op": "emit" }),
        RuleStep::ChooseFirstn(n, kind) => choose("choose_firstn", n, kind),
        RuleStep::ChooseIndep(n, kind) => choose("choose_indep", n, kind),
        RuleStep::ChooseLeafFirstn(n, kind) => choose("chooseleaf_firstn", n, kind),
        RuleStep::ChooseLeafIndep(n, kind) => choose("chooseleaf_indep", n, kind),
        RuleStep::SetChooseTries(n) => set("set_choose_tries", n),
        RuleStep::SetChooseLeafTries(n) => set("set_chooseleaf_tries", n),
        RuleStep::SetChooseLocalTries(n) => set("set_choose_local_tries", n),
        RuleStep::SetChooseLocalFallbackTries(n) => set("set_choose_local_fallback_tries", n),
        RuleStep::SetChooseLeafVaryR(n) => set("set_chooseleaf_vary_r", n),
        RuleStep::SetChooseLeafStable(n) => set("set_chooseleaf_stable", n),
        RuleStep::Other { op, arg1, arg2 } => json!({ "opcode": op, "arg1": arg1, "arg2": arg2 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the output of Ceph 16.2.15 for the same map; crushtool omits a bucket's weights in shadow trees.
    #[test]
    fn rules_types_and_tunables_are_ceph_s() {
        let bin = include_bytes!("../../../../protocol/wire/tests/data/live-1osd/osdmap.bin");
        let map = OsdMap::decode(bin).unwrap();
        let theirs: Value = serde_json::from_str(include_str!("../../tests/data/crushmap.json")).unwrap();
        let ours = dump(&map);
        for part in ["devices", "types", "rules", "tunables", "choose_args"] {
            assert_eq!(ours[part], theirs[part], "{part}");
        }
        assert_eq!(ours["buckets"][0], theirs["buckets"][0]);
    }
}
