//! Options of `carmine sweep`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use carmine_load::parse_millis;
use carmine_load::profile::ProfileMode;
use carmine_study::plan::{Overrides, Plan, SHIPPED, shipped};
use carmine_study::run::Options;
use carmine_testbed::spec::parse_path;
use carmine_testbed::usage;
use clap::Args;

/// Options of the sweep.
#[derive(Args, Clone, Debug)]
pub(crate) struct SweepArgs {
    /// A plan file (TOML), or the name of a shipped plan (see --list)
    #[arg(value_name = "PLAN", required_unless_present_any = ["list", "resume"])]
    pub(crate) plan: Option<String>,
    /// List shipped plans, axes and workloads
    #[arg(long)]
    pub(crate) list: bool,
    /// Show a summary (points, time, space, what does not fit and why, what differs between arms), then every point with its
    /// grid; starts nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show the plan's text, the values that its axes have here, and the summary; starts nothing
    #[arg(long)]
    pub(crate) show: bool,
    /// With --dry-run or --show: another machine, a description file or a shape such as 2x28x2; see `carmine plan --help`
    #[arg(long, value_name = "FILE|SHAPE")]
    pub(crate) topology: Option<String>,
    /// Print JSON instead of text (--list, --dry-run, and the table at the end)
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder of the archive [default: carmine-runs/PLAN-TIME]
    #[arg(long, value_name = "FOLDER", help_heading = "Archive")]
    pub(crate) out: Option<PathBuf>,
    /// Continue the stopped run in --out, with its plan and options; measured points are kept
    #[arg(long, requires = "out", help_heading = "Archive")]
    pub(crate) resume: bool,
    /// Pack the archive into OUT.zip as well
    #[arg(long, help_heading = "Archive")]
    pub(crate) zip: bool,
    /// Folder for the OSDs' data, on the drive to be measured [default: OUT/layouts]
    #[arg(long, value_name = "FOLDER", help_heading = "Storage")]
    pub(crate) layouts: Option<PathBuf>,
    /// Block devices for the OSDs, used in this order; they hold one layout at a time
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    pub(crate) devs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,

    /// Refuse a sweep that is estimated to take longer, such as 8h
    #[arg(long, value_name = "TIME", value_parser = parse_millis, help_heading = "Plan")]
    pub(crate) deadline: Option<u64>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Measure none (Carmine itself), ceph or ceph-tuned; a list measures them side by side
    #[arg(long, value_name = "PEER,…", value_delimiter = ',', help_heading = "Plan")]
    pub(crate) peer: Vec<String>,
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, to be the peer instead of the installed packages
    #[arg(long, value_name = "FOLDER", help_heading = "Plan")]
    pub(crate) peer_build: Option<PathBuf>,
    /// Make a flamegraph of each point where perf works, before its window: oncpu or offcpu
    #[arg(long, value_name = "MODE", help_heading = "Plan")]
    pub(crate) profile: Option<ProfileMode>,
    /// Load generator: own, fio-rbd, fio-rados, rados-bench
    #[arg(long, value_name = "CLIENT", help_heading = "Plan")]
    pub(crate) client: Option<String>,
}

impl SweepArgs {
    /// The plan that was named, as the other options change it.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let name = self.plan.as_deref().unwrap_or_default();
        let plan = match shipped(name) {
            Some(plan) => plan,
            None if !Path::new(name).exists() && !name.contains(['/', '.']) => {
                let names = SHIPPED.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ");
                anyhow::bail!(usage!(
                    "{name}: there is no such file or shipped plan; shipped plans: {names}"
                ));
            }
            None => Plan::read(Path::new(name)),
        };
        Ok(plan?.with(&self.overrides())?)
    }

    fn overrides(&self) -> Overrides {
        let build = self.peer_build.as_ref().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone()));
        let one = |name: &str, value: Option<String>| (name.to_owned(), Vec::from_iter(value));
        let before = [("peer".to_owned(), self.peer.clone()), one("client", self.client.clone())];
        let behind = [
            one("peer_build", build.map(|dir| dir.display().to_string())),
            one("profile", self.profile.map(|mode| mode.to_string())),
        ];
        let given = before.into_iter().chain(self.overrides.axes.iter().cloned()).chain(behind);
        let axes = given.filter(|(_, values)| !values.is_empty()).collect();
        Overrides { axes, ..self.overrides.clone() }
    }
}
