//! A result's record of a flamegraph of the OSDs.

use serde::{Deserialize, Serialize};

use crate::stages::StageShare;

carmine_types::words! {
    /// The kind of time that a flamegraph shows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProfileMode: "kind of profile" {
        /// Where the OSDs' threads spend CPU time.
        OnCpu = "oncpu",
        /// Where they wait without a CPU, and for how long.
        OffCpu = "offcpu",
    }
}

/// A function and its share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotFrame {
    pub name: String,
    /// Of all samples, or of all time off CPU.
    pub percent: f64,
}

/// The object `carmine.profile` of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub mode: ProfileMode,
    /// Name of the flamegraph's file, beside the result; `None` if there is none.
    pub svg: Option<String>,
    /// Why there is none, and what to do.
    pub missing: Option<String>,
    /// Stacks that were taken: samples on a CPU, or times that a thread left one.
    pub stacks: u64,
    /// On a CPU: the functions that ran; off it: those of the program that waited. The most first.
    pub hottest: Vec<HotFrame>,
    /// On a CPU: the stages of an operation that ran. The remainder to 100 % belongs to no stage.
    #[serde(default)]
    pub stages: Vec<StageShare>,
}

impl Profile {
    /// The first functions, such as `crc32c 12 %, memcpy 8 %`.
    pub fn hot(&self, count: usize) -> String {
        let hot = self.hottest.iter().take(count).map(|f| format!("{} {:.0} %", f.name, f.percent));
        hot.collect::<Vec<_>>().join(", ")
    }

    /// A profile that could not be made.
    pub fn missing(mode: ProfileMode, why: String) -> Profile {
        Profile { mode, svg: None, missing: Some(why), stacks: 0, hottest: Vec::new(), stages: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_modes() {
        for mode in [ProfileMode::OnCpu, ProfileMode::OffCpu] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.to_string());
        }
        assert!("cpu".parse::<ProfileMode>().unwrap_err().to_string().contains("offcpu"));
    }
}
