//! Admin commands that only this program can answer: how the OSD was configured and built, and load from within.

use std::rc::Rc;
use std::sync::Arc;

use carmine_osd::{AdminAnswer, AdminHook, OsdShard};
use carmine_testbed::Plan;
use serde_json::{Value, json};

use super::Known;
use super::load::BenchHook;
use carmine_osd_daemon::Memory;

/// The commands of an OSD that runs by `plan`.
pub(super) fn hook(plan: Arc<Plan>, known: Known) -> Box<dyn AdminHook> {
    Box::new(Commands { plan, known })
}

struct Commands {
    plan: Arc<Plan>,
    known: Known,
}

impl AdminHook for Commands {
    fn answer(&self, osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Option<AdminAnswer> {
        let answer = match prefix {
            "config show" => config(&self.plan, osd.config.id.0),
            "dump_store" => json!(self.known.facts.as_deref()),
            "git_version" => json!({ "git_version": carmine_daemon::build::GIT_HASH }),
            _ => return BenchHook.answer(osd, prefix, question),
        };
        Some(Box::pin(async move { Ok(answer) }))
    }

    fn metadata(&self) -> Vec<(String, String)> {
        self.known.metadata.to_vec()
    }

    fn commands(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("config show", "the options that this OSD runs with"),
            (
                "dump_store",
                "the drives of data, log and database, and how writes become durable; null: in memory",
            ),
            ("git_version", "the commit that this program was built from; + if files differed from it"),
        ]
    }
}

/// The plan without its grid, of which only this OSD's row is shown; and how the memory is divided.
fn config(plan: &Plan, osd: u32) -> Value {
    let mut config = serde_json::to_value(plan).unwrap_or_default();
    let memory = Memory::of(plan);
    if let Value::Object(map) = &mut config {
        let grid = map.remove("grid").unwrap_or_default();
        map.insert("osd".into(), osd.into());
        map.insert("cpus".into(), grid["osds"][osd as usize].clone());
        map.insert(
            "memory".into(),
            json!({
                "arena_bytes_per_shard": memory.arena_per_shard,
                "onodes_bytes_per_shard": memory.onodes_per_shard,
                "kv_cache_bytes": memory.kv_cache,
                "kv_write_buffer_bytes": memory.kv_write_buffer,
            }),
        );
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    #[test]
    fn the_configuration_names_this_osd_only() {
        let machine = Topology::from_short("1x8x1").unwrap();
        let wish = Wish { osds: Some(2), poll: Some("sleep".into()), ..Wish::default() };
        let shown = config(&Plan::new(&wish, &machine, "f").unwrap(), 1);
        assert_eq!((&shown["osd"], &shown["poll"]), (&json!(1), &json!("sleep")));
        assert!(shown["cpus"].is_object() && shown.get("grid").is_none(), "{shown}");
        assert!(shown["memory"]["kv_cache_bytes"].as_u64().unwrap() > 0);
    }
}
