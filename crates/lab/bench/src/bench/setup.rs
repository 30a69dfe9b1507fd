//! A load that can start: everything that is decided before it starts, and the running cluster that it loads, a testbed or a peer.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Deref;

use anyhow::{Context, Result, bail};
use carmine_client::Access;
use carmine_doctor::{Finding, Options, examine};
use carmine_load::baseline::Baseline;
use carmine_load::drive::StoreFacts;
use carmine_load::hosted::jobfile::JobFile;
use carmine_load::hosted::{self, Tool};
use carmine_load::hosts::HOSTS_MAX;
use carmine_load::profile::ProfileMode;
use carmine_load::report::{CacheState, Context as ReportContext, Setting};
use carmine_load::{LoadSpec, Prefill, Route, Rw, VerifyState};
use carmine_testbed::{Layout, Plan, access, refuse, usage};
use carmine_topology::Grid;
use carmine_types::{FlushMode, OsdId, StoreKind, counted};
use serde_json::json;

use super::args::BenchArgs;
use super::{Seen, jobfile, room};
use crate::baseline::load_baseline;
use crate::cluster::{self, Cluster};
use crate::load_hosts::is_here;
use crate::sample::{host_report, unix_now};
use crate::steering::generator_threads;
use crate::{Doctor, GitHash};

/// Length of the window with more load, and of the load before it.
const CONFIRM_MS: u64 = 3_000;
const CONFIRM_RAMP_MS: u64 = 500;
/// `--cache cached` without `--ramp` loads for this long before the window.
const CACHED_RAMP_MS: u64 = 5_000;
/// Most rounds of overwriting: a typing error would take days.
const AGE_MAX: f64 = 1000.0;

/// A load that can start.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) args: BenchArgs,
    pub(super) spec: LoadSpec,
    pub(super) state: Option<VerifyState>,
    /// The jobs that fio runs instead of a load from the options.
    pub(super) jobfile: Option<JobFile>,
    cluster: Cluster,
    pub(super) access: Access,
    /// The part of the report that is known before the load.
    known: ReportContext,
    pub(super) git_hash: GitHash,
}

impl Deref for Setup {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Setup {
    /// Checks the load, and looks at the cluster that is to be loaded, all of whose processes must run.
    pub(super) fn prepare(mut args: BenchArgs, doctor: Doctor, git_hash: GitHash) -> Result<Setup> {
        let (jobfile, mut spec) = jobfile::read(&args, args.spec())?;
        cache_conditions(&mut spec, args.cache)?;
        check(&args, &spec)?;
        args.profile = args.profile.or(args.stages.then_some(ProfileMode::OnCpu));
        let baseline = args.baseline.as_deref().map(|file| load_baseline("--baseline", file)).transpose()?;
        let layout = Layout::new(&args.dir.dir)?;
        let plan = cluster::plan(&layout)?;
        let is_peer = plan.peer.is_some();
        let (in_process, osd, last) = (args.in_process, args.osd, plan.osds().saturating_sub(1));
        refuse!(is_peer && in_process, "--in-process: a peer's OSDs do not load themselves; leave it out");
        refuse!(in_process && osd > last, "--osd {osd}: the testbed has OSDs 0 to {last}");
        if let Some(out) = args.osd_out {
            let (osds, size) = (plan.osds(), u32::from(plan.pool.size));
            refuse!(is_peer, "--osd-out: only of Carmine's OSDs; a peer is measured by `scripts/recovery`");
            refuse!(out > last, "--osd-out {out}: the testbed has OSDs 0 to {last}");
            refuse!(
                osds <= size,
                "--osd-out {out}: {osds} OSDs are too few to keep {size} copies without one"
            );
        }
        // A stock client has one connection for each OSD, and a stock OSD takes no other.
        if is_peer || args.client != Tool::Carmine {
            spec.route = Route::Single;
        }
        fill_and_age(&mut spec, &plan, (args.fill, args.age))?;
        let mut marks = check(&args, &spec)?;
        marks.extend(jobfile.iter().flat_map(JobFile::marks));
        let cluster = Cluster::running(layout, plan)?;
        let (layout, plan) = (&cluster.layout, &cluster.plan);
        let access = access(layout, &cluster.plan)?;
        refuse!(
            access.credentials.is_some() && !args.load_hosts.is_empty(),
            "--load-hosts: the testbed has --auth cephx, and load hosts have no key; load it from here, or with a stock client"
        );
        if let (Some(mon), Some(host)) = (
            access.mons.iter().find(|mon| mon.ip().is_loopback()),
            args.load_hosts.iter().find(|host| !is_here(host)),
        ) {
            bail!(usage!(
                "--load-hosts {host}: the testbed listens on {mon}, which no other host reaches; make it with `carmine up --addr IP \
                 --insecure`"
            ));
        }
        let findings = match is_peer {
            false => doctor(layout, plan),
            true => {
                let (reactor_cpus, client_cpus) = (plan.grid.allocated_cpus(), plan.grid.client_cpus());
                examine(&Options { reactor_cpus, client_cpus, ..Options::default() })
            }
        };
        let state = load_state(&mut spec, &args)?;
        let known = known(&args, &cluster, &findings, baseline, marks);
        let setup = Setup { args, spec, state, jobfile, cluster, access, known, git_hash };
        if setup.args.client == Tool::Carmine {
            room::check(&setup, |enough| room::present_bytes(&setup, enough))?;
        }
        Ok(setup)
    }

