//! Several results in one table, and what they say in words.

use serde_json::Value;

use crate::insight::words;

const HEADER: [&str; 11] = [
    "result",
    "rw",
    "IOPS",
    "MB/s",
    "p50 us",
    "p99 us",
    "IOPS/core alloc",
    "used",
    "busy",
    "machine us/op",
    "verdict",
];

/// A table of result files: (name, content), and below it a line for each that says what bounded it. What a file does not
/// have is `-`.
pub fn compare(results: &[(String, Value)]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(results.iter().flat_map(|(name, value)| result_rows(name, value)));
    let mut widths = [0; HEADER.len()];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }
    let mut text = String::new();
    for row in &rows {
        // Words to the left, numbers to the right.
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            0 | 1 | 10 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&words(results));
    text
}

/// A row for each direction that has operations; one empty row if none has.
fn result_rows(name: &str, value: &Value) -> Vec<[String; HEADER.len()]> {
    let job = &value["jobs"][0];
    let used: Vec<&str> =
        ["read", "write"].into_iter().filter(|d| job[*d]["total_ios"].as_u64().unwrap_or(0) > 0).collect();
    let directions = if used.is_empty() { vec!["-"] } else { used };
    directions.into_iter().map(|direction| row(name, value, direction)).collect()
}

fn row(name: &str, value: &Value, direction: &str) -> [String; HEADER.len()] {
    let stats = &value["jobs"][0][direction];
    let carmine = &value["carmine"];
    let percentile = |p: &str| number(&stats["clat_ns"]["percentile"][p], 1e-3, 0);
    let per_core = &carmine["iops_per_core"];
    let word = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let rw = word(&carmine["load"]["rw"]);
    [
        name.to_owned(),
        if rw == "randrw" { format!("{rw} {direction}") } else { rw },
        number(&stats["iops"], 1.0, 0),
        number(&stats["bw_bytes"], 1e-6, 1),
        percentile("50.000000"),
        percentile("99.000000"),
        number(&per_core["allocated"], 1.0, 0),
        number(&per_core["used"], 1.0, 0),
        number(&per_core["busy"], 1.0, 0),
        number(&carmine["machine_cpu_us_per_op"], 1.0, 1),
        word(&carmine["verdict"]),
    ]
}

fn number(value: &Value, factor: f64, digits: usize) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{:.digits$}", n * factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_results_and_of_rubbish() {
        let direction = json!({"total_ios": 5, "iops": 1234.4, "bw_bytes": 5_056_000,
            "clat_ns": {"percentile": {"50.000000": 100_000, "99.000000": 900_000}}});
        let result = json!({"jobs": [{"read": {"total_ios": 0}, "write": direction}],
            "carmine": {"load": {"rw": "randwrite"}, "verdict": "SHARED", "machine_cpu_us_per_op": 80.25,
                        "iops_per_core": {"allocated": null, "used": null, "busy": null}}});
        let text = compare(&[("one".into(), result), ("two".into(), json!([1]))]);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1],
            ["one", "randwrite", "1234", "5.1", "100", "900", "-", "-", "-", "80.2", "SHARED"]
        );
        assert_eq!(lines[2], ["two", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"]);
    }
}
