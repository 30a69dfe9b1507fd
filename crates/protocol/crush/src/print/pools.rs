//! A pool's line in `osdmaptool --print`.

use std::collections::BTreeMap;
use std::fmt::Write;

use carmine_types::Epoch;
use carmine_wire::osdmap::consts::{HASH_RJENKINS, POOL_FLAG_NAMES, POOL_REPLICATED};
use carmine_wire::osdmap::{OsdMap, PgPool, PoolOpt};

use super::number::{General, Time};

/// Names of pool options by key.
const OPT_NAMES: [&str; 24] = [
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "read_lease_interval",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "pg_num_max",
];

/// The pools' lines of `osdmaptool --print`.
pub fn print_pools(map: &OsdMap) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = map.pools.iter().try_for_each(|(id, pool)| write_pool(&mut out, map, *id, pool));
    out
}

/// Name of a pool's option by its key.
pub fn pool_option(key: i32) -> String {
    let name = usize::try_from(key).ok().and_then(|key| OPT_NAMES.get(key));
    name.map_or_else(|| format!("option{key}"), |name| (*name).to_owned())
}

pub(super) fn write_pool(out: &mut String, map: &OsdMap, id: i64, pool: &PgPool) -> std::fmt::Result {
    write!(out, "pool {id} '{}'", map.pool_name(id).unwrap_or("<unknown>"))?;
    write_shape(out, pool)?;
    write_limits(out, pool)?;
    write_tiering(out, pool)?;
    write!(out, " stripe_width {}", pool.stripe_width)?;
    if pool.expected_num_objects != 0 {
        write!(out, " expected_num_objects {}", pool.expected_num_objects)?;
    }
    if pool.fast_read {
        write!(out, " fast_read 1")?;
    }
    write_opts(out, pool)?;
    if !pool.application_metadata.is_empty() {
        let apps: Vec<&str> = pool.application_metadata.keys().map(String::as_str).collect();
        write!(out, " application {}", apps.join(","))?;
    }
    writeln!(out)?;
    for snap in pool.snaps.values() {
        writeln!(out, "\tsnap {} '{}' {}", snap.snapid, snap.name, Time(snap.stamp))?;
    }
    let queue = map.removed_snaps_queue.get(&id);
    let sets = [("removed_snaps", Some(&pool.removed_snaps)), ("removed_snaps_queue", queue)];
    for (name, set) in sets {
        let Some(set) = set.filter(|set| !set.is_empty()) else { continue };
        let ranges = set.iter().map(|(start, len)| format!("{start:x}~{len:x}"));
        writeln!(out, "\t{name} [{}]", ranges.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// The options that have a name, in the order of the names.
fn write_opts(out: &mut String, pool: &PgPool) -> std::fmt::Result {
    let named = |(key, value): (&i32, _)| Some((*OPT_NAMES.get(usize::try_from(*key).ok()?)?, value));
    let sorted: BTreeMap<&str, &PoolOpt> = pool.opts.iter().filter_map(named).collect();
    for (name, value) in sorted {
        match value {
            PoolOpt::Text(text) => write!(out, " {name} {text}")?,
            PoolOpt::Int(n) => write!(out, " {name} {n}")?,
            PoolOpt::Float(x) => write!(out, " {name} {}", General(*x))?,
        }
    }
    Ok(())
}

fn write_shape(out: &mut String, pool: &PgPool) -> std::fmt::Result {
    let kind = match (pool.kind, pool.is_erasure()) {
        (POOL_REPLICATED, _) => "replicated",
        (_, true) => "erasure",
        _ => "???",
    };
    write!(out, " {kind}")?;
    if pool.is_erasure() {
        write!(out, " profile {}", pool.erasure_code_profile)?;
    }
    let hash = if pool.object_hash == HASH_RJENKINS { "rjenkins" } else { "unknown" };
    write!(out, " size {} min_size {} crush_rule {}", pool.size, pool.min_size, pool.crush_rule)?;
    write!(out, " object_hash {hash} pg_num {} pgp_num {}", pool.pg_num, pool.pgp_num)?;
    for (name, value, same) in [
        ("pg_num_target", pool.pg_num_target, pool.pg_num),
        ("pgp_num_target", pool.pgp_num_target, pool.pgp_num),
        ("pg_num_pending", pool.pg_num_pending, pool.pg_num),
    ] {
        if value != same {
            write!(out, " {name} {value}")?;
        }
    }
    match pool.pg_autoscale_mode {
        0 => write!(out, " autoscale_mode off"),
        1 => write!(out, " autoscale_mode warn"),
        2 => write!(out, " autoscale_mode on"),
        // Not set.
        u8::MAX => Ok(()),
        _ => write!(out, " autoscale_mode ???"),
    }
}

fn write_limits(out: &mut String, pool: &PgPool) -> std::fmt::Result {
    write!(out, " last_change {}", pool.last_change)?;
    let resend = [
        pool.last_force_op_resend,
        pool.last_force_op_resend_prenautilus,
        pool.last_force_op_resend_preluminous,
    ];
    if resend.iter().any(|epoch| *epoch != Epoch(0)) {
        let [now, prenautilus, preluminous] = resend;
        write!(out, " lfor {now}/{prenautilus}/{preluminous}")?;
    }
    if pool.auid != 0 {
        write!(out, " owner {}", pool.auid)?;
    }
    if pool.flags != 0 {
        write!(out, " flags {}", flag_names(pool.flags))?;
    }
    for (name, value) in [("max_bytes", pool.quota_max_bytes), ("max_objects", pool.quota_max_objects)] {
        if value != 0 {
            write!(out, " {name} {value}")?;
        }
    }
    Ok(())
}

/// Names of the flags in the order of the bits; "???" for each unknown one.
fn flag_names(flags: u64) -> String {
    let name =
        |bit: u64| POOL_FLAG_NAMES.iter().find(|(known, _)| *known == bit).map_or("???", |(_, name)| name);
    let set: Vec<&str> = (0..64).map(|n| 1 << n).filter(|bit| flags & bit != 0).map(name).collect();
    set.join(",")
}

fn write_tiering(out: &mut String, pool: &PgPool) -> std::fmt::Result {
    if !pool.tiers.is_empty() {
        let tiers: Vec<String> = pool.tiers.iter().map(u64::to_string).collect();
        write!(out, " tiers {}", tiers.join(","))?;
    }
    for (name, tier) in
        [("tier_of", pool.tier_of), ("read_tier", pool.read_tier), ("write_tier", pool.write_tier)]
    {
        if tier >= 0 {
            write!(out, " {name} {tier}")?;
        }
    }
    if pool.cache_mode != 0 {
        const MODES: [&str; 7] =
            ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];
        let mode = MODES.get(usize::from(pool.cache_mode)).copied().unwrap_or("unknown");
        write!(out, " cache_mode {mode}")?;
    }
    for (name, value) in [
        ("target_bytes", pool.target_max_bytes),
        ("target_objects", pool.target_max_objects),
        ("min_read_recency_for_promote", pool.min_read_recency_for_promote.into()),
        ("min_write_recency_for_promote", pool.min_write_recency_for_promote.into()),
    ] {
        if value != 0 {
            write!(out, " {name} {value}")?;
        }
    }
    Ok(())
}
