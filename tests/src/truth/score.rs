//! How often the instrument was right, as a table and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use carmine_testkit::Load;
use serde_json::{Value, json};

/// How often one thing that was put in was called by which word.
#[derive(Clone, Debug)]
pub struct Score {
    pub name: &'static str,
    /// How it was made.
    pub what: String,
    /// The words that are right.
    pub expected: Vec<&'static str>,
    /// The part of the runs that must be right.
    pub part_min: f64,
    /// Runs by the word that they gave.
    named: BTreeMap<String, usize>,
    /// Word and reason of each run that gave another word.
    wrong: Vec<String>,
    /// Why nothing was run.
    missing: Option<String>,
    /// What others did on the machine, if they did so much that a wrong word proves nothing.
    busy: Option<String>,
}

impl Score {
    /// Nothing has run yet.
    pub fn new(
        name: &'static str,
        what: impl Into<String>,
        expected: &[&'static str],
        part_min: f64,
    ) -> Score {
        let (named, wrong, missing, busy) = Default::default();
        Score { name, what: what.into(), expected: expected.to_vec(), part_min, named, wrong, missing, busy }
    }

    /// Counts a run.
    pub fn add(&mut self, word: &str, why: &str) {
        *self.named.entry(word.to_owned()).or_default() += 1;
        if !self.expected.contains(&word) {
            self.wrong.push(format!("{word}: {why}"));
        }
    }

    /// It cannot be made on this machine, so the limit does not hold.
    pub fn cannot_run(&mut self, why: String) {
        self.missing = Some(why);
    }

    /// Notes the load of others during the runs.
    pub fn note_others(&mut self, others: Load) {
        self.busy = others.is_busy().then(|| others.to_string());
    }

    /// Too few runs were right, and the machine was too busy to tell why.
    fn is_too_busy(&self) -> bool {
        self.runs() > 0 && !self.holds() && self.busy.is_some()
    }

    fn runs(&self) -> usize {
        self.named.values().sum()
    }

    fn right(&self) -> usize {
        self.expected.iter().filter_map(|word| self.named.get(*word)).sum()
    }

    /// Runs that must be right.
    fn right_min(&self) -> usize {
        (self.part_min * self.runs() as f64 - 1e-9).ceil() as usize
    }

    /// As many runs were right as must be.
    pub fn holds(&self) -> bool {
        self.runs() > 0 && self.right() >= self.right_min()
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "what": self.what, "expected": self.expected, "named": self.named, "runs": self.runs(),
            "right": self.right(), "right_min": self.right_min(), "holds": self.holds(), "wrong": self.wrong,
            "missing": self.missing, "too_busy": self.is_too_busy(),
        })
    }

    /// `20 of 20 (19)`.
    fn result(&self) -> String {
        let fails = match self.holds() {
            true => "",
            false if self.is_too_busy() => ": too busy to tell",
            false => ": too few",
        };
        format!("{} of {} (at least {}){fails}", self.right(), self.runs(), self.right_min())
    }
}

/// All scores: of comparisons, of faults, and of the same loads without them.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub comparisons: Vec<Score>,
    pub faults: Vec<Score>,
    pub controls: Vec<Score>,
}

impl Truth {
    fn scores(&self) -> impl Iterator<Item = &Score> {
        self.comparisons.iter().chain(&self.faults).chain(&self.controls)
    }

    /// Every limit holds that this machine was not too busy to tell.
    pub fn holds(&self) -> bool {
        self.scores().all(|score| score.holds() || score.is_too_busy())
    }

    /// All that is known.
    pub fn json(&self) -> Value {
        let scores = |scores: &[Score]| scores.iter().map(Score::json).collect::<Vec<_>>();
        json!({
            "comparisons": scores(&self.comparisons), "faults": scores(&self.faults), "controls": scores(&self.controls),
            "holds": self.holds(),
        })
    }

