//! Any answer as XML, as Ceph's formatter prints it. Names that JSON does not show come from tables: that of the whole, and those of
//! the elements of lists.

use serde_json::{Number, Value};

use super::table::general;

/// The name of a command's whole answer, where it is not the command's own.
const WHOLE: &[(&str, &str)] = &[
    ("config get", "config"),
    ("config dump", "config"),
    ("config log", "changesets"),
    ("config-key list", "keys"),
    ("config-key ls", "keys"),
    ("df", "stats"),
    ("log last", "tail"),
    ("mgr dump", "mgrmap"),
    ("mon dump", "monmap"),
    ("mon metadata", "mon_metadata"),
    ("mon stat", "monmap"),
    ("node ls", "nodes"),
    ("osd blocked-by", "pg_info"),
    ("osd blocklist ls", "blocklist"),
    ("osd crush class ls", "crush_classes"),
    ("osd crush dump", "crush_map"),
    ("osd crush rule dump", "rules"),
    ("osd crush rule ls", "rules"),
    ("osd crush tree", "crush_tree"),
    ("osd dump", "osdmap"),
    ("osd erasure-code-profile get", "profile"),
    ("osd erasure-code-profile ls", "erasure-code-profiles"),
    ("osd find", "osd_location"),
    ("osd ls", "osds"),
    ("osd lspools", "pools"),
    ("osd map", "osd_map"),
    ("osd metadata", "osd_metadata"),
    ("osd perf", "pg_info"),
    ("osd pool get", "pool"),
    ("osd pool ls", "pools"),
    ("osd pool stats", "pool_stats"),
    ("osd reweight-by-pg", "reweight_by_utilization"),
    ("osd reweight-by-utilization", "reweight_by_utilization"),
    ("osd stat", "osdmap"),
    ("osd test-reweight-by-pg", "reweight_by_utilization"),
    ("osd test-reweight-by-utilization", "reweight_by_utilization"),
    ("pg dump", "pg_info"),
    ("pg dump_stuck", "pg_info"),
    ("pg ls", "pg_info"),
    ("pg ls-by-osd", "pg_info"),
    ("pg ls-by-pool", "pg_info"),
    ("pg ls-by-primary", "pg_info"),
    ("pg map", "pg_map"),
    ("pg stat", "pg_info"),
    ("service dump", "service_map"),
    ("time-sync-status", "time_sync"),
    ("versions", "version"),
];

/// The names of the elements of lists: of those of this name, or of those that are a part of something, or of nothing.
const ELEMENTS: &[(&str, &str)] = &[
    ("/osds", "osd"),
    ("/pool_stats", "pool"),
    ("acting", "osd"),
    ("addrvec", "addr"),
    ("avail_no_missing", "shard"),
    ("blocked_by", "osd"),
    ("blocklist", "entry"),
    ("children", "child"),
    ("detail", "detail_item"),
    ("features/client", "group"),
    ("features/mon", "group"),
    ("features/osd", "group"),
    ("hb_peers", "osd"),
    ("mapping/osds", "osd"),
    ("network_ping_times", "entry"),
    ("nodes", "item"),
    ("num_pg_by_state", "state"),
    ("object_location_counts", "entry"),
    ("osd_blocked_by_infos", "osd"),
    ("osd_perf_infos", "osd"),
    ("osd_xinfo", "xinfo"),
    ("osds", "osd_info"),
    ("osds/osds", "osd"),
    ("persistent", "bit_flag"),
    ("pg_map/acting", "acting_osd"),
    ("pg_map/up", "up_osd"),
    ("pg_temp", "osds"),
    ("pg_upmap", "mapping"),
    ("pg_upmap_items", "mapping"),
    ("pgs_by_state", "pgs_by_state_element"),
    ("pool_snaps", "pool_snap_info"),
    ("pool_statfs", "item"),
    ("crush_classes", "class"),
    ("mon_metadata", "mon"),
    ("quorum", "mon"),
    ("quorum_mon", "bit_flag"),
    ("quorum_names", "mon"),
    ("removed_snaps", "interval"),
    ("reweights", "osd"),
    ("state", "state"),
    ("status/quorum", "rank"),
    ("status/quorum_names", "id"),
    ("stray", "item"),
    ("tail", "entry"),
    ("up", "osd"),
];

