//! Why a placement could not be computed.

/// Why a rule gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrushError {
    /// The map has no such rule.
    #[error("crush map has no rule {rule}")]
    NoRule {
        /// The slot asked for.
        rule: usize,
    },
    /// The rule looked at too many items: the tree has a cycle, or a `tries` value is absurd.
    #[error(
        "crush rule looked at more than {limit} items for one placement: check the map for cycles and its tries"
    )]
    Overworked {
        /// The limit.
        limit: u64,
    },
}
