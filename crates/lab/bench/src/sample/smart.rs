//! The SMART log of the NVMe drives under the OSDs, read at both ends of a window by the tools made for it: `smartctl`
//! (smartmontools) or else `nvme` (nvme-cli). They need root. Nothing is reported where there is no such drive.
//!
//! The log is page 02h, "SMART / Health Information". Facts: NVM Express Base Specification 2.0, figure 207; smartctl(8) and
//! nvme-smart-log(1) for the names that each prints.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, read_to_string};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use carmine_load::samples::{NvmeSamples, SmartLog};
use carmine_testbed::part_at;
use serde_json::Value;

use crate::child::read_within;

/// Time for all drives together: each answers within some milliseconds, or not at all.
const LIMIT: Duration = Duration::from_secs(3);
/// No tool prints more than this about one drive.
const OUTPUT_MAX: u64 = 64 << 10;
/// Bits, which have no difference.
const CRITICAL_WARNING: &str = "critical_warning";
const TEMPERATURE: &str = "temperature_c";

/// Our name of a field, smartctl's, nvme-cli's.
const FIELDS: [(&str, [&str; 2]); 10] = [
    (CRITICAL_WARNING, ["critical_warning", "critical_warning"]),
    (TEMPERATURE, ["temperature", "temperature"]),
    ("available_spare_percent", ["available_spare", "avail_spare"]),
    ("percentage_used", ["percentage_used", "percent_used"]),
    ("data_units_read", ["data_units_read", "data_units_read"]),
    ("data_units_written", ["data_units_written", "data_units_written"]),
    ("host_read_commands", ["host_reads", "host_read_commands"]),
    ("host_write_commands", ["host_writes", "host_write_commands"]),
    ("media_errors", ["media_errors", "media_errors"]),
    ("unsafe_shutdowns", ["unsafe_shutdowns", "unsafe_shutdowns"]),
];

/// A program that prints a drive's log as JSON.
#[derive(Clone, Debug)]
struct Tool {
    program: &'static str,
    /// Before the device.
    args: &'static [&'static str],
    /// Where the log is in the JSON.
    log: &'static str,
    /// The place of its names in [`FIELDS`].
    names: usize,
    /// The temperature that it prints for 0 degrees Celsius.
    zero_celsius: i64,
}

const TOOLS: [Tool; 2] = [
    Tool {
        program: "smartctl",
        args: &["--json", "-A"],
        log: "/nvme_smart_health_information_log",
        names: 0,
        zero_celsius: 0,
    },
    // It prints kelvin, as the log page has them.
    Tool {
        program: "nvme",
        args: &["smart-log", "--output-format=json"],
        log: "",
        names: 1,
        zero_celsius: 273,
    },
];

/// The logs at one moment, by drive, or why there is none.
pub(super) type Logs = Vec<Result<SmartLog, String>>;

/// Names of the NVMe drives under some block devices; `devices` are names as in `/proc/diskstats`: of drives, partitions, or what is
/// stacked upon them.
pub(super) fn drives_of(devices: &[String]) -> Vec<String> {
    let parts = devices.iter().map(|device| part_at(&Path::new("/dev").join(device)));
    let drives = parts.filter(|part| part.is_device).flat_map(|part| part.drive.drives);
    let drives: BTreeSet<String> = drives.filter(|name| name.starts_with("nvme")).collect();
    drives.into_iter().collect()
}

/// Reads the logs of all of them.
pub(super) fn read(drives: &[String]) -> Logs {
    let end = Instant::now() + LIMIT;
    drives.iter().map(|drive| read_drive(&TOOLS, &Path::new("/dev").join(drive), end)).collect()
}

/// Two readings as they are archived.
pub(super) fn samples(drives: Vec<String>, start: Logs, end: Logs) -> Vec<NvmeSamples> {
    let both = drives.into_iter().zip(start.into_iter().zip(end));
    both.map(|(drive, (start, end))| match (start, end) {
        (Ok(start), Ok(end)) => {
            let difference = difference(&start, &end);
            NvmeSamples { drive, start, end, difference, missing: None }
        }
        (Err(why), _) | (_, Err(why)) => NvmeSamples { drive, missing: Some(why), ..NvmeSamples::default() },
    })
    .collect()
}

fn read_drive(tools: &[Tool], device: &Path, end: Instant) -> Result<SmartLog, String> {
    let mut why = Vec::new();
    for tool in tools {
        match tool.run(device, end) {
            Ok(log) => return Ok(log),
            Err(error) => why.push(format!("{}: {error}", tool.program)),
        }
    }
    let (device, why) = (device.display(), why.join("; "));
    let remedy = "install smartmontools or nvme-cli, and run as root";
    Err(format!("the SMART log of {device} could not be read ({why}): {remedy}"))
}