    /// The OSD that is loaded from within.
    pub(super) fn in_process(&self) -> Option<OsdId> {
        self.args.in_process.then_some(OsdId(self.args.osd))
    }

    /// Why there can be no load before the window, in which a profile is taken.
    pub(super) fn cannot_profile(&self) -> Option<&'static str> {
        if self.wants_cold() {
            Some("--cache cold: it is taken under load before the window, which would warm the caches")
        } else if self.runs_untimed_jobs() {
            Some("--jobfile: its jobs have no common ramp_time and runtime, with time_based")
        } else if self.spec.ends_by_itself() && self.args.client == Tool::Carmine {
            Some("--io-size: it is taken under load before the window, which would be more than these bytes")
        } else {
            None
        }
    }

    /// A job file is run whose jobs have no common window.
    pub(super) fn runs_untimed_jobs(&self) -> bool {
        self.jobfile.as_ref().is_some_and(|file| !file.is_timed())
    }

    /// The same load for a moment, with twice the threads, or inside an OSD, which has as many as it has reactors, with twice
    /// the depth. Second: the name and value of the doubled option.
    pub(super) fn with_more_load(&self) -> (Setup, String) {
        let mut more = self.clone();
        let spec = &mut more.spec;
        let (name, number) = match self.args.in_process {
            true => ("iodepth", &mut spec.iodepth),
            false => ("numjobs", &mut spec.numjobs),
        };
        *number = number.saturating_mul(2);
        let doubled = format!("{name} {number}");
        spec.prefill = Prefill::Never;
        (spec.ramp_ms, spec.runtime_ms) = (CONFIRM_RAMP_MS, CONFIRM_MS.min(spec.runtime_ms));
        spec.keep_seconds = false;
        (more.args.samples, more.args.profile, more.args.cache) = (None, None, None);
        (more, doubled)
    }

    /// The store has work that it does later: its metadata is compacted.
    pub(super) fn defers_work(&self) -> bool {
        self.plan.peer.is_none() && self.plan.store == StoreKind::Blue && !self.spec.verify_only
    }

    /// The OSDs' caches are to be empty: they must have served nothing yet.
    pub(super) fn wants_cold(&self) -> bool {
        self.args.cache == Some(CacheState::Cold)
    }