/// Kinds of daemons: lists that are called by a host are of these.
const DAEMONS: [&str; 4] = ["mds", "mgr", "mon", "osd"];

/// The answer of a command, in one line or with a line for each part.
pub(crate) fn render(prefix: &str, value: &Value, is_pretty: bool) -> String {
    let own = prefix.rsplit(' ').next().unwrap_or_default();
    let name = find(WHOLE, prefix).unwrap_or(own);
    let mut out = Xml { text: String::new(), is_pretty, depth: 0 };
    out.put(("", name), value);
    if !is_pretty {
        out.text.push('\n');
    }
    out.text
}

fn find<'a>(table: &'a [(&str, &str)], key: &str) -> Option<&'a str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

/// The name of an element of the list `list`, which is a part of `parent`.
fn element<'a>(parent: &'a str, list: &'a str, value: &Value) -> &'a str {
    match list {
        "pools" if value.is_string() => "pool_name",
        "rules" if value.is_string() => "name",
        _ if DAEMONS.contains(&parent) && find(ELEMENTS, list).is_none() => parent,
        _ => find(ELEMENTS, &format!("{parent}/{list}"))
            .or_else(|| find(ELEMENTS, list))
            .or_else(|| list.strip_suffix('s'))
            .unwrap_or("item"),
    }
}

struct Xml {
    text: String,
    is_pretty: bool,
    depth: usize,
}

impl Xml {
    /// A value of this name, which is a part of something of that name.
    fn put(&mut self, (parent, name): (&str, &str), value: &Value) {
        let printed = name.replace(' ', "_");
        self.indent();
        self.text.push_str(&format!("<{printed}>"));
        match value {
            Value::Object(fields) => {
                self.part(|xml| fields.iter().for_each(|(key, value)| xml.put((name, key), value)));
            }
            Value::Array(list) => self.part(|xml| {
                list.iter().for_each(|value| xml.put((name, element(parent, name, value)), value))
            }),
            Value::String(text) => escape(&mut self.text, text),
            Value::Number(number) => self.text.push_str(&digits(number)),
            Value::Bool(is) => self.text.push_str(if *is { "true" } else { "false" }),
            Value::Null => {}
        }
        self.text.push_str(&format!("</{printed}>"));
        self.end_line();
    }

    fn part(&mut self, inner: impl FnOnce(&mut Xml)) {
        self.end_line();
        self.depth += 1;
        inner(self);
        self.depth -= 1;
        self.indent();
    }

    fn indent(&mut self) {
        if self.is_pretty {
            self.text.extend(std::iter::repeat_n(' ', self.depth));
        }
    }

    fn end_line(&mut self) {
        if self.is_pretty {
            self.text.push('\n');
        }
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if c.is_ascii_control() && c != '\n' && c != '\t' => {
                out.push_str(&format!("&#x{:02x};", c as u32))
            }
            c => out.push(c),
        }
    }
}

