//! Clock rate, temperatures and power, where the machine tells them; virtual machines mostly do not.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write, read_to_string};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use carmine_load::window::{CounterWindow, NvmeSamples, SmartLog};
use carmine_testbed::drive::part_at;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::text;
use crate::child::{Owned, read_within};

/// The counter of energy among the sensors, of which only the growth means something.
pub(super) const JOULES: &str = "joules";
/// The clock rate of the OSDs' CPUs.
const MHZ: &str = "mhz";
/// Drivers of processors' temperatures.
const PROCESSORS: [&str; 4] = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];

/// Files whose numbers make one value: its name, the unit of the numbers, and how the value is made of them.
type Sensor = (String, Vec<PathBuf>, f64, fn(&[f64]) -> f64);

/// This machine's sensors; found once.
#[derive(Debug)]
pub(super) struct Hardware {
    sensors: Vec<Sensor>,
    cpuinfo: PathBuf,
    cpus: Vec<usize>,
}

fn entries(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

impl Hardware {
    /// `cpus`: those of the OSDs, whose clock rate matters.
    pub(super) fn find(proc: &Path, sys: &Path, cpus: &[usize]) -> Hardware {
        let class = |name: &str, is: fn(&str) -> bool, file: &str| -> Vec<PathBuf> {
            let folders = entries(sys.join("class").join(name)).into_iter();
            folders.filter(|dir| is(text(&dir.join("name")).trim())).map(|dir| dir.join(file)).collect()
        };
        let clock = |cpu: &usize| sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"));
        let temperatures = class("hwmon", |name| PROCESSORS.contains(&name), "temp1_input");
        let energy = class("powercap", |name| name.starts_with("package"), "energy_uj");
        let mut sensors: Vec<Sensor> = vec![
            (MHZ.to_owned(), cpus.iter().map(clock).collect(), 1e3, mean),
            ("temperature_c".to_owned(), temperatures, 1e3, largest),
            (JOULES.to_owned(), energy, 1e6, |joules| joules.iter().sum()),
        ];
        for folder in entries(sys.join("class/nvme")) {
            // hwmonN of the controller: the composite temperature of its SMART log.
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let below = entries(folder.clone()).into_iter().chain(entries(folder.join("hwmon")));
            let input = below.map(|path| path.join("temp1_input")).find(|path| path.exists());
            sensors.push((format!("nvme_{name}_temperature_c"), input.into_iter().collect(), 1e3, largest));
        }
        Hardware { sensors, cpuinfo: proc.join("cpuinfo"), cpus: cpus.to_vec() }
    }

    /// The sensors' values now: `mhz` (mean of the OSDs' CPUs), `temperature_c` (hottest processor), `nvme_NAME_temperature_c`,
    /// and [`JOULES`] of all packages since some moment. What cannot be read is left out.
    pub(super) fn read(&self) -> BTreeMap<String, f64> {
        let number = |path: &PathBuf| text(path).trim().parse::<f64>().ok();
        let value = |(name, files, unit, of): &Sensor| {
            let numbers: Vec<f64> = files.iter().filter_map(number).map(|n| n / unit).collect();
            (!numbers.is_empty()).then(|| (name.clone(), of(&numbers)))
        };
        let mut values: BTreeMap<String, f64> = self.sensors.iter().filter_map(value).collect();
        let told: Vec<f64> = if values.contains_key(MHZ) { Vec::new() } else { self.cpuinfo_mhz() };
        if !told.is_empty() {
            values.insert(MHZ.to_owned(), mean(&told));
        }
        values
    }

    /// Clock rates where the machine has no files of them.
    fn cpuinfo_mhz(&self) -> Vec<f64> {
        let text = text(&self.cpuinfo);
        let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
        let all: Vec<f64> = lines.filter_map(|line| line.rsplit(':').next()?.trim().parse().ok()).collect();
        self.cpus.iter().filter_map(|cpu| all.get(*cpu).copied()).collect()
    }
}

// The SMART log of the NVMe drives under the OSDs, read at both ends of a window by the tools that are kept for it: `smartctl`
// (smartmontools) or else `nvme` (nvme-cli). They need root. Where there is no such drive nothing is said.
//
// The log is page 02h, "SMART / Health Information". Facts: NVM Express Base Specification 2.0, figure 207; smartctl(8) and
// nvme-smart-log(1) for the names that each prints.

/// Time for all drives together: each answers within some milliseconds, or not at all.
const LIMIT: Duration = Duration::from_secs(3);
/// No tool says more than this of one drive.
const OUTPUT_MAX: u64 = 64 << 10;
/// Bits, of which no difference can be made.
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
pub(super) fn logs_of(drives: &[String]) -> Logs {
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
        // Not by its exit code: bits of smartctl's speak of a drive that fails, whose log is worth the more.
        let said: Option<Value> = said.ok().and_then(|text| serde_json::from_str(&text).ok());
        self.decode(&said.ok_or("what it says is no JSON")?)
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

// Cycles and instructions of the OSDs by `perf stat`, where the processor's counters can be had: most virtual machines
// have none, and then there are no figures. Facts: perf-stat(1), "CSV FORMAT" and `--control`.

/// Time for `perf` to do as it is told; it does so at once, or never.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The events that are counted.
const EVENTS: &str = "cycles,instructions";

/// The processor's counters over a window, or nothing where there are none: a `perf stat`, and a message for each word that it has
/// obeyed.
#[derive(Debug)]
pub struct Counters(Option<(Owned, Receiver<()>)>);

impl Counters {
    /// Attaches to all threads of these processes, and counts nothing yet. Nothing is attached unless it is `wanted`: what counts
    /// costs a little at each switch of threads, too.
    pub fn attach(pids: &[u32], wanted: bool) -> Counters {
        let mut counters = Counters(wanted.then(|| start(pids)).flatten());
        counters.stop();
        counters
    }

    /// The window begins.
    pub fn start(&mut self) {
        self.tell("enable");
    }

    /// The window ends here.
    pub fn stop(&mut self) {
        self.tell("disable");
    }

    /// The counts; `None` if nothing was counted.
    pub fn read(self) -> Option<CounterWindow> {
        let (mut perf, _) = self.0?;
        kill_process(Pid::from_child(&perf.0), Signal::INT).ok()?;
        let mut text = String::new();
        perf.0.stderr.take()?.read_to_string(&mut text).ok()?;
        parse(&text)
    }

    /// Counters that do not follow a command are dropped: their figures would be of another window.
    fn tell(&mut self, word: &str) {
        self.0.take_if(|(perf, obeyed)| {
            let stdin = perf.0.stdin.as_mut();
            let told = stdin.is_some_and(|stdin| writeln!(stdin, "{word}").is_ok());
            !told || obeyed.recv_timeout(ANSWER_LIMIT).is_err()
        });
    }
}

/// Starts `perf stat`; `None` if there is none.
fn start(pids: &[u32]) -> Option<(Owned, Receiver<()>)> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args(["stat", "--field-separator", ",", "--event", EVENTS, "--pid", &pids.join(",")]);
    // Words come in by 0, their acknowledgements go out by 1; figures go to 2 when it ends.
    command.args(["--delay", "-1", "--control", "fd:0,1"]).env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut perf = Owned(command.spawn().ok()?);
    // Each is "ack\n", with a zero byte behind it.
    let acks = BufReader::new(perf.0.stdout.take()?).split(b'\n').map_while(Result::ok);
    let (obey, obeyed) = channel();
    std::thread::spawn(move || acks.map_while(|_| obey.send(()).ok()).for_each(drop));
    Some((perf, obeyed))
}

/// Lines `VALUE,UNIT,EVENT,…`. A processor with two kinds of cores has a line for each kind; `:u` is user mode only.
fn parse(text: &str) -> Option<CounterWindow> {
    let mut window = CounterWindow::default();
    for line in text.lines() {
        let mut fields = line.split(',');
        let (value, event) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        // `cycles`, `cycles:u`, `cpu_core/cycles/`, `cpu_core/cycles/u`
        let mut parts = event.split([':', '/']).filter(|part| !part.is_empty());
        let name = parts.by_ref().find(|part| !part.starts_with("cpu_"));
        let modifier = parts.next().unwrap_or_default();
        let sum = match name {
            Some("cycles" | "cpu-cycles") => &mut window.cycles,
            Some("instructions") => &mut window.instructions,
            _ => continue,
        };
        // `<not supported>` and `<not counted>` are no numbers, and no zeros.
        let Ok(value) = value.parse::<u64>() else { continue };
        *sum = Some(sum.unwrap_or(0) + value);
        window.user_only |= modifier.contains('u') && !modifier.contains('k');
    }
    (window.cycles.is_some() || window.instructions.is_some()).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_leaves_out_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        assert!(Hardware::find(&proc, &sys, &[0, 1]).read().is_empty());
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/cpuinfo", "cpu MHz\t\t: 2000.5\nflags : x\ncpu MHz\t\t: 3000.5\n");
        put("sys/class/hwmon/hwmon0/name", "coretemp\n");
        put("sys/class/hwmon/hwmon0/temp1_input", "51000\n");
        put("sys/class/nvme/nvme0/hwmon1/temp1_input", "38850\n");
        put("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        put("sys/class/powercap/intel-rapl:0/energy_uj", "2500000\n");
        let found = Hardware::find(&proc, &sys, &[1]);
        let values = found.read();
        assert_eq!(values["mhz"], 3000.5);
        assert_eq!((values["temperature_c"], values["nvme_nvme0_temperature_c"]), (51.0, 38.85));
        assert_eq!(values[JOULES], 2.5);
        put("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000\n");
        assert_eq!(Hardware::find(&proc, &sys, &[1]).read()["mhz"], 3600.0);
    }
}

#[cfg(test)]
mod smart_tests {
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
            ("silent", "exit 1", "no JSON"),
            ("broken", "echo '{\"nvme_smart_health'", "no JSON"),
            // smartctl 7.3 of a virtual disk.
            (
                "other",
                r#"echo '{"smartctl":{"exit_status":1,"messages":[{"string":"unknown type"}]}}'"#,
                "no NVMe",
            ),
            ("empty", r#"echo '{"nvme_smart_health_information_log":{}}'"#, "no NVMe"),
            ("endless", "exec yes", "no JSON"),
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

#[cfg(test)]
mod counters_tests {
    use super::*;

    /// The output of perf 6.1 on a virtual machine without counters.
    #[test]
    fn absent_is_not_zero() {
        let said = "Events disabled\nEvents enabled\n<not supported>,,cycles,0,100.00,,\n\
                    <not supported>,,instructions,0,100.00,,\n";
        assert_eq!(parse(said), None);
        assert_eq!(parse("<not counted>,,cycles,0,0.00,,\n"), None);
        assert_eq!(parse("Error:\nNo permission to enable cycles event.\n"), None);
    }

    #[test]
    fn both_are_read() {
        let said = "Events enabled\n3456789012,,cycles,1000123,100.00,,\n\
                    6912345678,,instructions,1000123,100.00,2.00,insn per cycle\n";
        let want = CounterWindow {
            cycles: Some(3_456_789_012),
            instructions: Some(6_912_345_678),
            user_only: false,
        };
        assert_eq!(parse(said), Some(want));
        let user = parse("77,,cycles:u,5,100.00,,\n<not supported>,,instructions:u,0,100.00,,\n").unwrap();
        assert_eq!((user.cycles, user.instructions, user.user_only), (Some(77), None, true));
    }

    #[test]
    fn two_kinds_of_cores_are_added_up() {
        let said = "10,,cpu_core/cycles/,5,50.00,,\n<not counted>,,cpu_atom/cycles/,0,0.00,,\n\
                    20,,cpu_core/instructions/,5,50.00,,\n30,,cpu_atom/instructions/u,5,50.00,,\n";
        let found = parse(said).unwrap();
        assert_eq!((found.cycles, found.instructions, found.user_only), (Some(10), Some(50), true));
    }

    /// With the real `perf`, of this process: figures that can be, or none.
    #[test]
    fn counts_ourselves_or_nothing() {
        let mut counters = Counters::attach(&[std::process::id()], true);
        if counters.0.is_none() {
            return carmine_testkit::skip(
                "perf cannot count: apt-get install linux-perf, and allow it (kernel.perf_event_paranoid)",
            );
        }
        counters.start();
        let end = std::time::Instant::now() + Duration::from_millis(60);
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        counters.stop();
        assert!(counters.0.is_some(), "perf obeys");
        match counters.read() {
            Some(window) => assert!(window.cycles.is_none_or(|n| n > 1_000_000), "{window:?}"),
            None => eprintln!("this machine has no hardware counters"),
        }
    }
}
