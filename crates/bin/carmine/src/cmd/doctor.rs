//! `carmine doctor`: settings of this machine, and of a testbed on it, that would spoil a measurement. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use carmine_doctor::{Build, CpuTimes, Finding, NeededSpace, Options, Severity, examine};
use carmine_testbed::drive::facts;
use carmine_testbed::{BedKind, Layout, Plan, ProcessId, Wish, load, usage};
use carmine_topology::Topology;
use carmine_types::StoreKind;
use clap::Args;
use serde_json::Value;

/// The folder that is looked at when none is named.
const DEFAULT_DIR: &str = "carmine-testbed";
/// Width of the column of severities.
const SEVERITY: usize = 5;
/// Severities in their order, the worst first.
const JUDGED: [Severity; 4] = [Severity::Bad, Severity::Warn, Severity::Info, Severity::Ok];
/// How long other work is watched.
const WATCH: Duration = Duration::from_millis(300);

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Folder of a testbed: also look at its CPUs, drives and options [default: carmine-testbed if that is one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// 0 whatever was found: a finding is not a failure.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let findings = examine(&Options { cpu_times: cpu_times(), ..options(args)? });
    super::print_as(args.json, &findings, || render(&findings))
}

fn options(args: &DoctorArgs) -> Result<Options> {
    let layout = Layout::new(args.dir.as_deref().unwrap_or(DEFAULT_DIR.as_ref()))?;
    match load(BedKind::Testbed, &layout)? {
        Some(plan) => Ok(options_of(&layout, &plan)),
        None if args.dir.is_some() => Err(usage!("there is no testbed in {}", layout.dir().display()).into()),
        None => Ok(of_machine()),
    }
}

/// Findings about the machine alone.
pub(crate) fn findings_of_machine() -> Vec<Finding> {
    examine(&Options { cpu_times: cpu_times(), ..of_machine() })
}

fn of_machine() -> Options {
    Options { build: Some(build()), own_pids: vec![std::process::id()], ..Options::default() }
}

/// CPU time at both ends of a moment.
fn cpu_times() -> Option<[CpuTimes; 2]> {
    let before = CpuTimes::read("/".as_ref())?;
    std::thread::sleep(WATCH);
    Some([before, CpuTimes::read("/".as_ref())?])
}

/// The build as `build.rs` noted it.
fn build() -> Build {
    Build {
        profile: carmine_daemon::build::PROFILE.to_owned(),
        assertions: cfg!(debug_assertions),
        rocksdb: cfg!(feature = "rocks").then(|| carmine_daemon::build::ROCKSDB.to_owned()),
        rocksdb_flags: carmine_daemon::build::CXXFLAGS.to_owned(),
        allocator: carmine_daemon::build::ALLOCATOR.to_owned(),
    }
}

/// Findings about the machine and this testbed.
pub(crate) fn findings_of(layout: &Layout, plan: &Plan) -> Vec<Finding> {
    examine(&options_of(layout, plan))
}

fn options_of(layout: &Layout, plan: &Plan) -> Options {
    Options {
        reactor_cpus: plan.grid.allocated_cpus(),
        client_cpus: plan.grid.client_cpus(),
        drives: drives(layout, plan),
        places: places(layout, plan),
        own_pids: own_pids(layout, plan),
        changed: changed(plan),
        ..of_machine()
    }
}

/// This program and the testbed's daemons.
fn own_pids(layout: &Layout, plan: &Plan) -> Vec<u32> {
    let running = plan.daemons().into_iter().filter_map(|daemon| ProcessId::running(layout, daemon).ok()?);
    running.map(|process| process.pid.unsigned_abs()).chain([std::process::id()]).collect()
}

