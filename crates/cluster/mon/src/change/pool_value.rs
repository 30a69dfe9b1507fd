//! Values of pools by name, as `osd pool set` takes them: flags, and the options that a map carries for whom they concern
//! (Ceph's manual, "Set Pool Values").

use carmine_types::errno;
use carmine_wire::osdmap::consts::POOL_FLAG_NAMES;
use carmine_wire::osdmap::{PgPool, PoolOpt};

use super::{Refusal, refuse};

/// The kind of value that a name stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Var {
    /// Given when the pool is created, or changed in a way of its own.
    Field,
    /// The flag of that name.
    Flag,
    /// The option with this number.
    Option(i32, Kind),
    /// Cache tiers have it.
    OfTiers,
    /// Erasure-coded pools have it.
    OfErasure,
}

/// The type of an option's value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Int,
    /// From -10 to 10.
    Priority,
    /// With a prefix such as `M`, which is a power of 1,024.
    Bytes,
    Float,
    /// 0 or more.
    Positive,
    /// From 0 to 1.
    Ratio,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of [`CSUM_TYPES`], stored as a number.
    Csum,
    /// The name of another pool, which there is no use for.
    Pool,
}

use Var::{Field, Flag, OfErasure, OfTiers, Option as Opt};

const MODES: &[&str] = &["none", "passive", "aggressive", "force"];
const ALGORITHMS: &[&str] = &["none", "snappy", "zlib", "zstd", "lz4"];
const DIGESTS: &[&str] = &["sha1", "sha256", "sha512"];
const CHUNKERS: &[&str] = &["fastcdc", "fixed"];
/// By number.
pub(crate) const AUTOSCALE_MODES: [&str; 3] = ["off", "warn", "on"];
/// From number 1 on.
pub(crate) const CSUM_TYPES: [&str; 6] = ["none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

/// All of them, in the order in which Ceph shows them.
pub(crate) const VARS: &[(&str, Var)] = &[
    ("size", Field),
    ("min_size", Field),
    ("pg_num", Field),
    ("pgp_num", Field),
    ("crush_rule", Field),
    ("hashpspool", Flag),
    ("nodelete", Flag),
    ("nopgchange", Flag),
    ("nosizechange", Flag),
    ("write_fadvise_dontneed", Flag),
    ("noscrub", Flag),
    ("nodeep-scrub", Flag),
    ("hit_set_type", OfTiers),
    ("hit_set_period", OfTiers),
    ("hit_set_count", OfTiers),
    ("hit_set_fpp", OfTiers),
    ("use_gmt_hitset", OfTiers),
    ("target_max_objects", OfTiers),
    ("target_max_bytes", OfTiers),
    ("cache_target_dirty_ratio", OfTiers),
    ("cache_target_dirty_high_ratio", OfTiers),
    ("cache_target_full_ratio", OfTiers),
    ("cache_min_flush_age", OfTiers),
    ("cache_min_evict_age", OfTiers),
    ("erasure_code_profile", OfErasure),
    ("min_read_recency_for_promote", OfTiers),
    ("min_write_recency_for_promote", OfTiers),
    ("fast_read", OfErasure),
    ("hit_set_grade_decay_rate", OfTiers),
    ("hit_set_search_last_n", OfTiers),
    ("scrub_min_interval", Opt(0, Kind::Float)),
    ("scrub_max_interval", Opt(1, Kind::Float)),
    ("deep_scrub_interval", Opt(2, Kind::Float)),
    ("recovery_priority", Opt(3, Kind::Priority)),
    ("recovery_op_priority", Opt(4, Kind::Int)),
    ("scrub_priority", Opt(5, Kind::Int)),
    ("compression_mode", Opt(6, Kind::Word(MODES))),
    ("compression_algorithm", Opt(7, Kind::Word(ALGORITHMS))),
    ("compression_required_ratio", Opt(8, Kind::Ratio)),
    ("compression_max_blob_size", Opt(9, Kind::Bytes)),
    ("compression_min_blob_size", Opt(10, Kind::Bytes)),
    ("csum_type", Opt(11, Kind::Csum)),
    ("csum_max_block", Opt(12, Kind::Bytes)),
    ("csum_min_block", Opt(13, Kind::Bytes)),
    ("allow_ec_overwrites", OfErasure),
    ("fingerprint_algorithm", Opt(14, Kind::Word(DIGESTS))),
    ("pg_autoscale_mode", Field),
    ("pg_num_min", Opt(15, Kind::Int)),
    ("target_size_bytes", Opt(16, Kind::Bytes)),
    ("target_size_ratio", Opt(17, Kind::Positive)),
    ("pg_autoscale_bias", Opt(18, Kind::Float)),
    ("dedup_tier", Opt(20, Kind::Pool)),
    ("dedup_chunk_algorithm", Opt(21, Kind::Word(CHUNKERS))),
    ("dedup_cdc_chunk_size", Opt(22, Kind::Bytes)),
    ("pg_num_max", Opt(23, Kind::Int)),
    ("bulk", Flag),
];

/// The kind of value that this name stands for.
///
/// # Errors
/// EINVAL: there is no value of this name.
pub(crate) fn var_of(name: &str) -> Result<Var, Refusal> {
    let found = VARS.iter().find(|(known, _)| *known == name);
    found.map(|(_, var)| *var).ok_or_else(|| refuse(errno::EINVAL, format!("unrecognized variable '{name}'")))
}

/// The value of an option, if the pool has it.
pub(crate) fn option<'a>(pool: &'a PgPool, name: &str) -> Option<&'a PoolOpt> {
    match var_of(name) {
        Ok(Var::Option(number, _)) => pool.opts.get(&number),
        _ => None,
    }
}

