//! What the tools say of log page 02h, "SMART / Health Information". Facts: NVM Express Base Specification 2.0, figure 207;
//! smartctl(8) and nvme-smart-log(1) for the names that each prints.

use carmine_load::samples::SmartLog;
use serde_json::Value;

/// Kelvin is what the log page has, and what nvme-cli prints in its JSON.
const ZERO_CELSIUS_K: i64 = 273;
/// Bits, of which no difference can be made.
const CRITICAL_WARNING: &str = "critical_warning";

/// Our name of a field, smartctl's, nvme-cli's.
const FIELDS: [(&str, &str, &str); 10] = [
    (CRITICAL_WARNING, "critical_warning", "critical_warning"),
    ("temperature_c", "temperature", "temperature"),
    ("available_spare_percent", "available_spare", "avail_spare"),
    ("percentage_used", "percentage_used", "percent_used"),
    ("data_units_read", "data_units_read", "data_units_read"),
    ("data_units_written", "data_units_written", "data_units_written"),
    ("host_read_commands", "host_reads", "host_read_commands"),
    ("host_write_commands", "host_writes", "host_write_commands"),
    ("media_errors", "media_errors", "media_errors"),
    ("unsafe_shutdowns", "unsafe_shutdowns", "unsafe_shutdowns"),
];

/// Of `smartctl --json -A`; `None` if there is no NVMe log in it.
pub(super) fn of_smartctl(said: &Value) -> Option<SmartLog> {
    let log = said.get("nvme_smart_health_information_log")?;
    collect(FIELDS.map(|(ours, theirs, _)| (ours, number(log.get(theirs)))))
}

/// Of `nvme smart-log --output-format=json`; `None` if that is no such log.
pub(super) fn of_nvme_cli(said: &Value) -> Option<SmartLog> {
    let field = |(ours, _, theirs): (&'static str, _, &str)| {
        let value = number(said.get(theirs));
        (ours, if ours == "temperature_c" { value.map(|kelvin| kelvin - ZERO_CELSIUS_K) } else { value })
    };
    collect(FIELDS.map(field))
}

fn collect(fields: [(&'static str, Option<i64>); FIELDS.len()]) -> Option<SmartLog> {
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Some(known.collect::<SmartLog>()).filter(|log| !log.is_empty())
}

/// A counter of up to 128 bits: a number, or its digits as text (nvme-cli), or an object with its bits decoded beside the
/// value (nvme-cli with `--verbose` as its default).
fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(digits) => digits.parse().ok(),
        Value::Object(parts) => number(parts.get("value")),
        _ => None,
    }
}

/// What happened between two readings. Fields that only one of them has are left out, and so are bits.
pub(super) fn difference(start: &SmartLog, end: &SmartLog) -> SmartLog {
    let both = end.iter().filter(|(name, _)| *name != CRITICAL_WARNING);
    both.filter_map(|(name, now)| Some((name.clone(), now.saturating_sub(*start.get(name)?)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// smartctl 7 of a drive: names as it prints them, the figures invented.
    fn smartctl() -> Value {
        json!({
            "json_format_version": [1, 0],
            "smartctl": {"version": [7, 3], "exit_status": 0},
            "device": {"name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe"},
            "nvme_smart_health_information_log": {
                "critical_warning": 0, "temperature": 41, "available_spare": 98, "available_spare_threshold": 10,
                "percentage_used": 5, "data_units_read": 1_000_000, "data_units_written": 2_000_000,
                "host_reads": 30_000_000, "host_writes": 40_000_000, "controller_busy_time": 12, "power_cycles": 9,
                "power_on_hours": 4_321, "unsafe_shutdowns": 6, "media_errors": 1, "num_err_log_entries": 0,
                "temperature_sensors": [41, 55]
            },
            "temperature": {"current": 41}
        })
    }

    /// nvme-cli 2: other names, Kelvin, and counters of 128 bits as text or as numbers by its version.
    fn nvme_cli() -> Value {
        json!({
            "critical_warning": {"value": 0, "available_spare": 0}, "temperature": 314, "avail_spare": 98,
            "spare_thresh": 10, "percent_used": 5, "data_units_read": "1000000", "data_units_written": "2000000",
            "host_read_commands": 30_000_000, "host_write_commands": 40_000_000, "controller_busy_time": 12,
            "power_on_hours": 4_321, "unsafe_shutdowns": 6, "media_errors": 1, "temperature_sensor_1": 314
        })
    }

    #[test]
    fn both_tools_say_the_same_of_a_drive() {
        let log = of_smartctl(&smartctl()).unwrap();
        assert_eq!(Some(&log), of_nvme_cli(&nvme_cli()).as_ref());
        assert_eq!(log.len(), FIELDS.len());
        assert_eq!(
            (log["temperature_c"], log["host_read_commands"], log["percentage_used"]),
            (41, 30_000_000, 5)
        );
    }

    #[test]
    fn what_is_missing_or_no_number_is_absent() {
        let mut said = smartctl();
        let log = said["nvme_smart_health_information_log"].as_object_mut().unwrap();
        log.remove("media_errors");
        log.insert("host_reads".into(), json!("many"));
        log.insert("data_units_read".into(), json!(1e300));
        log.insert("percentage_used".into(), json!(null));
        let log = of_smartctl(&said).unwrap();
        assert_eq!(log.len(), FIELDS.len() - 4);
        assert!(!log.contains_key("media_errors") && !log.contains_key("data_units_read"));
        for bad in [json!({}), json!([]), json!("x"), json!({"nvme_smart_health_information_log": [1]})] {
            assert_eq!((of_smartctl(&bad), of_nvme_cli(&bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn differences_of_counters() {
        let start = of_smartctl(&smartctl()).unwrap();
        let mut end = start.clone();
        end.insert("data_units_written".into(), 2_000_123);
        end.insert("temperature_c".into(), 38);
        end.insert(CRITICAL_WARNING.into(), 4);
        end.remove("unsafe_shutdowns");
        let difference = difference(&start, &end);
        assert_eq!((difference["data_units_written"], difference["temperature_c"]), (123, -3));
        assert!(!difference.contains_key(CRITICAL_WARNING) && !difference.contains_key("unsafe_shutdowns"));
        assert_eq!(difference["media_errors"], 0);
    }
}
