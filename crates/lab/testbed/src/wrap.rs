//! A command around each OSD (`--osd-wrap`), such as perf, numactl or valgrind, and the OSDs' environment.
//!
//! A wrapper may turn into the OSD (`exec`, as numactl does) or start it as a child (as perf does). So the OSD's
//! process is not guessed from the wrapper's: the OSD writes its own record down. What else the wrapper has started is
//! known by a variable of its environment, [`MARK`], and is ended when the OSD is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carmine_types::OsdId;
use serde::{Deserialize, Serialize};

use crate::error::{Result, usage};
use crate::files;
use crate::layout::{Daemon, Layout};
use crate::process::{self, ProcessId};
use crate::spec::NONE;

/// Variable that everything a wrapper starts has: `CLUSTER/osd.N`.
const MARK: &str = "CARMINE_WRAPPED_OSD";
/// Stands for the OSD's number in a wrapper's words and in values of the environment.
const OSD_WORD: &str = "{osd}";
/// Time for what a wrapper has left to end after SIGTERM.
const TERM_LIMIT: Duration = Duration::from_secs(2);

/// The text of `--osd-wrap`, quoted as in a shell; the program becomes an absolute path, so that a later start from another
/// folder finds the same. `none` stays.
///
/// # Errors
/// Quotes that do not match, no word at all, or a program that does not exist.
pub(crate) fn found(text: &str) -> Result<String> {
    if text.trim() == NONE {
        return Ok(NONE.to_owned());
    }
    let mut words = shlex::split(text)
        .ok_or_else(|| usage!("--osd-wrap {text}: a quote is not closed; write it as in a shell"))?;
    let Some(program) = words.first_mut() else {
        return Err(usage!("--osd-wrap is empty: name a command, or `none` to take an earlier one away"));
    };
    *program = find_program(program)?.display().to_string();
    shlex::try_join(words.iter().map(String::as_str)).map_err(|e| usage!("--osd-wrap {text}: {e}"))
}

fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if name.contains('/') {
        std::path::absolute(name).ok().filter(|path| is_program(path))
    } else {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
    };
    found.ok_or_else(|| {
        usage!(
            "--osd-wrap {name}: there is no such program (in PATH if it is a name alone), or it is not executable; install it, \
             or check the path"
        )
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The words of `--osd-env`, sorted and each name once; the single word `none` gives none.
///
/// # Errors
/// A word without `=`, or without a name before it.
pub(crate) fn env_words(words: &[String]) -> Result<Vec<String>> {
    if words == [NONE] {
        return Ok(Vec::new());
    }
    let parse = |word: &String| match word.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok((name.to_owned(), word.clone())),
        _ => Err(usage!("--osd-env {word}: write NAME=VALUE (`NAME=` for an empty value)")),
    };
    let by_name = words.iter().map(parse).collect::<Result<BTreeMap<String, String>>>()?;
    Ok(by_name.into_values().collect())
}

/// The wrapper's command line before the OSD's own; none without a wrapper.
pub(crate) fn words_for(text: &str, osd: OsdId) -> Vec<OsString> {
    let words = if text == NONE { Vec::new() } else { shlex::split(text).unwrap_or_default() };
    words.iter().map(|word| fill_in(word, osd).into()).collect()
}

/// Variables that `--osd-env` adds to the environment of one OSD.
pub(crate) fn env_for(words: &[String], osd: OsdId) -> Vec<(OsString, OsString)> {
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.into(), fill_in(value, osd).into())).collect()
}

fn fill_in(word: &str, osd: OsdId) -> String {
    word.replace(OSD_WORD, &osd.0.to_string())
}

/// The wrapper of one running OSD, as its record in the folder has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Wrapper {
    osd: u32,
    /// Value of [`MARK`].
    mark: String,
    /// The process that was started; `None` until that is known.
    pub(crate) process: Option<ProcessId>,
}

impl Wrapper {
    /// A wrapper that is about to start.
    pub(crate) fn new(fsid: &str, osd: OsdId) -> Self {
        Self { osd: osd.0, mark: format!("{fsid}/{osd}"), process: None }
    }

    /// Writes the record: should this command die, `down` still finds it.
    pub(crate) fn store(&self, layout: &Layout) -> Result<()> {
        files::write_json(&layout.wrapper_file(OsdId(self.osd)), self)
    }