/// The value of an option that is a whole number, if the pool has it.
pub(super) fn int_option(pool: &PgPool, name: &str) -> Option<i64> {
    match option(pool, name) {
        Some(PoolOpt::Int(value)) => Some(*value),
        _ => None,
    }
}

/// The bit of a flag.
pub(crate) fn flag(name: &str) -> u64 {
    POOL_FLAG_NAMES.iter().find(|(_, known)| *known == name).map_or(0, |(bit, _)| *bit)
}

/// A number of bytes such as `10M`, by powers of 1,024.
///
/// # Errors
/// EINVAL.
pub(crate) fn bytes_of(text: &str) -> Result<u64, Refusal> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let unit = unit.strip_suffix("iB").or(unit.strip_suffix('i')).unwrap_or(unit);
    let shift = ["", "K", "M", "G", "T", "P", "E"].iter().position(|known| *known == unit || unit == "B");
    let value = shift.zip(digits.parse::<u64>().ok());
    let value = value.and_then(|(shift, number)| number.checked_mul(1 << (10 * shift)));
    value.ok_or_else(|| refuse(errno::EINVAL, format!("error parsing value '{text}': no number of bytes")))
}

/// The pool with this value; a number of 0 and the word `unset` take an option away.
///
/// # Errors
/// EINVAL: a wrong value; EACCES: it is not for pools of this kind; EOPNOTSUPP: it cannot be changed.
pub(super) fn with_value(pool: &PgPool, name: &str, value: &str) -> Result<PgPool, Refusal> {
    let mut pool = pool.clone();
    match var_of(name)? {
        Var::Flag => match value {
            "true" | "1" => pool.flags |= flag(name),
            "false" | "0" => pool.flags &= !flag(name),
            _ => return Err(refuse(errno::EINVAL, "expecting value 'true', 'false', '0', or '1'")),
        },
        Var::Option(number, kind) => match option_of(name, kind, value)? {
            PoolOpt::Int(least) if name == "pg_num_min" && least > i64::from(pool.pg_num_target) => {
                let text = format!("specified pg_num_min {least} > pg_num {}", pool.pg_num_target);
                return Err(refuse(errno::EINVAL, text));
            }
            PoolOpt::Int(most)
                if name == "pg_num_max" && most != 0 && most < i64::from(pool.pg_num_target) =>
            {
                let text = format!("specified pg_num_max {most} < pg_num {}", pool.pg_num_target);
                return Err(refuse(errno::EINVAL, text));
            }
            PoolOpt::Int(0) | PoolOpt::Float(0.0) => drop(pool.opts.remove(&number)),
            PoolOpt::Text(text) if text == "unset" => drop(pool.opts.remove(&number)),
            value => drop(pool.opts.insert(number, value)),
        },
        Var::OfTiers => return Err(refuse(errno::EACCES, "(13) Permission denied")),
        Var::OfErasure => {
            return Err(refuse(errno::EINVAL, format!("{name} is not supported in a replicated pool")));
        }
        Var::Field if name == "pg_autoscale_mode" => {
            let mode = AUTOSCALE_MODES.iter().position(|word| *word == value);
            let wrong = || refuse(errno::EINVAL, format!("specified invalid mode {value}"));
            pool.pg_autoscale_mode = mode.ok_or_else(wrong)? as u8;
        }
        Var::Field => {
            let text = format!("'{name}' of a pool is given when it is created and stays");
            return Err(refuse(errno::EOPNOTSUPP, text));
        }
    }
    Ok(pool)
}