/// Devices under data, log and database of the stores; none for stores in memory, or if the kernel does not show them.
fn drives(layout: &Layout, plan: &Plan) -> Vec<String> {
    let stores: Vec<_> = plan.osd_ids().filter_map(|id| facts::read(layout, plan, id)).collect();
    let names: BTreeSet<&str> = stores.iter().flat_map(|store| store.nodes()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Block files that are not written through still need their room.
fn places(layout: &Layout, plan: &Plan) -> Vec<NeededSpace> {
    let in_files = plan.store == StoreKind::Blue && plan.devices.is_empty();
    let all_bytes = plan.osd_size_bytes.saturating_mul(u64::from(plan.osds()));
    let needed_bytes = if in_files && plan.sparse { all_bytes } else { 0 };
    vec![NeededSpace { folder: layout.dir().to_path_buf(), needed_bytes }]
}

/// Options that are not their defaults: name, value, default.
fn changed(plan: &Plan) -> Vec<(String, String, String)> {
    let default = Topology::detect().ok().and_then(|t| Plan::new(&Wish::default(), &t, &plan.fsid).ok());
    let Some(default) = default else { return Vec::new() };
    let json = |plan: &Plan| serde_json::to_value(&plan.spec).unwrap_or_default();
    let (is, default) = (fields("", &json(plan)), fields("", &json(&default)));
    let both = is.into_iter().map(|(name, is)| {
        let default = default.get(&name).cloned().unwrap_or_else(|| "null".to_owned());
        (name, is, default)
    });
    both.filter(|(_, is, default)| is != default).collect()
}

/// The fields of a value as text, by their paths.
fn fields(path: &str, value: &Value) -> BTreeMap<String, String> {
    let Value::Object(map) = value else { return [(path.to_owned(), value.to_string())].into() };
    let dot = if path.is_empty() { "" } else { "." };
    map.iter().flat_map(|(key, value)| fields(&format!("{path}{dot}{key}"), value)).collect()
}

/// The findings for people: the worst first, and absent things in one list at the end.
fn render(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(move |f| f.severity == severity);
    let judged: String = JUDGED.into_iter().flat_map(of).map(one).collect();
    let absent: String =
        of(Severity::NotPresent).map(|f| format!("      {}: {}\n", title(f), f.is)).collect();
    let heading = if absent.is_empty() { "" } else { "\nnot present on this machine, so not judged:\n" };
    let [bad, warn, info, ok] = JUDGED.map(|severity| of(severity).count());
    let counts = format!("findings: bad {bad}, warn {warn}, info {info}, ok {ok}; nothing was changed");
    format!("{judged}{heading}{absent}\n{counts}\n")
}

fn title(finding: &Finding) -> String {
    match &finding.subject {
        Some(subject) => format!("{} of {subject}", finding.topic),
        None => finding.topic.clone(),
    }
}

fn one(finding: &Finding) -> String {
    let source = finding.source.as_ref().map_or(String::new(), |source| format!(" [{source}]"));
    let cost = finding.cost.as_ref().map(|cost| format!("{cost}{source}"));
    // A cost that nobody measured is not claimed.
    let unknown = || (finding.severity >= Severity::Warn).then(|| "no published figure is known".to_owned());
    let (better, command) = (finding.better.clone(), finding.command.clone());
    let more = [("better", better), ("cost", cost.or_else(unknown)), ("change", command)];
    let more = more.into_iter().filter_map(|(what, value)| Some((what, value?)));
    let more: String = more.map(|(what, value)| format!("{:SEVERITY$}   {what:<7}{value}\n", "")).collect();
    format!("{:<SEVERITY$} {}: {}\n{more}", finding.severity, title(finding), finding.is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, topic: &str) -> Finding {
        let json = serde_json::json!({
            "topic": topic, "subject": null, "severity": severity, "is": "so", "better": "otherwise",
            "cost": null, "source": null, "command": "do it",
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_worst_come_first_and_the_absent_last() {
        let findings =
            [finding(Severity::NotPresent, "a"), finding(Severity::Ok, "b"), finding(Severity::Bad, "c")];
        let text = render(&findings);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in\n{text}"));
        assert!(at("bad   c: so") < at("ok    b: so") && at("ok    b: so") < at("a: so"));
        assert!(text.contains("change do it") && text.contains("no published figure"));
        assert!(text.contains("bad 1, warn 0, info 0, ok 1"));
    }

    fn plan(wish: &Wish) -> Plan {
        Plan::new(wish, &Topology::detect().unwrap(), "f").unwrap()
    }

    #[test]
    fn only_what_was_asked_for_is_changed() {
        assert_eq!(changed(&plan(&Wish::default())), []);
        let wish = Wish { poll: Some("sleep".into()), alien_threads: Some(5), ..Wish::default() };
        let names: Vec<String> = changed(&plan(&wish)).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["alien_threads", "poll"]);
    }

    #[test]
    fn a_sparse_testbed_needs_its_room_later() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        let of = |sparse| {
            places(&layout, &plan(&Wish { sparse: Some(sparse), ..Wish::default() }))[0].needed_bytes
        };
        assert_eq!((of(true), of(false)), (4 << 30, 0));
    }
}
