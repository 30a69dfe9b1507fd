//! `up --precondition`: options, and what is said of it.

use std::time::Duration;

use carmine_load::{parse_bytes, parse_millis};
use carmine_testbed::precondition::{self, Outcome, PreconditionOptions};
use carmine_testbed::{Layout, Plan, StartOptions, refuse_used_folder};
use clap::Args;

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::note;

/// Largest random write: a buffer's size.
const BS_MAX: u64 = 1 << 20;

/// Preconditioning of drives.
#[derive(Args)]
pub(crate) struct PreconditionArgs {
    /// Write the drives of --devs into their steady state before the stores are made: twice their capacity sequentially,
    /// then rounds of random writes until five rounds differ by at most 20 % and drift by at most 10 % (SNIA's definition).
    /// Takes hours; on files and virtual disks it is n/a
    #[arg(long, help_heading = "Storage")]
    precondition: bool,
    /// Size of the random writes: the one that will be tested
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_bytes, help_heading = "Storage")]
    precondition_bs: u64,
    /// Go on with a drive that is not steady after this time
    #[arg(long, value_name = "TIME", default_value = "8h", value_parser = parse_millis, help_heading = "Storage")]
    precondition_limit: u64,
    /// Length of a round
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = parse_millis, hide = true)]
    precondition_round: u64,
    /// Also on virtual disks
    #[arg(long, hide = true)]
    precondition_virtual: bool,
}

impl PreconditionArgs {
    /// Fails if it is asked for where stores are made already.
    pub(super) fn refuse_for_existing_stores(&self) -> anyhow::Result<()> {
        if self.precondition {
            let why = "--precondition: the stores of this testbed exist, and it would overwrite them; \
                       `carmine destroy` removes them";
            return Err(Usage(why.into()).into());
        }
        Ok(())
    }

    /// Preconditions the drives of `plan`, if asked to, and notes the outcome there; true if something was written.
    pub(super) fn run(
        &self,
        layout: &Layout,
        plan: &mut Plan,
        wipe: bool,
        start: &mut StartOptions<'_>,
    ) -> anyhow::Result<bool> {
        if !self.precondition {
            return Ok(false);
        }
        let bs_bytes = self.precondition_bs;
        if bs_bytes > BS_MAX || !bs_bytes.is_multiple_of(4096) || bs_bytes == 0 {
            return Err(
                Usage(format!("--precondition-bs {bs_bytes}: take a multiple of 4096 up to 1m")).into()
            );
        }
        refuse_used_folder(layout.dir(), "testbed")?;
        let options = PreconditionOptions {
            bs_bytes,
            round: Duration::from_millis(self.precondition_round),
            limit: Duration::from_millis(self.precondition_limit),
            virtual_too: self.precondition_virtual,
        };
        let done = precondition::run(&plan.devices, wipe, &options, start.cancel, start.events)?;
        done.iter().for_each(|drive| note(&format!("precondition {drive}")));
        let written = done.iter().any(|drive| drive.outcome != Outcome::Na);
        // Zeros everywhere would undo it.
        plan.sparse |= written;
        plan.preconditioned = done;
        Ok(written)
    }
}