impl Tool {
    fn run(&self, device: &Path, end: Instant) -> Result<SmartLog, String> {
        let left = end.saturating_duration_since(Instant::now());
        let read = |out: std::process::ChildStdout| read_to_string(out.take(OUTPUT_MAX));
        let said = read_within(Command::new(self.program).args(self.args).arg(device), left, read);
        let said = said.map_err(|e| match e.kind() {
            ErrorKind::NotFound => "is not installed".to_owned(),
            _ => e.to_string(),
        })?;
        let said = said.ok_or_else(|| format!("did not end within {} s", LIMIT.as_secs()))?;
        // The exit code does not count: smartctl sets bits in it for a failing drive, whose log matters most.
        let said: Option<Value> = said.ok().and_then(|text| serde_json::from_str(&text).ok());
        self.decode(&said.ok_or("its output is not JSON")?)
            .ok_or_else(|| "it shows no NVMe health log".into())
    }

    /// The known fields of its JSON; `None` if there is no NVMe log in it.
    fn decode(&self, said: &Value) -> Option<SmartLog> {
        let log = said.pointer(self.log)?;
        let known = FIELDS.iter().filter_map(|(ours, theirs)| {
            let zero = if *ours == TEMPERATURE { self.zero_celsius } else { 0 };
            Some(((*ours).to_owned(), number(log.get(theirs[self.names]))? - zero))
        });
        Some(known.collect::<SmartLog>()).filter(|log| !log.is_empty())
    }
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

/// The growth of the counters between two readings. Fields that only one of them has are left out, and so are bits.
fn difference(start: &SmartLog, end: &SmartLog) -> SmartLog {
    let both = end.iter().filter(|(name, _)| *name != CRITICAL_WARNING);
    both.filter_map(|(name, now)| Some((name.clone(), now.saturating_sub(*start.get(name)?)))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    /// A program that prints this for a device named `nvme0n1`, and ends as smartctl does when the drive reports trouble.
    fn script(folder: &Path, name: &str, body: &str) -> Tool {
        let program = folder.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Tool { program: program.to_str().unwrap().to_owned().leak(), ..TOOLS[0].clone() }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn the_first_tool_that_can_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let json = r#"{"nvme_smart_health_information_log":{"media_errors":3,"percentage_used":7}}"#;
        let body = format!("[ \"$1 $2 $3\" = '--json -A /dev/nvme0n1' ] && echo '{json}'; exit 8");
        let good = script(dir.path(), "good", &body);
        let absent = Tool { program: "/nowhere/absent", ..TOOLS[1].clone() };
        let read = |tools: &[Tool]| read_drive(tools, Path::new("/dev/nvme0n1"), soon());
        let want = SmartLog::from([("media_errors".to_owned(), 3), ("percentage_used".to_owned(), 7)]);
        assert_eq!(read(&[absent.clone(), good]), Ok(want));
        let why = read(&[absent]).unwrap_err();
        assert!(
            why.contains("/dev/nvme0n1") && why.contains("is not installed") && why.contains("as root"),
            "{why}"
        );
    }

    #[test]
    fn bad_output_is_an_error_and_no_zero() {
        let dir = tempfile::tempdir().unwrap();
        for (name, body, part) in [
            ("silent", "exit 1", "not JSON"),
            ("broken", "echo '{\"nvme_smart_health'", "not JSON"),
            // smartctl 7.3 of a virtual disk.
            (
                "other",
                r#"echo '{"smartctl":{"exit_status":1,"messages":[{"string":"unknown type"}]}}'"#,
                "no NVMe",
            ),
            ("empty", r#"echo '{"nvme_smart_health_information_log":{}}'"#, "no NVMe"),
            ("endless", "exec yes", "not JSON"),
            ("hanging", "exec sleep 60", "did not end"),
        ] {
            let tool = script(dir.path(), name, body);
            let end = Instant::now() + Duration::from_millis(if name == "hanging" { 300 } else { 20_000 });
            let why = tool.run(Path::new("/dev/nvme0n1"), end).unwrap_err();
            assert!(why.contains(part), "{name}: {why}");
        }
    }

    #[test]
    fn a_drive_that_was_read_once_only_has_no_figures() {
        let drives = vec!["nvme0n1".into(), "nvme1n1".into()];
        let log = |n| SmartLog::from([("host_write_commands".to_owned(), n)]);
        let samples = samples(drives, vec![Ok(log(5)), Ok(log(1))], vec![Ok(log(9)), Err("gone".to_owned())]);
        assert_eq!((samples[0].difference["host_write_commands"], &samples[0].missing), (4, &None));
        assert!(samples[1].start.is_empty() && samples[1].missing.as_deref() == Some("gone"));
    }

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
        let log = TOOLS[0].decode(&smartctl()).unwrap();
        assert_eq!(Some(&log), TOOLS[1].decode(&nvme_cli()).as_ref());
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
        let log = TOOLS[0].decode(&said).unwrap();
        assert_eq!(log.len(), FIELDS.len() - 4);
        assert!(!log.contains_key("media_errors") && !log.contains_key("data_units_read"));
        for bad in [json!({}), json!([]), json!("x"), json!({"nvme_smart_health_information_log": [1]})] {
            assert_eq!((TOOLS[0].decode(&bad), TOOLS[1].decode(&bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn differences_of_counters() {
        let start = TOOLS[0].decode(&smartctl()).unwrap();
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
