//! Services that have registered (`rados_service_register` of librados): they are known for as long as their sessions last.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::UTime;
use carmine_wire::mgr_msg::MgrOpen;
use serde_json::{Map, Value, json};

use super::dump::time;
use crate::command::View;

/// A process that offers a service.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) told: MgrOpen,
    pub(crate) gid: u64,
    pub(crate) addr: String,
    pub(crate) since: UTime,
}

/// Most bytes that a process may say of itself: they are kept.
const TOLD_BYTES_MAX: usize = 64 << 10;

impl Daemon {
    /// It offers a service, and can be listed.
    pub(crate) fn is_service(&self) -> bool {
        let MgrOpen { name, service, metadata } = &self.told;
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len() + 1).sum();
        !service.is_empty() && name.len() + service.len() + bytes <= TOLD_BYTES_MAX
    }
}

/// By service.
fn by_service<'a>(view: &View<'a>) -> BTreeMap<&'a str, Vec<&'a Daemon>> {
    let mut all: BTreeMap<&str, Vec<&Daemon>> = BTreeMap::new();
    for daemon in view.services {
        all.entry(&daemon.told.service).or_default().push(daemon);
    }
    all
}

/// `service dump`.
pub(crate) fn json(view: &View<'_>) -> Value {
    let one = |daemon: &&Daemon| {
        let shown = json!({
            "start_epoch": 1, "start_stamp": time(daemon.since), "gid": daemon.gid, "addr": daemon.addr,
            "metadata": daemon.told.metadata.iter().cloned().collect::<BTreeMap<_, _>>(), "task_status": {},
        });
        (daemon.told.name.clone(), shown)
    };
    let services = by_service(view).into_iter().map(|(service, daemons)| {
        let mut shown: Map<String, Value> = daemons.iter().map(one).collect();
        shown.insert("summary".into(), json!(""));
        (service.to_owned(), json!({ "daemons": shown }))
    });
    let services: Map<String, Value> = services.collect();
    json!({ "epoch": 1, "modified": time(view.map.created), "services": services })
}

/// `service status`: no process tells its state after it has registered.
pub(crate) fn status_json(view: &View<'_>) -> Value {
    let one = |daemon: &&Daemon| {
        let since = time(daemon.since);
        (daemon.told.name.clone(), json!({ "status_stamp": since, "last_beacon": since, "status": {} }))
    };
    let services = by_service(view).into_iter();
    let all = services
        .map(|(name, daemons)| (name.to_owned(), json!(daemons.iter().map(one).collect::<Map<_, _>>())));
    Value::Object(all.collect())
}

/// `laundry: 16 portals active (1 hosts, 3 zones)`, by what the processes say of themselves.
pub(crate) fn lines(view: &View<'_>) -> Vec<String> {
    let line = |(service, daemons): (&str, Vec<&Daemon>)| {
        let values = |key: &str| -> BTreeSet<&str> {
            let metadata = daemons.iter().flat_map(|daemon| &daemon.told.metadata);
            metadata.filter(|(known, _)| known == key).map(|(_, value)| value.as_str()).collect()
        };
        let kind = values("daemon_type").first().copied().unwrap_or("daemon").to_owned();
        let s = if daemons.len() == 1 { "" } else { "s" };
        let groups = [("hosts", values("hostname").len()), ("zones", values("zone_id").len())];
        let groups: Vec<String> =
            groups.iter().filter(|(_, n)| *n > 0).map(|(word, n)| format!("{n} {word}")).collect();
        let groups = if groups.is_empty() { String::new() } else { format!(" ({})", groups.join(", ")) };
        format!("{service}: {} {kind}{s} active{groups}", daemons.len())
    };
    by_service(view).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(service: &str, value: &str) -> Daemon {
        let metadata = vec![("key".to_owned(), value.to_owned())];
        let told = MgrOpen { name: "a".into(), service: service.into(), metadata };
        Daemon { told, gid: 1, addr: String::new(), since: UTime::ZERO }
    }

    #[test]
    fn only_services_of_limited_words_are_kept() {
        assert!(daemon("laundry", "value").is_service());
        assert!(!daemon("", "value").is_service());
        assert!(!daemon("laundry", &"x".repeat(TOLD_BYTES_MAX)).is_service());
    }
}
