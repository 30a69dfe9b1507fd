//! The far end of a load inside an OSD: answers the admin command `load`.

use crate::control::Phase;
use crate::job::JobSetup;
use crate::session::{BenchAction, BenchStatus, Session};

/// A load whose controller has not asked for this long is stopped: nobody is there to end it.
const LEASE_NS: u64 = 15_000_000_000;

/// At most one load inside this process.
#[derive(Debug, Default)]
pub struct BenchHost {
    session: Option<Session>,
    asked_ns: u64,
}

impl BenchHost {
    /// Carries out `request` (a [`BenchAction`] as JSON; other fields are ignored). `start` is called with the pool and
    /// what each of `jobs` jobs needs: job N is to run on shard N.
    ///
    /// # Errors
    /// A request that can't be understood or carried out, in words.
    pub fn handle(
        &mut self,
        request: &serde_json::Value,
        now_ns: u64,
        jobs: u32,
        start: impl FnOnce(&str, Vec<JobSetup>),
    ) -> Result<BenchStatus, String> {
        self.asked_ns = now_ns;
        let action: BenchAction =
            serde::Deserialize::deserialize(request).map_err(|e| format!("bench request: {e}"))?;
        match action {
            BenchAction::Start { mut spec, pool } => {
                if self.session.as_mut().is_some_and(|session| !session.poll().done) {
                    return Err("a load is running in this OSD already; wait for its end".into());
                }
                spec.numjobs = jobs;
                spec.check().map_err(|e| e.to_string())?;
                let (session, setups) = Session::new(&spec, jobs, None);
                self.session = Some(session);
                start(&pool, setups);
            }
            BenchAction::Phase { phase } => self.running()?.control().set_phase(phase),
            BenchAction::Status => {}
        }
        Ok(self.running()?.poll())
    }

    fn running(&mut self) -> Result<&mut Session, String> {
        self.session.as_mut().ok_or_else(|| "no load was started in this OSD".into())
    }

    /// Stops a load that nobody asks for any more; true once there is nothing left to watch.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        let lease_over = now_ns.saturating_sub(self.asked_ns) > LEASE_NS;
        match &mut self.session {
            Some(session) => {
                if lease_over {
                    session.control().set_phase(Phase::Stop);
                    session.control().fail();
                }
                session.poll().done
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LoadSpec;
    use serde_json::json;

    #[test]
    fn one_load_at_a_time_and_not_for_ever() {
        let mut host = BenchHost::default();
        let status = json!({"prefix": "load", "action": "status"});
        assert!(host.handle(&status, 0, 2, |_, _| ()).unwrap_err().contains("no load"));
        let start =
            json!({"prefix": "load", "action": "start", "pool": "bench", "spec": LoadSpec::default()});
        let mut setups = Vec::new();
        assert_eq!(host.handle(&start, 1, 2, |_, jobs| setups = jobs).unwrap().jobs, 2);
        assert!(host.handle(&start, 2, 2, |_, _| ()).unwrap_err().contains("already"));
        let phase = json!({"prefix": "load", "action": "phase", "phase": "ramp"});
        assert_eq!(host.handle(&phase, 3, 2, |_, _| ()).unwrap().phase, Phase::Ramp);
        assert!(!host.expire(LEASE_NS) && setups[0].control.phase() == Phase::Ramp);
        assert!(!host.expire(LEASE_NS + 4) && setups[0].control.phase() == Phase::Stop);
        setups.into_iter().for_each(|setup| setup.abort("gone"));
        assert!(host.expire(LEASE_NS + 5));
        assert!(host.handle(&start, 9, 1, |_, _| ()).is_ok());
        for bad in [json!({"action": "jump"}), json!([]), json!({"action": "start", "spec": {}})] {
            assert!(host.handle(&bad, 9, 1, |_, _| ()).is_err(), "{bad}");
        }
    }
}
