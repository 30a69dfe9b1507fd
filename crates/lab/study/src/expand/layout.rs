//! Names of the prefilled folders.

use crate::archive::{Config, stem_word};
use crate::commands::is_peer;
use crate::plan::{Role, axis};

/// The folder that a configuration uses: every axis that needs another one is in its name.
pub fn layout_name(config: &Config) -> String {
    let show = |name: &str| stem_word(&config.show(name).unwrap_or_default());
    let mut text = format!("{}_{}osd_size{}", show("store"), show("osds"), show("pool_size"));
    for (name, value) in &config.0 {
        let head = matches!(name.as_str(), "store" | "osds" | "pool_size");
        let word = config.show(name).unwrap_or_default();
        // Settings of a peer make no other folder of Carmine's own.
        let of_peer = name == "peer_build" || name.starts_with("peer_opt.");
        let plain = name == "peer" && value == "none" || of_peer && !is_peer(config);
        if !head && !plain && axis(name).is_some_and(|axis| axis.role == Role::Layout) {
            text.push_str(&format!("_{}{}", stem_word(name), stem_word(&word)));
        }
    }
    text
}

/// What differs between two starts of the OSDs: everything but the load and labels.
pub(crate) fn start_key(config: &Config) -> Config {
    let stays = |name: &str| axis(name).is_some_and(|axis| matches!(axis.role, Role::Layout | Role::Start));
    Config(config.0.iter().filter(|(name, _)| stays(name)).map(|(n, v)| (n.clone(), v.clone())).collect())
}
