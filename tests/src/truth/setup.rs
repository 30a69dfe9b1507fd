//! Disturbances of a testbed from outside: processes that take CPU time, and a drive that is slow.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A client of a testbed, or a program that reads its drive, for at most 30 s.
pub(super) struct Neighbour(Child);

impl Neighbour {
    /// Runs a shell script with these words as `$@`, on a CPU.
    pub(super) fn start(cpu: &str, script: &str, words: &[&str]) -> Neighbour {
        let mut command = Command::new("taskset");
        command.args(["-c", cpu, "timeout", "30", "sh", "-c", script, "sh"]).args(words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Neighbour(child.expect("taskset (util-linux)"))
    }

    pub(super) fn busy(cpu: &str) -> Neighbour {
        Neighbour::start(cpu, "while :; do :; done", &[])
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // `timeout` passes the signal on to the shell; SIGKILL it could not.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A control group with a limit for the processes that are put in here. cgroup v2 or v1, whichever has the controller.
pub(super) struct Group {
    path: PathBuf,
}

impl Group {
    /// So many reads per second of the drive under a folder. `None` where there is no such controller, or no right to use it.
    pub(super) fn slow_drive(folder: &Path, reads_per_s: u32) -> Option<Group> {
        let number = fs::metadata(folder).ok()?.dev();
        // glibc's gnu_dev_major and gnu_dev_minor.
        let (major, minor) =
            (number >> 8 & 0xfff | number >> 32 & !0xfff, number & 0xff | number >> 12 & !0xff);
        let v1 = "blkio.throttle.read_iops_device";
        Group::with_one([
            ("/sys/fs/cgroup", "io.max", format!("{major}:{minor} riops={reads_per_s}")),
            ("/sys/fs/cgroup/blkio", v1, format!("{major}:{minor} {reads_per_s}")),
        ])
    }

    /// So much CPU time in every 100 ms. `None` as above.
    pub(super) fn cpu_quota(ms: u32) -> Option<Group> {
        let us = ms * 1000;
        Group::with_one([
            ("/sys/fs/cgroup", "cpu.max", format!("{us} 100000")),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", us.to_string()),
        ])
    }

    /// The first of these limits that can be set: root of the hierarchy, file, and its content.
    fn with_one(limits: [(&str, &str, String); 2]) -> Option<Group> {
        let name = format!("carmine-test-{}", std::process::id());
        for (root, file, text) in limits {
            let group = Group { path: Path::new(root).join(&name) };
            if fs::create_dir(&group.path).is_ok() && write_there(&group.path.join(file), &text) {
                return Some(group);
            }
        }
        None
    }

    /// Moves a process in here.
    pub(super) fn put(&self, pid: i32) {
        assert!(write_there(&self.path.join("cgroup.procs"), &pid.to_string()), "{pid} can't be moved");
    }

    /// Words before a command that start it in here.
    pub(super) fn wrap(&self) -> [String; 4] {
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.path.display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that are still in it keep it; they go with the testbed, and an empty group harms nobody.
        let root = self.path.parent().unwrap_or(Path::new("/"));
        let pids = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        pids.lines().for_each(|pid| {
            write_there(&root.join("cgroup.procs"), pid);
        });
        let _ = fs::remove_dir(&self.path);
    }
}

/// Writes a file that exists: where there is no controller, no plain file must take its place.
fn write_there(file: &Path, text: &str) -> bool {
    let file = fs::File::options().write(true).open(file);
    file.and_then(|mut file| file.write_all(text.as_bytes())).is_ok()
}