    /// The confusion matrices as Markdown, padded so that they can be read in a terminal; then what was named wrongly.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let parts = [("compared", &self.comparisons), ("fault", &self.faults), ("without", &self.controls)];
        for (head, scores) in parts {
            if !scores.is_empty() {
                text.push_str(&matrix(head, scores));
                text.push('\n');
            }
        }
        for score in self.scores() {
            score
                .missing
                .iter()
                .for_each(|why| text.push_str(&format!("- {} was not run: {why}\n", score.name)));
            score.wrong.iter().for_each(|why| text.push_str(&format!("- {}: {why}\n", score.name)));
            let busy = score.busy.iter().filter(|_| score.is_too_busy());
            busy.for_each(|why| text.push_str(&format!("- {}: {why}\n", score.name)));
        }
        let busy = self.scores().filter(|score| score.is_too_busy()).count();
        if busy > 0 {
            text.push_str(&format!("{busy} that this machine is too busy to tell\n"));
        }
        text
    }
}

/// Rows: what was put in. Columns: what it was called; the right words are bold.
fn matrix(head: &str, scores: &[Score]) -> String {
    let words: BTreeSet<&str> = scores
        .iter()
        .flat_map(|s| s.named.keys().map(String::as_str).chain(s.expected.iter().copied()))
        .collect();
    let mut rows = vec![vec![head.to_owned()]];
    rows[0].extend(words.iter().map(ToString::to_string));
    rows[0].extend(["correct".to_owned(), "how it is made".to_owned()]);
    for score in scores {
        let cell = |word: &&str| match (score.named.get(*word), score.expected.contains(word)) {
            (None, _) => String::new(),
            (Some(runs), true) => format!("**{runs}**"),
            (Some(runs), false) => runs.to_string(),
        };
        let mut row = vec![score.name.to_owned()];
        row.extend(words.iter().map(cell));
        row.extend([score.result(), score.what.clone()]);
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|at| rows.iter().map(|r| r[at].chars().count()).max().unwrap_or(0).max(3))
        .collect();
    rows.insert(1, widths.iter().map(|width| "-".repeat(*width)).collect());
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("| {cell:width$} "));
        cells.collect::<String>() + "|\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(name: &'static str, expected: &'static str, part_min: f64, named: &[(&str, usize)]) -> Score {
        let mut score = Score::new(name, "somehow", &[expected], part_min);
        for (word, runs) in named {
            (0..*runs).for_each(|_| score.add(word, "because"));
        }
        score
    }

    #[test]
    fn a_limit_is_a_part_of_the_runs_that_were_made() {
        for (right, wrong, part, holds) in [
            (19, 1, 0.95, true),
            (18, 2, 0.95, false),
            (2, 0, 0.95, true),
            (1, 1, 0.95, false),
            (195, 5, 0.975, true),
        ] {
            let score = score("quota", "QUOTA", part, &[("QUOTA", right), ("OSD", wrong)]);
            assert_eq!(score.holds(), holds, "{}", score.result());
        }
        let none = score("quota", "QUOTA", 0.95, &[]);
        assert!(!none.holds(), "no runs prove nothing");
    }

    #[test]
    fn the_matrix_has_a_row_for_each_fault_and_names_what_was_wrong() {
        let mut missing = score("slow-drive", "DEVICE", 0.95, &[]);
        missing.cannot_run("no cgroup".to_owned());
        let faults = vec![score("quota", "QUOTA", 0.95, &[("QUOTA", 1), ("OSD", 1)]), missing];
        let truth = Truth { faults, ..Truth::default() };
        let text = truth.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("| fault      | DEVICE | OSD | QUOTA | correct"), "{text}");
        assert!(
            lines[2].starts_with("| quota      |        | 1   | **1** | 1 of 2 (at least 2): too few"),
            "{text}"
        );
        assert!(text.ends_with("- quota: OSD: because\n- slow-drive was not run: no cgroup\n"), "{text}");
        assert!(lines[0].len() == lines[2].len() && !truth.holds());
        assert_eq!(truth.json()["faults"][0]["named"]["OSD"], 1);
    }
}
