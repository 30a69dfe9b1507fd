//! Repeats of one point that disagree on what limited it.

use crate::archive::{PointKind, PointResult, Run};
use crate::lists::grouped;

/// The limiter of the repeats of one point, and why. Where they disagree, each limiter with its number, the most frequent first
/// (`OSD 2 of 3, CLIENT 1`), and the reason of each. `None` if no repeat has one.
pub fn limiter<'a>(repeats: impl IntoIterator<Item = &'a PointResult>) -> Option<(String, String)> {
    let named = repeats.into_iter().filter_map(|result| {
        let carmine = &result.carmine;
        Some((carmine.verdict.as_deref()?, carmine.verdict_reason.as_str()))
    });
    let mut limiters: Vec<(&str, Vec<&str>)> = grouped(named);
    limiters.sort_by_key(|(_, reasons)| std::cmp::Reverse(reasons.len()));
    if let [(name, reasons)] = limiters.as_slice() {
        return Some(((*name).to_owned(), reasons[0].to_owned()));
    }
    let all: usize = limiters.iter().map(|(_, reasons)| reasons.len()).sum();
    let counted = limiters.iter().enumerate().map(|(at, (name, reasons))| match at {
        0 => format!("{name} {} of {all}", reasons.len()),
        _ => format!("{name} {}", reasons.len()),
    });
    let counted: Vec<String> = counted.collect();
    let reasons: Vec<String> =
        limiters.iter().map(|(name, reasons)| format!("{name}: {}", reasons[0])).collect();
    (!limiters.is_empty()).then(|| (counted.join(", "), reasons.join("; ")))
}

/// The points of a run whose repeats disagree on their limiter, each with its limiters as [`limiter`] writes them.
pub fn disagreements(run: &Run) -> Vec<(String, String)> {
    let planned = run.points.iter().filter(|p| p.kind == PointKind::Point && run.is_done(p));
    let results = planned.filter_map(|point| Some((point.config.asked(), (point, run.result(point).ok()??))));
    let points = grouped(results).into_iter();
    let told = points.filter_map(|(_, repeats)| {
        let (limiters, _) = limiter(repeats.iter().map(|(_, result)| result))?;
        // The stem without the number of the repeat.
        let (name, _) = repeats[0].0.stem.rsplit_once("_r")?;
        limiters.contains(',').then(|| (name.to_owned(), limiters))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeats_that_disagree_name_all_limiters() {
        let result = |limiter: Option<&str>| -> PointResult {
            let carmine = json!({"verdict": limiter, "verdict_reason": "why"});
            serde_json::from_value(json!({ "carmine": carmine })).unwrap()
        };
        let all = |names: &[Option<&str>]| {
            let results: Vec<PointResult> = names.iter().map(|name| result(*name)).collect();
            limiter(&results)
        };
        assert_eq!(all(&[Some("OSD"), Some("OSD")]), Some(("OSD".into(), "why".into())));
        let (mixed, why) = all(&[Some("CLIENT"), Some("OSD"), Some("OSD")]).unwrap();
        assert_eq!((mixed.as_str(), why.as_str()), ("OSD 2 of 3, CLIENT 1", "OSD: why; CLIENT: why"));
        assert_eq!(all(&[None]), None);
    }
}