    /// The part of the report that is known before the window's figures.
    pub(super) fn context(&self, spec: &LoadSpec, seen: &Seen) -> ReportContext {
        let mut context = self.known.clone();
        context.marks.extend_from_slice(&seen.marks);
        let cpus = self.client_cpus().len();
        let is_own = self.args.client == Tool::Carmine;
        let threads = if is_own { generator_threads(spec, cpus) } else { spec.numjobs as usize };
        context.load_hosts.clone_from(&seen.load_hosts);
        if !self.args.in_process && seen.load_hosts.is_empty() && threads > cpus {
            let (threads, cpus) = (counted(threads, "generator thread"), counted(cpus, "client CPU"));
            context.marks.push(format!("{threads} share {cpus}"));
        }
        context.setting.conditions = json!({
            "prefill": spec.prefill, "ramp_ms": spec.ramp_ms, "background_work_before": seen.settled,
        });
        context
    }

    /// The CPUs of OSDs and clients under this load.
    pub(super) fn grid(&self) -> Grid {
        grid(&self.plan, &self.args)
    }
}

fn grid(plan: &Plan, args: &BenchArgs) -> Grid {
    let grid = plan.grid.clone();
    let are_away = !args.load_hosts.is_empty() && !args.load_hosts.iter().any(|host| is_here(host));
    if args.in_process || are_away { grid.without_clients() } else { grid }
}

/// The part of the report that is known before the load.
fn known(
    args: &BenchArgs,
    cluster: &Cluster,
    doctor: &[Finding],
    baseline: Option<Baseline>,
    marks: Vec<String>,
) -> ReportContext {
    let Cluster { plan, stores, sampler, .. } = cluster;
    // A peer's devices are all its data's.
    let (drives, allocated_cores, (flush_mode, flush_forced)) = match &plan.peer {
        Some(_) => {
            let flush = (FlushMode::Flush.to_string(), false);
            (sampler.devices.len(), plan.grid.allocated_cpus().len() as f64, flush)
        }
        None => {
            let drives = stores.iter().filter_map(|store| store.data.drive.node.as_ref());
            let flush = StoreFacts::flush_of(stores);
            (drives.collect::<BTreeSet<_>>().len(), plan.allocated_cores(), flush)
        }
    };
    let grid = grid(plan, args);
    let mut shown = serde_json::to_value(plan).unwrap_or_default();
    shown.as_object_mut().map(|map| map.remove("grid"));
    let setting = Setting {
        plan: shown,
        shared: grid.shared,
        grid: serde_json::to_value(&grid).unwrap_or_default(),
        host: host_report(),
        in_process: args.in_process,
        flush_mode,
        flush_forced,
        stores: stores.clone(),
        doctor: serde_json::to_value(doctor).unwrap_or_default(),
        cache_state: args.cache.map(|state| state.to_string()),
        baseline,
        ..Setting::default()
    };
    ReportContext {
        setting,
        allocated_cores,
        client_cpus: (args.client != Tool::Carmine).then_some(cluster.client_cpus().len() as u32),
        size: plan.pool.size.into(),
        drives: (drives > 0).then_some(drives as u32),
        marks,
        client_seconds: None,
        load_hosts: Vec::new(),
    }
}

/// Fails if this is not a valid load, or if the tool cannot make it. Returns remarks on what the tool does differently.
fn check(args: &BenchArgs, spec: &LoadSpec) -> Result<Vec<String>> {
    let wrong = args.wrong_engine();
    refuse!(wrong.is_some(), "--ioengine {}", wrong.unwrap_or_default());
    let checked = spec.check().and_then(|()| hosted::check(args.client, spec));
    let marks = checked.map_err(|e| usage!("{e}"))?;
    let own = [
        ("--in-process", args.in_process),
        ("--confirm", args.confirm),
        ("--osd-out", args.osd_out.is_some()),
        ("--load-hosts", !args.load_hosts.is_empty()),
    ];
    for (option, given) in own {
        let vain = given && args.client != Tool::Carmine;
        refuse!(vain, "{option}: only --client carmine can do that; {} cannot", args.client);
    }
    check_hosts(&args.load_hosts, spec)?;
    let is_off = args.stages && args.profile == Some(ProfileMode::OffCpu);
    refuse!(is_off, "--stages: CPU time comes from --profile oncpu; leave --profile offcpu out");
    Ok(marks)
}

