//! Making the stores: one `carmine-osd --mkfs` per OSD, which prints its progress.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use carmine_types::OsdId;

use crate::Event;
use crate::daemons::arguments;
use crate::error::{Result, TestbedError, failed};
use crate::layout::{Daemon, DaemonPrograms, Layout};

/// A child prints `progress DONE TOTAL`, in bytes, for each step.
const PROGRESS: &str = "progress ";

/// A progress line for the parent.
pub fn progress_line(done_bytes: u64, total_bytes: u64) -> String {
    format!("{PROGRESS}{done_bytes} {total_bytes}")
}

fn parse_progress(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.strip_prefix(PROGRESS)?.split_once(' ')?;
    Some((done.parse().ok()?, total.trim().parse().ok()?))
}

/// Makes the store of one OSD. `wipe` lets it overwrite a device that is not blank.
pub(crate) fn run(
    layout: &Layout,
    programs: &DaemonPrograms,
    osd: OsdId,
    wipe: bool,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<()> {
    let program = &programs.of(Daemon::Osd(osd))?;
    let mut command = Command::new(program);
    command.args(arguments(layout, Daemon::Osd(osd))).arg("--mkfs");
    if wipe {
        command.arg("--force-wipe");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
    let mut child = command.spawn().map_err(TestbedError::io("start", program))?;
    let mut errors = child.stderr.take();
    // The error text is short, but a full pipe would stop the child: it is read beside the progress.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(pipe) = &mut errors {
            let _ = pipe.take(64 << 10).read_to_string(&mut text);
        }
        text
    });
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines() {
            let Ok(line) = line else { break };
            if let Some((done_bytes, total_bytes)) = parse_progress(&line) {
                events(Event::Mkfs { osd, done_bytes, total_bytes });
            }
            if cancel.load(Ordering::Relaxed) {
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait().map_err(TestbedError::io("wait for", program))?;
    let text = reader.join().unwrap_or_default();
    if cancel.load(Ordering::Relaxed) {
        return Err(failed!("interrupted"));
    }
    if !status.success() {
        let text = text.trim();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        return Err(failed!(
            "cannot make the store of {osd}: {}",
            if text.is_empty() { "no reason given" } else { text }
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_round_trip() {
        assert_eq!(parse_progress(&progress_line(3, 10)), Some((3, 10)));
        assert_eq!(parse_progress("progress x 1"), None);
        assert_eq!(parse_progress("hello"), None);
    }
}
