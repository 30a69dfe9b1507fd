//! Findings for people: the worst first, what is absent in one list at the end.

use std::fmt::Write as _;

use carmine_doctor::{Finding, Severity};

/// Width of the column of severities.
const SEVERITY: usize = 5;

pub(super) fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for severity in [Severity::Bad, Severity::Warn, Severity::Info, Severity::Ok] {
        findings.iter().filter(|f| f.severity == severity).for_each(|f| one(&mut text, f));
    }
    let absent: Vec<&Finding> = findings.iter().filter(|f| f.severity == Severity::NotPresent).collect();
    if !absent.is_empty() {
        // Writing to a String does not fail.
        let _ = writeln!(text, "\nnot present on this machine, so not judged:");
        absent.iter().for_each(|f| {
            let _ = writeln!(text, "      {}: {}", title(f), f.is);
        });
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let _ = writeln!(
        text,
        "\n{} bad, {} to warn of, {} to know, {} ok; nothing was changed",
        count(Severity::Bad),
        count(Severity::Warn),
        count(Severity::Info),
        count(Severity::Ok)
    );
    text
}

fn title(finding: &Finding) -> String {
    match &finding.subject {
        Some(subject) => format!("{} of {subject}", finding.topic),
        None => finding.topic.clone(),
    }
}

fn one(text: &mut String, finding: &Finding) {
    let _ = writeln!(text, "{:<SEVERITY$} {}: {}", finding.severity.name(), title(finding), finding.is);
    let mut more = |what: &str, value: &str| {
        let _ = writeln!(text, "{:SEVERITY$}   {what:<7}{value}", "");
    };
    if let Some(better) = &finding.better {
        more("better", better);
    }
    match (&finding.cost, &finding.source) {
        (Some(cost), Some(source)) => more("cost", &format!("{cost} [{source}]")),
        (Some(cost), None) => more("cost", cost),
        // Nothing is claimed that nobody measured.
        (None, _) if finding.severity >= Severity::Warn => more("cost", "no published figure is known"),
        (None, _) => {}
    }
    if let Some(command) = &finding.command {
        more("change", command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, topic: &str) -> Finding {
        let json = serde_json::json!({
            "topic": topic, "subject": null, "severity": severity, "is": "so", "better": "otherwise",
            "cost": null, "source": null, "command": "do it",
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_worst_come_first_and_the_absent_last() {
        let findings =
            [finding(Severity::NotPresent, "a"), finding(Severity::Ok, "b"), finding(Severity::Bad, "c")];
        let text = render(&findings);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in\n{text}"));
        assert!(at("bad   c: so") < at("ok    b: so") && at("ok    b: so") < at("a: so"));
        assert!(text.contains("change do it") && text.contains("no published figure"));
        assert!(text.contains("1 bad, 0 to warn of, 0 to know, 1 ok"));
    }
}