/// Fails if the hosts cannot share the load.
fn check_hosts(hosts: &[String], spec: &LoadSpec) -> Result<()> {
    let (count, jobs) = (hosts.len(), spec.numjobs);
    let nameless =
        hosts.iter().find(|host| host.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()));
    let twice = hosts.iter().enumerate().find(|(at, host)| hosts[..*at].contains(host));
    refuse!(count > HOSTS_MAX, "--load-hosts: {count} hosts are more than {HOSTS_MAX}");
    refuse!(
        nameless.is_some(),
        "--load-hosts {}: write each host as HOST:PORT",
        nameless.map_or("", |host| host)
    );
    refuse!(twice.is_some(), "--load-hosts {}: it is there twice", twice.map_or("", |(_, host)| host));
    refuse!(count > jobs as usize, "--numjobs {jobs}: each of {count} load hosts needs a job; raise it");
    Ok(())
}

/// Makes `spec` cover the part of the pool's capacity that `--fill` names, and write what it covers as many times as `--age`
/// says: the stores of a comparison are then equally full and equally worn.
fn fill_and_age(spec: &mut LoadSpec, plan: &Plan, (fill, age): (Option<u8>, Option<f64>)) -> Result<()> {
    if let Some(percent) = fill {
        let part = plan.capacity_bytes()? / u64::from(plan.pool.size) / 100 * u64::from(percent);
        spec.size_bytes = part / spec.object_size_bytes.max(1) * spec.object_size_bytes;
    }
    if let Some(rounds) = age {
        let is_right = rounds > 0.0 && rounds <= AGE_MAX;
        refuse!(!is_right, "--age {rounds}: take a number of rounds above 0, up to {AGE_MAX}");
        spec.rw = Rw::RandWrite;
        spec.io_bytes = Some((spec.size_bytes as f64 * rounds) as u64 / spec.bs_bytes.max(1) * spec.bs_bytes);
    }
    Ok(())
}

/// Changes the load as a cache state requires.
fn cache_conditions(spec: &mut LoadSpec, cache: Option<CacheState>) -> Result<()> {
    match cache {
        Some(CacheState::Cold) if spec.prefill == Prefill::Always || spec.ramp_ms > 0 => {
            bail!(usage!("--cache cold: --prefill always and --ramp would warm the caches; leave them out"))
        }
        Some(CacheState::Cold) => spec.prefill = Prefill::Never,
        Some(CacheState::OnodeWarm) if spec.prefill == Prefill::Never => bail!(usage!(
            "--cache onode-warm: the metadata is loaded by the search for missing objects; leave --prefill never out"
        )),
        Some(CacheState::Cached) if spec.ramp_ms == 0 => spec.ramp_ms = CACHED_RAMP_MS,
        _ => {}
    }
    Ok(())
}

/// The state of verified blocks. Without a file, or with one that does not exist yet, nothing is known; the load then gets
/// a generation of its own, so that blocks of earlier loads can't be taken for its own.
fn load_state(spec: &mut LoadSpec, args: &BenchArgs) -> Result<Option<VerifyState>> {
    if !spec.verify {
        return Ok(None);
    }
    spec.generation = unix_now().as_nanos() as u64;
    let Some(path) = &args.verify_state else { return Ok(None) };
    let state = match std::fs::read(path) {
        Ok(bytes) => VerifyState::decode(&bytes, spec).map_err(|e| usage!("{}: {e}", path.display()))?,
        Err(e) if e.kind() == ErrorKind::NotFound && !spec.verify_only => VerifyState::new(spec),
        Err(e) => {
            return Err(e).with_context(|| format!("cannot read the verify state {}", path.display()));
        }
    };
    spec.generation = state.generation();
    Ok(Some(state))
}

#[cfg(test)]
mod tests;
