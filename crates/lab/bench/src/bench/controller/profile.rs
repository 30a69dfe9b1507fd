//! The profile: recorded under the load before the window, so that what `perf` costs is in no figure.

use crate::profile::{Recording, length};
use carmine_load::Phase;

use super::Controller;

impl Controller<'_> {
    /// Records the OSDs if that was asked for; where it cannot be done the load goes on.
    pub(super) async fn profile(&mut self) -> anyhow::Result<()> {
        let Some(mode) = self.setup.profile else { return Ok(()) };
        if let Some(why) = self.setup.cannot_profile() {
            self.profiled = Some(Err(why.to_owned()));
            return Ok(());
        }
        self.drive.set_phase(Phase::Ramp).await?;
        self.view.timed("profiling", length(mode).as_millis() as u64);
        match Recording::start(mode, &self.setup.osd_pids()) {
            Err(why) => self.profiled = Some(Err(why)),
            Ok(mut recording) => {
                while !recording.has_ended() {
                    let pause = self.pause();
                    self.shard.sleep(pause).await;
                    self.look().await?;
                }
                self.profiled = Some(recording.finish());
            }
        }
        Ok(())
    }
}