/// A whole number as it is, another one with as many digits as tell any two of them apart.
fn digits(number: &Number) -> String {
    let part = number.as_f64().filter(|_| number.is_f64());
    part.map_or_else(|| number.to_string(), |part| general(part, 17))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_have_the_names_that_a_real_monitor_gives_them() {
        let line = |prefix: &str, value: Value| render(prefix, &value, false);
        assert_eq!(
            line(
                "status",
                json!({ "quorum": [0], "quorum_names": ["a"], "mgrmap": { "modules": ["iostat"] } })
            ),
            "<status><mgrmap><modules><module>iostat</module></modules></mgrmap><quorum><rank>0</rank></quorum>\
             <quorum_names><id>a</id></quorum_names></status>\n"
        );
        assert_eq!(
            line("osd tree", json!({ "nodes": [{ "id": -1, "children": [2, 1] }], "stray": [] })),
            "<tree><nodes><item><children><child>2</child><child>1</child></children><id>-1</id></item></nodes>\
             <stray></stray></tree>\n"
        );
        assert_eq!(
            line(
                "osd dump",
                json!({ "osds": [{ "state": ["up"] }], "pg_temp": [{ "osds": [1] }], "pools": [{}] })
            ),
            "<osdmap><osds><osd_info><state><state>up</state></state></osd_info></osds>\
             <pg_temp><osds><osds><osd>1</osd></osds></osds></pg_temp><pools><pool></pool></pools></osdmap>\n"
        );
        assert_eq!(line("osd pool ls", json!(["a"])), "<pools><pool_name>a</pool_name></pools>\n");
        assert_eq!(line("osd ls", json!([0])), "<osds><osd>0</osd></osds>\n");
        assert_eq!(line("osd crush rule ls", json!(["r"])), "<rules><name>r</name></rules>\n");
        assert_eq!(line("osd crush rule dump", json!([{}])), "<rules><rule></rule></rules>\n");
        assert_eq!(line("osd pool stats", json!([{}])), "<pool_stats><pool></pool></pool_stats>\n");
        assert_eq!(
            line("node ls", json!({ "osd": { "vm": [0] } })),
            "<nodes><osd><vm><osd>0</osd></vm></osd></nodes>\n"
        );
        assert_eq!(
            line("features", json!({ "mon": [{}] })),
            "<features><mon><group></group></mon></features>\n"
        );
        assert_eq!(
            line("pg map", json!({ "up": [1], "acting": [1] })),
            "<pg_map><acting><acting_osd>1</acting_osd></acting><up><up_osd>1</up_osd></up></pg_map>\n"
        );
        assert_eq!(
            line("pg ls", json!({ "pg_stats": [{ "up": [1] }] })),
            "<pg_info><pg_stats><pg_stat><up><osd>1</osd></up></pg_stat></pg_stats></pg_info>\n"
        );
        assert_eq!(
            line("pg dump", json!({ "pg_map": { "osd_stats": [{}], "pool_stats": [{}] } })),
            "<pg_info><pg_map><osd_stats><osd_stat></osd_stat></osd_stats><pool_stats><pool_stat></pool_stat>\
             </pool_stats></pg_map></pg_info>\n"
        );
    }

    #[test]
    fn pretty_has_a_line_for_each_part() {
        let value = json!({ "a b": { "none": [], "text": "0'0 <&>\u{1}" }, "z": null });
        let wanted = "<health>\n <a_b>\n  <none>\n  </none>\n  <text>0&apos;0 &lt;&amp;&gt;&#x01;</text>\n </a_b>\n <z></z>\n</health>\n";
        assert_eq!(render("health", &value, true), wanted);
    }

    #[test]
    fn numbers_have_all_their_digits() {
        let shown =
            |value: Value| render("df", &value, false).replace("<stats>", "").replace("</stats>\n", "");
        assert_eq!(shown(json!(0.949_999_988_079_071)), "0.94999998807907104");
        assert_eq!(shown(json!(0.05)), "0.050000000000000003");
        assert_eq!(shown(json!(1.0)), "1");
        assert_eq!(shown(json!(0.0)), "0");
        assert_eq!(shown(json!(250.333_328_247_070_3)), "250.33332824707031");
        assert_eq!(shown(json!(1.5e-7)), "1.4999999999999999e-07");
        assert_eq!(shown(json!(1e20)), "1e+20");
        assert_eq!(shown(json!(-3)), "-3");
        assert_eq!(shown(json!(u64::MAX)), "18446744073709551615");
        assert_eq!(shown(json!(true)), "true");
    }
}