    /// The record of a daemon's wrapper, if it has one.
    pub(crate) fn of(layout: &Layout, daemon: Daemon) -> Result<Option<Self>> {
        let Daemon::Osd(osd) = daemon else { return Ok(None) };
        files::read_json(&layout.wrapper_file(osd))
    }

    /// The variable that everything it starts inherits.
    pub(crate) fn mark(&self) -> (OsString, OsString) {
        (MARK.into(), self.mark.clone().into())
    }

    /// True if anything that it started runs.
    pub(crate) fn works(&self) -> bool {
        !self.marked().is_empty()
    }

    /// Processes that the wrapper has started, itself and the OSD among them.
    fn marked(&self) -> Vec<ProcessId> {
        let mark = format!("{MARK}={}", self.mark);
        let has_mark = |dir: &Path| {
            // Readable for processes of the same user only; those of others are not ours.
            let environ = std::fs::read(dir.join("environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        let ours = process::all().filter(|(_, dir)| has_mark(dir));
        ours.filter_map(|(pid, _)| ProcessId::of(pid)).collect()
    }

    /// Ends what is left after the OSD has ended, and removes the record. The wrapper itself gets `patience` to end by
    /// itself; what else it has started does not.
    pub(crate) fn end(&self, layout: &Layout, patience: Duration) -> Result<()> {
        if let Some(process) = &self.process {
            process.wait_gone(patience);
        }
        let left = self.marked();
        for process in left.iter().chain(&self.process) {
            process.terminate()?;
        }
        let end = Instant::now() + TERM_LIMIT;
        for process in left.iter().chain(&self.process) {
            if !process.wait_gone(end.saturating_duration_since(Instant::now())) {
                process.kill()?;
            }
        }
        files::remove_file(&layout.wrapper_file(OsdId(self.osd)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_in_a_shell_and_found() {
        let words = shlex::split(&found("sh -c 'exec \"$@\"' {osd}").unwrap()).unwrap();
        assert!(words[0].starts_with('/') && words[0].ends_with("/sh"), "{words:?}");
        assert_eq!(words[1..], ["-c", "exec \"$@\"", "{osd}"]);
        let text = found("sh -c 'exec \"$@\"' {osd}").unwrap();
        assert_eq!(words_for(&text, OsdId(7))[1..], ["-c", "exec \"$@\"", "7"]);
        assert_eq!(found(&text).unwrap(), text, "a later start finds the same");
        assert!(found("none").unwrap() == "none" && words_for("none", OsdId(7)).is_empty());
        for (text, part) in [
            ("", "is empty"),
            ("sh -c 'x", "quote"),
            ("no-such-program-here", "PATH"),
            ("/etc/passwd", "not executable"),
            ("./no/such", "./no/such"),
        ] {
            let error = found(text).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn variables_need_a_name() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let env = env_words(&words(&["C=", "A=0", "B=x=y", "A={osd}"])).unwrap();
        assert_eq!(env, ["A={osd}", "B=x=y", "C="]);
        assert_eq!(
            env_for(&env, OsdId(3))[..2],
            [("A", "3"), ("B", "x=y")].map(|(k, v)| (k.into(), v.into()))
        );
        assert!(env_words(&words(&["none"])).unwrap().is_empty());
        for bad in ["A", "=1", ""] {
            let error = env_words(&words(&[bad])).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("NAME=VALUE"), "{error}");
        }
    }

    #[test]
    fn what_a_wrapper_started_is_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        std::fs::create_dir(layout.run_dir()).unwrap();
        let fsid = format!("test-{}", std::process::id());
        let wrapper = Wrapper::new(&fsid, OsdId(3));
        wrapper.store(&layout).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").envs([wrapper.mark()]).spawn().unwrap();
        // The variable is there from the exec on.
        let limit = Instant::now() + Duration::from_secs(5);
        while !wrapper.works() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(wrapper.marked(), [ProcessId::of(child.id() as i32).unwrap()]);
        let found = Wrapper::of(&layout, Daemon::Osd(OsdId(3))).unwrap().unwrap();
        found.end(&layout, Duration::ZERO).unwrap();
        assert!(!wrapper.works());
        assert_eq!(Wrapper::of(&layout, Daemon::Osd(OsdId(3))).unwrap(), None);
        child.wait().unwrap();
    }
}
