//! Clock rate, temperatures and power, where the machine tells them; virtual machines mostly do not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where this machine's sensors are; found once.
#[derive(Debug, Default)]
pub(super) struct Hardware {
    /// Files of kHz, one for each CPU of the OSDs.
    clocks: Vec<PathBuf>,
    /// Files of millidegrees of processors.
    temperatures: Vec<PathBuf>,
    /// The same of NVMe drives, by controller.
    nvme: Vec<(String, PathBuf)>,
    /// Files of microjoules, one for each processor package.
    energy: Vec<PathBuf>,
    cpuinfo: PathBuf,
    cpus: Vec<usize>,
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map(|e| e.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    paths.sort();
    paths
}

fn number(path: &Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn name_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("name")).unwrap_or_default().trim().to_owned()
}

impl Hardware {
    /// `cpus`: those of the OSDs, whose clock rate matters.
    pub(super) fn find(proc: &Path, sys: &Path, cpus: &[usize]) -> Hardware {
        let clock = |cpu: &usize| sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"));
        let mut found = Hardware {
            clocks: cpus.iter().map(clock).filter(|path| path.exists()).collect(),
            cpuinfo: proc.join("cpuinfo"),
            cpus: cpus.to_vec(),
            ..Hardware::default()
        };
        for folder in entries(&sys.join("class/hwmon")) {
            let input = folder.join("temp1_input");
            match name_of(&folder).as_str() {
                "coretemp" | "k10temp" | "zenpower" | "cpu_thermal" if input.exists() => {
                    found.temperatures.push(input)
                }
                _ => {}
            }
        }
        for folder in entries(&sys.join("class/nvme")) {
            // hwmonN of the controller: the composite temperature of its SMART log.
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let below = entries(&folder).into_iter().chain(entries(&folder.join("hwmon")));
            let input = below.map(|path| path.join("temp1_input")).find(|path| path.exists());
            found.nvme.extend(input.map(|path| (name, path)));
        }
        let packages =
            entries(&sys.join("class/powercap")).into_iter().filter(|f| name_of(f).starts_with("package"));
        found.energy = packages.map(|f| f.join("energy_uj")).filter(|path| number(path).is_some()).collect();
        found
    }

    /// What is read now: `mhz` (mean of the OSDs' CPUs), `temperature_c` (hottest processor), `nvme_NAME_temperature_c`.
    pub(super) fn read(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        let mhz = self.mhz();
        if !mhz.is_empty() {
            values.insert("mhz".to_owned(), mhz.iter().sum::<f64>() / mhz.len() as f64);
        }
        if let Some(hottest) = self.temperatures.iter().filter_map(|p| number(p)).reduce(f64::max) {
            values.insert("temperature_c".to_owned(), hottest / 1e3);
        }
        for (name, path) in &self.nvme {
            values.extend(number(path).map(|milli| (format!("nvme_{name}_temperature_c"), milli / 1e3)));
        }
        values
    }

    /// Energy of all packages since some moment in joules; `None` where the machine does not tell. It wraps now and then:
    /// take no difference that is negative.
    pub(super) fn joules(&self) -> Option<f64> {
        let known: Vec<f64> = self.energy.iter().filter_map(|p| number(p)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / 1e6)
    }

    fn mhz(&self) -> Vec<f64> {
        if !self.clocks.is_empty() {
            return self.clocks.iter().filter_map(|p| number(p)).map(|khz| khz / 1e3).collect();
        }
        let text = std::fs::read_to_string(&self.cpuinfo).unwrap_or_default();
        let all: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("cpu MHz"))
            .filter_map(|line| line.rsplit(':').next()?.trim().parse().ok())
            .collect();
        self.cpus.iter().filter_map(|cpu| all.get(*cpu).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_leaves_out_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        assert!(Hardware::find(&proc, &sys, &[0, 1]).read().is_empty());
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/cpuinfo", "cpu MHz\t\t: 2000.5\nflags : x\ncpu MHz\t\t: 3000.5\n");
        put("sys/class/hwmon/hwmon0/name", "coretemp\n");
        put("sys/class/hwmon/hwmon0/temp1_input", "51000\n");
        put("sys/class/nvme/nvme0/hwmon1/temp1_input", "38850\n");
        put("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        put("sys/class/powercap/intel-rapl:0/energy_uj", "2500000\n");
        let found = Hardware::find(&proc, &sys, &[1]);
        let values = found.read();
        assert_eq!(values["mhz"], 3000.5);
        assert_eq!((values["temperature_c"], values["nvme_nvme0_temperature_c"]), (51.0, 38.85));
        assert_eq!(found.joules(), Some(2.5));
        put("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3600000\n");
        assert_eq!(Hardware::find(&proc, &sys, &[1]).read()["mhz"], 3600.0);
    }
}
