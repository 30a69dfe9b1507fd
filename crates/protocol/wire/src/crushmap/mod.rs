//! Ceph's CRUSH map: the tree of buckets, the rules that walk it, and its binary form.
//!
//! This module only knows the data. Placement (`do_rule`) and builders are in `carmine-crush`.

mod coding;

use std::collections::BTreeMap;

use carmine_codec::coded;

/// Weight of one (16.16 fixed point).
pub const WEIGHT_ONE: u32 = 0x1_0000;

/// Kind of a bucket, with what only this kind carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketKind {
    /// All items weigh the same.
    Uniform {
        /// Weight of each item.
        item_weight: u32,
    },
    /// Items in a list; weights and running sums from the tail.
    List {
        /// Weight of each item.
        weights: Vec<u32>,
        /// Sum of weights up to and with each item.
        sums: Vec<u32>,
    },
    /// A binary tree of weights; odd nodes are the items.
    Tree {
        /// Weight of each tree node.
        nodes: Vec<u32>,
    },
    /// The first straw bucket, with precomputed straws.
    Straw {
        /// Weight of each item.
        weights: Vec<u32>,
        /// Length factor of each item's straw.
        straws: Vec<u32>,
    },
    /// The current kind: independent draws by weight.
    Straw2 {
        /// Weight of each item.
        weights: Vec<u32>,
    },
}

impl BucketKind {
    /// Algorithm number of the binary form: 1 uniform to 5 straw2.
    pub fn alg(&self) -> u8 {
        match self {
            Self::Uniform { .. } => 1,
            Self::List { .. } => 2,
            Self::Tree { .. } => 3,
            Self::Straw { .. } => 4,
            Self::Straw2 { .. } => 5,
        }
    }
}

/// An inner node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Negative id: `-1 - slot`.
    pub id: i32,
    /// Type number (host, rack, root, ...): a key of `CrushMap::type_names`.
    pub kind_id: u16,
    /// 0 is rjenkins1, the only one.
    pub hash: u8,
    /// Sum of the items' weights.
    pub weight: u32,
    /// Children: devices (>= 0) and buckets (< 0).
    pub items: Vec<i32>,
    /// Algorithm and its data; the vectors are as long as `items`, except a tree's.
    pub kind: BucketKind,
}

impl Bucket {
    /// Weight of the item at that position; 0 if the bucket does not say.
    pub fn item_weight(&self, position: usize) -> u32 {
        let weights = match &self.kind {
            BucketKind::Uniform { item_weight } => {
                return if position < self.items.len() { *item_weight } else { 0 };
            }
            BucketKind::Tree { nodes } => {
                return nodes.get(position.saturating_mul(2) + 1).copied().unwrap_or(0);
            }
            BucketKind::List { weights, .. } | BucketKind::Straw { weights, .. } => weights,
            BucketKind::Straw2 { weights } => weights,
        };
        weights.get(position).copied().unwrap_or(0)
    }
}

/// One step of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStep {
    /// Does nothing.
    Noop,
    /// Start from this bucket or device.
    Take(i32),
    /// Choose `n` items of a type, packed to the front; `n <= 0` means "as many as asked, plus n".
    ChooseFirstn(i32, i32),
    /// Choose `n` items of a type, each position on its own.
    ChooseIndep(i32, i32),
    /// Add the working list to the result.
    Emit,
    /// Like `ChooseFirstn`, then down to one device of each.
    ChooseLeafFirstn(i32, i32),
    /// Like `ChooseIndep`, then down to one device of each.
    ChooseLeafIndep(i32, i32),
    /// Override `choose_total_tries`.
    SetChooseTries(i32),
    /// Override the tries of the recursion to a device.
    SetChooseLeafTries(i32),
    /// Override `choose_local_tries`.
    SetChooseLocalTries(i32),
    /// Override `choose_local_fallback_tries`.
    SetChooseLocalFallbackTries(i32),
    /// Override `chooseleaf_vary_r`.
    SetChooseLeafVaryR(i32),
    /// Override `chooseleaf_stable`.
    SetChooseLeafStable(i32),
    /// An operation this program does not know, or one with an argument that should be unused: kept, and skipped
    /// by the mapper.
    Other {
        /// Operation number.
        op: u32,
        /// First argument.
        arg1: i32,
        /// Second argument.
        arg2: i32,
    },
}

/// How to find the OSDs of a PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number by which pools name it; Pacific keeps it equal to the slot.
    pub ruleset: u8,
    /// Kind of pool it is for: 1 replicated, 3 erasure.
    pub kind: u8,
    /// Smallest pool size it serves.
    pub min_size: u8,
    /// Largest pool size it serves.
    pub max_size: u8,
    /// The steps, in order.
    pub steps: Vec<RuleStep>,
}

