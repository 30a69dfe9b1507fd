//! Daemons whose records are lost or damaged, found by their command lines.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use carmine_types::OsdId;

use crate::daemons::arguments;
use crate::error::{Result, TestbedError};
use crate::layout::{Daemon, Layout};
use crate::process::ProcessId;

/// The daemons of this folder that run. A process is one of them if its command line is the one that a daemon of this very
/// folder is started with, and its program has the name of the daemon's.
pub(crate) fn find(layout: &Layout) -> Vec<(Daemon, ProcessId)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        // The identity first: if the pid is reused after this, the identity matches no process.
        let id = ProcessId::of(pid)?;
        let daemon = daemon_of(layout, &Path::new("/proc").join(pid.to_string()))?;
        id.alive().then_some((daemon, id))
    })
    .collect()
}

fn daemon_of(layout: &Layout, process: &Path) -> Option<Daemon> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let words: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let daemon = match words.as_slice() {
        [_, b"--dir", _] => Daemon::Mon,
        [_, b"--dir", _, b"--id", number] => {
            Daemon::Osd(OsdId(std::str::from_utf8(number).ok()?.parse().ok()?))
        }
        _ => return None,
    };
    let is_ours = words[1..].iter().copied().eq(arguments(layout, daemon).iter().map(|word| word.as_bytes()));
    // What another user runs has no name here; it cannot be signalled either, and the error says so.
    let program = fs::read_link(process.join("exe")).ok();
    // The name of a file that was replaced since ends in " (deleted)".
    let is_daemon = program.is_none_or(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(daemon.program()))
    });
    (is_ours && is_daemon).then_some(daemon)
}

/// Writes the records of daemons anew that run and have none, or a damaged one.
///
/// # Errors
/// A record cannot be written.
pub(crate) fn restore_records(layout: &Layout) -> Result<()> {
    for (daemon, id) in find(layout) {
        let path = layout.pid_file(daemon);
        if !ProcessId::load(&path).is_ok_and(|record| record.is_some_and(|record| record.alive())) {
            fs::create_dir_all(layout.run_dir()).map_err(TestbedError::io("create", &layout.run_dir()))?;
            id.store(&path)?;
        }
    }
    Ok(())
}