fn option_of(name: &str, kind: Kind, value: &str) -> Result<PoolOpt, Refusal> {
    let wrong = |text: String| refuse(errno::EINVAL, text);
    let int =
        || value.parse::<i64>().map_err(|e| wrong(format!("error parsing integer value '{value}': {e}")));
    let float = || {
        let parsed = value.parse::<f64>().ok().filter(|number| number.is_finite());
        parsed.ok_or_else(|| wrong(format!("error parsing floating point value '{value}'")))
    };
    match kind {
        Kind::Int => int().map(PoolOpt::Int),
        Kind::Bytes => bytes_of(value).map(|bytes| PoolOpt::Int(i64::try_from(bytes).unwrap_or(i64::MAX))),
        Kind::Priority => match int()? {
            priority @ -10..=10 => Ok(PoolOpt::Int(priority)),
            _ => Err(wrong(format!("pool {name} must be between -10 and 10"))),
        },
        Kind::Float => float().map(PoolOpt::Float),
        Kind::Positive => match float()? {
            number if number >= 0.0 => Ok(PoolOpt::Float(number)),
            _ => Err(wrong(format!("{name} cannot be negative"))),
        },
        Kind::Ratio => match float()? {
            ratio if (0.0..=1.0).contains(&ratio) => Ok(PoolOpt::Float(ratio)),
            _ => Err(wrong(format!("{name} is out of range (0-1): '{value}'"))),
        },
        Kind::Word(words) if words.contains(&value) || value == "unset" => {
            Ok(PoolOpt::Text(value.to_owned()))
        }
        Kind::Word(_) => Err(wrong(format!("unrecognized {} '{value}'", name.replace("_mode", " mode")))),
        Kind::Csum => match CSUM_TYPES.iter().position(|word| *word == value) {
            Some(at) => Ok(PoolOpt::Int(at as i64 + 1)),
            None if value == "unset" => Ok(PoolOpt::Int(0)),
            None => Err(wrong(format!("unrecognized {name} '{value}'"))),
        },
        Kind::Pool => Err(refuse(errno::EOPNOTSUPP, "there is no deduplication")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    #[test]
    fn values_are_stored_as_ceph_stores_them() {
        let map = cluster(1);
        let mut pool = map.pool(1).unwrap().clone();
        let mut set = |name: &str, value: &str| {
            let set = with_value(&pool, name, value);
            set.map(|changed| pool = changed.clone()).map_err(|refusal| refusal.code.0).map(|()| pool.clone())
        };
        assert_eq!(set("noscrub", "1").unwrap().flags & 0x100, 0x100);
        assert_eq!(set("noscrub", "false").unwrap().flags & 0x100, 0);
        assert_eq!(set("csum_type", "crc32c").unwrap().opts[&11], PoolOpt::Int(4));
        assert_eq!(set("target_size_bytes", "10M").unwrap().opts[&16], PoolOpt::Int(10 << 20));
        assert_eq!(set("compression_required_ratio", "0.5").unwrap().opts[&8], PoolOpt::Float(0.5));
        assert_eq!(set("scrub_min_interval", "3.5").unwrap().opts[&0], PoolOpt::Float(3.5));
        assert!(!set("scrub_min_interval", "0").unwrap().opts.contains_key(&0));
        for (name, value, error) in [
            ("noscrub", "maybe", errno::EINVAL),
            ("recovery_priority", "11", errno::EINVAL),
            ("compression_required_ratio", "2", errno::EINVAL),
            ("compression_mode", "foo", errno::EINVAL),
            ("csum_type", "foo", errno::EINVAL),
            ("scrub_min_interval", "x", errno::EINVAL),
            ("target_size_bytes", "999999999999P", errno::EINVAL),
            ("hit_set_type", "bloom", errno::EACCES),
            ("fast_read", "1", errno::EINVAL),
            ("pg_num", "64", errno::EOPNOTSUPP),
            ("colour", "red", errno::EINVAL),
        ] {
            assert_eq!(set(name, value).unwrap_err(), error, "{name} {value}");
        }
    }

    #[test]
    fn every_flag_is_in_the_map_s_list() {
        assert!(VARS.iter().all(|(name, var)| *var != Flag || flag(name) != 0));
    }
}
