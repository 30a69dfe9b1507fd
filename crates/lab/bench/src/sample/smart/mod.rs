//! The SMART log of the NVMe drives under the OSDs, read at both ends of a window by the tools that are kept for it: `smartctl`
//! (smartmontools) or else `nvme` (nvme-cli). They need root. Where there is no such drive nothing is said.

mod log;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carmine_load::samples::{NvmeSamples, SmartLog};
use carmine_testbed::drive::part_at;
use serde_json::Value;

/// Time for all drives together: each answers within some milliseconds, or not at all.
const LIMIT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(2);
/// No tool says more than this of one drive.
const OUTPUT_MAX: u64 = 64 << 10;

/// A program that prints a drive's log as JSON.
#[derive(Clone, Debug)]
struct Tool {
    program: PathBuf,
    /// Before the device.
    args: &'static [&'static str],
    decode: fn(&Value) -> Option<SmartLog>,
}

fn tools() -> Vec<Tool> {
    vec![
        Tool { program: "smartctl".into(), args: &["--json", "-A"], decode: log::of_smartctl },
        Tool {
            program: "nvme".into(),
            args: &["smart-log", "--output-format=json"],
            decode: log::of_nvme_cli,
        },
    ]
}

/// The NVMe drives under some block devices.
#[derive(Clone, Debug)]
pub(super) struct Smart {
    drives: Vec<String>,
    tools: Vec<Tool>,
}

/// The logs at one moment, by drive, or why there is none.
pub(super) type Logs = Vec<Result<SmartLog, String>>;

impl Smart {
    /// `devices` are names as in `/proc/diskstats`: of drives, partitions, or what is stacked upon them.
    pub(super) fn find(devices: &[String]) -> Smart {
        let parts = devices.iter().map(|device| part_at(&Path::new("/dev").join(device)));
        let drives = parts.filter(|part| part.is_device).flat_map(|part| part.drive.drives);
        let drives: BTreeSet<String> = drives.filter(|name| name.starts_with("nvme")).collect();
        Smart { drives: drives.into_iter().collect(), tools: tools() }
    }

    /// Reads all of them.
    pub(super) fn read(&self) -> Logs {
        let end = Instant::now() + LIMIT;
        self.drives.iter().map(|drive| read_drive(&self.tools, &Path::new("/dev").join(drive), end)).collect()
    }

    /// What is archived of two readings.
    pub(super) fn samples(&self, start: Logs, end: Logs) -> Vec<NvmeSamples> {
        let both = self.drives.iter().zip(start.into_iter().zip(end));
        both.map(|(drive, (start, end))| match (start, end) {
            (Ok(start), Ok(end)) => {
                let difference = log::difference(&start, &end);
                NvmeSamples { drive: drive.clone(), start, end, difference, missing: None }
            }
            (Err(why), _) | (_, Err(why)) => {
                NvmeSamples { drive: drive.clone(), missing: Some(why), ..NvmeSamples::default() }
            }
        })
        .collect()
    }
}

fn read_drive(tools: &[Tool], device: &Path, end: Instant) -> Result<SmartLog, String> {
    let mut why = Vec::new();
    for tool in tools {
        match tool.run(device, end) {
            Ok(log) => return Ok(log),
            Err(error) => why.push(format!("{}: {error}", tool.program.display())),
        }
    }
    Err(format!(
        "the SMART log of {} could not be read ({}): install smartmontools or nvme-cli, and run as root",
        device.display(),
        why.join("; ")
    ))
}

impl Tool {
    fn run(&self, device: &Path, end: Instant) -> Result<SmartLog, String> {
        let mut command = Command::new(&self.program);
        command.args(self.args).arg(device).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err("is not installed".into()),
            other => other.map_err(|e| e.to_string())?,
        };
        if !wait(&mut child, end) {
            return Err(format!("did not end within {} s", LIMIT.as_secs()));
        }
        let mut text = Vec::new();
        let out = child.stdout.take().ok_or("has no output")?;
        out.take(OUTPUT_MAX).read_to_end(&mut text).map_err(|e| e.to_string())?;
        // Not by its exit code: bits of smartctl's speak of a drive that fails, whose log is worth the more.
        let said: Value = serde_json::from_slice(&text).map_err(|_| "what it says is no JSON".to_owned())?;
        (self.decode)(&said).ok_or_else(|| "it shows no NVMe health log".to_owned())
    }
}

/// True if it ended in time. One that did not is killed; a drive that hangs may keep it from dying, so nobody waits for that.
fn wait(child: &mut Child, end: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < end => std::thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                let _ = child.try_wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A program that prints this for a device named `nvme0n1`, and ends as smartctl does when the drive reports trouble.
    fn script(folder: &Path, name: &str, body: &str) -> Tool {
        let program = folder.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Tool { program, ..tools()[0].clone() }
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
        let absent = Tool { program: dir.path().join("absent"), ..tools()[1].clone() };
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
            ("endless", "exec yes", "did not end"),
        ] {
            let tool = script(dir.path(), name, body);
            let end = Instant::now() + Duration::from_millis(if name == "endless" { 300 } else { 20_000 });
            let why = tool.run(Path::new("/dev/nvme0n1"), end).unwrap_err();
            assert!(why.contains(part), "{name}: {why}");
        }
    }

    #[test]
    fn a_drive_that_was_read_once_only_has_no_figures() {
        let smart = Smart { drives: vec!["nvme0n1".into(), "nvme1n1".into()], tools: Vec::new() };
        let log = |n| SmartLog::from([("host_write_commands".to_owned(), n)]);
        let samples = smart.samples(vec![Ok(log(5)), Ok(log(1))], vec![Ok(log(9)), Err("gone".to_owned())]);
        assert_eq!((samples[0].difference["host_write_commands"], &samples[0].missing), (4, &None));
        assert!(samples[1].start.is_empty() && samples[1].missing.as_deref() == Some("gone"));
    }
}
