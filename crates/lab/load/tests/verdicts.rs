//! Recorded points: windows as they were measured, and the verdict that each must have. A file holds `about`, `limiter`, `says`
//! (a part of the reason), `next` (a part of what to try), `window` and `evidence`.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

use carmine_load::verdict::{Evidence, Limiter, verdict};
use carmine_load::window::Window;
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    about: String,
    limiter: Limiter,
    says: String,
    next: String,
    window: Window,
    evidence: Evidence,
}

#[test]
fn recorded_points_have_their_verdicts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verdicts");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let point: Recorded =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let found = verdict(&point.window, &point.evidence);
        let about = format!("{}: {}: {found:?}", path.display(), point.about);
        assert_eq!(found.limiter, point.limiter, "{about}");
        assert!(found.reason.contains(&point.says) && found.next.contains(&point.next), "{about}");
        seen.push(point.limiter);
    }
    let missing: Vec<&Limiter> = Limiter::ALL.iter().filter(|limiter| !seen.contains(limiter)).collect();
    assert!(missing.is_empty(), "no point was recorded for {missing:?}");
}