carmine_types::defaults! {
    /// Limits and switches of the placement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tunables {
        /// Retries in the same bucket; 0 today.
        pub choose_local_tries: u32,
        /// Retries by permutation; 0 today.
        pub choose_local_fallback_tries: u32,
        /// Retries from the top, 50.
        pub choose_total_tries: u32 = 50,
        /// The recursion to a device tries only once.
        pub chooseleaf_descend_once: u32 = 1,
        /// The recursion's seed depends on the parent's.
        pub chooseleaf_vary_r: u8 = 1,
        /// Version of the straw computation.
        pub straw_calc_version: u8 = 1,
        /// Bit per allowed bucket algorithm.
        pub allowed_bucket_algs: u32 = 54,
        /// A replaced OSD does not move the others.
        pub chooseleaf_stable: u8 = 1,
    }
}

impl Tunables {
    /// The values of maps from before there were tunables ("argonaut").
    pub(crate) fn legacy() -> Self {
        Self {
            choose_local_tries: 2,
            choose_local_fallback_tries: 5,
            choose_total_tries: 19,
            chooseleaf_descend_once: 0,
            chooseleaf_vary_r: 0,
            straw_calc_version: 0,
            // Uniform, list and straw.
            allowed_bucket_algs: 0b1_0110,
            chooseleaf_stable: 0,
        }
    }
}

coded! {
    /// Weights (and ids) to use instead of a bucket's own.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ChooseArg {
        /// One weight vector per position; the last one serves all further positions.
        pub weight_sets: Vec<Vec<u32>>,
        /// Item ids to hash instead of the real ones; empty means the real ones.
        pub ids: Vec<i32>,
    }
}

/// How much of the optional end a binary map has. Older writers stop earlier; a clear order from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Ends after the names.
    Names,
    /// ... after the three `choose_*_tries`.
    Tries,
    /// ... after `chooseleaf_descend_once`.
    DescendOnce,
    /// ... after `chooseleaf_vary_r`.
    VaryR,
    /// ... after `straw_calc_version`.
    StrawCalc,
    /// ... after `allowed_bucket_algs`.
    Algs,
    /// ... after `chooseleaf_stable`.
    Stable,
    /// ... after the device classes.
    Classes,
    /// ... after the choose_args: all of it.
    #[default]
    ChooseArgs,
}

/// A CRUSH map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrushMap {
    /// Highest device id plus one.
    pub max_devices: i32,
    /// Bucket of id `-1 - slot` by slot.
    pub buckets: Vec<Option<Bucket>>,
    /// Rules by slot.
    pub rules: Vec<Option<Rule>>,
    /// Names of bucket types by number; 0 is the device.
    pub type_names: BTreeMap<i32, String>,
    /// Names of buckets and devices by id.
    pub item_names: BTreeMap<i32, String>,
    /// Names of rules by slot.
    pub rule_names: BTreeMap<i32, String>,
    /// Limits and switches.
    pub tunables: Tunables,
    /// Class number of a device or shadow bucket.
    pub item_classes: BTreeMap<i32, i32>,
    /// Names of classes by number.
    pub class_names: BTreeMap<i32, String>,
    /// Shadow bucket of each bucket and class.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Replacement weights by set id (a pool's id, or -1 for the default) and bucket slot.
    pub choose_args: BTreeMap<i64, BTreeMap<u32, ChooseArg>>,
    /// How much of the optional end to write.
    pub extent: Extent,
    /// Bytes after the known end, kept verbatim.
    pub tail: Vec<u8>,
}

impl CrushMap {
    /// The bucket of that (negative) id.
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        let slot = usize::try_from(-1i64 - i64::from(id)).ok()?;
        self.buckets.get(slot)?.as_ref()
    }

    /// The slot of the rule for a pool: same ruleset and kind, and a size within its limits. Pacific scans like this
    /// too, so a pool whose size does not fit maps nowhere.
    pub fn find_rule(&self, ruleset: u8, kind: u8, size: u8) -> Option<usize> {
        self.rules.iter().position(|rule| {
            rule.as_ref().is_some_and(|r| {
                r.ruleset == ruleset && r.kind == kind && (r.min_size..=r.max_size).contains(&size)
            })
        })
    }

    /// Name of a bucket or device.
    pub fn item_name(&self, id: i32) -> Option<&str> {
        self.item_names.get(&id).map(String::as_str)
    }
}
