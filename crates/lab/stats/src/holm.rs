//! Many tests at once.

/// Adjusts p values so that the chance of even one false "different" in the whole set stays below the level: Holm's
/// step-down method (S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6, 1979). Returned in the order given; what is no number counts as 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let value = |at: usize| if p[at].is_nan() { 1.0 } else { p[at] };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(value(at) * (p.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By hand, and as R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")` gives: 0.03 0.06 0.06 0.02.
    #[test]
    fn known_values() {
        let got = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, want) in got.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - want).abs() < 1e-12, "{got} against {want}");
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[f64::NAN, 0.9]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn between_the_value_and_bonferroni(p in proptest::collection::vec(0.0f64..=1.0, 1..20)) {
            let adjusted = holm(&p);
            for (before, after) in p.iter().zip(&adjusted) {
                prop_assert!(before <= after && *after <= (before * p.len() as f64).min(1.0) + 1e-12);
            }
            for (a, b) in (0..p.len()).flat_map(|a| (0..p.len()).map(move |b| (a, b))) {
                prop_assert!(p[a] > p[b] || adjusted[a] <= adjusted[b], "the order changed");
            }
        }
    }
}
