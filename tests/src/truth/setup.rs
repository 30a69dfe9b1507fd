//! Disturbances of a testbed from outside: processes that take CPU time, and a drive that is slow.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that only takes CPU time, for at most 30 s.
pub(super) struct BusyCpu(Child);

impl BusyCpu {
    pub(super) fn on(cpu: &str) -> BusyCpu {
        let words = ["-c", cpu, "timeout", "30", "sh", "-c", "while :; do :; done"];
        let child =
            Command::new("taskset").args(words).stdout(Stdio::null()).spawn().expect("taskset (util-linux)");
        BusyCpu(child)
    }
}

impl Drop for BusyCpu {
    fn drop(&mut self) {
        // `timeout` passes the signal on to the shell; SIGKILL it could not.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Reads per second of the drive under a folder are limited for the processes that are put in here. cgroup v2 or v1,
/// whichever has the controller.
pub(super) struct SlowDrive {
    group: PathBuf,
}

impl SlowDrive {
    /// `None` where there is no such controller, or no right to use it.
    pub(super) fn new(folder: &Path, reads_per_s: u32) -> Option<SlowDrive> {
        let number = fs::metadata(folder).ok()?.dev();
        // glibc's gnu_dev_major and gnu_dev_minor.
        let (major, minor) =
            (number >> 8 & 0xfff | number >> 32 & !0xfff, number & 0xff | number >> 12 & !0xff);
        let name = format!("carmine-test-{}", std::process::id());
        let ways = [
            ("/sys/fs/cgroup", "io.max", format!("{major}:{minor} riops={reads_per_s}")),
            (
                "/sys/fs/cgroup/blkio",
                "blkio.throttle.read_iops_device",
                format!("{major}:{minor} {reads_per_s}"),
            ),
        ];
        for (root, file, text) in ways {
            let drive = SlowDrive { group: Path::new(root).join(&name) };
            if fs::create_dir(&drive.group).is_ok() && write_there(&drive.group.join(file), &text) {
                return Some(drive);
            }
        }
        None
    }

    /// Moves a process in here.
    pub(super) fn put(&self, pid: i32) {
        assert!(write_there(&self.group.join("cgroup.procs"), &pid.to_string()), "{pid} can't be moved");
    }

    /// Words before a command that start it in here.
    pub(super) fn wrap(&self) -> [String; 4] {
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.group.display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }
}

impl Drop for SlowDrive {
    fn drop(&mut self) {
        // Processes that are still in it keep it; they go with the testbed, and an empty group harms nobody.
        let root = self.group.parent().unwrap_or(Path::new("/"));
        let pids = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        pids.lines().for_each(|pid| {
            write_there(&root.join("cgroup.procs"), pid);
        });
        let _ = fs::remove_dir(&self.group);
    }
}

/// Writes a file that exists: where there is no controller, no plain file must take its place.
fn write_there(file: &Path, text: &str) -> bool {
    let file = fs::File::options().write(true).open(file);
    file.and_then(|mut file| file.write_all(text.as_bytes())).is_ok()
}
