//! The keys there are, and what somebody may have meant by another one.

/// Keys of the ConfigMap (contract CFG-10 to CFG-20), then ours.
pub(super) const TOP: [&str; 13] = [
    "storageClassMap",
    "nodeLabelsForPV",
    "labelsForPV",
    "useAlphaAPI",
    "useJobForCleaning",
    "jobTolerations",
    "minResyncPeriod",
    "useNodeNameOnly",
    "setPVOwnerRef",
    "removeNodeNotReadyTaint",
    "provisionerNotReadyNodeTaintKey",
    "whenClassGone",
    "withdrawClassAfter",
];

/// Keys of a class (contract CFG-30 to CFG-37), then ours.
pub(super) const CLASS: [&str; 11] = [
    "hostDir",
    "mountDir",
    "blockCleanerCommand",
    "volumeMode",
    "accessMode",
    "fsType",
    "namePattern",
    "selector",
    "requireEmpty",
    "whenGone",
    "withdrawAfter",
];

/// The key that `name` spells, whatever its case (contract CFG-04).
pub(super) fn find(known: &[&'static str], name: &str) -> Option<&'static str> {
    known
        .iter()
        .find(|key| key.eq_ignore_ascii_case(name))
        .copied()
}

/// The known key that differs least from `name`, if any is like it at all.
pub(super) fn nearest(known: &[&'static str], name: &str) -> Option<&'static str> {
    let name: Vec<char> = name.to_ascii_lowercase().chars().collect();
    let distances = known.iter().map(|key| {
        let chars: Vec<char> = key.to_ascii_lowercase().chars().collect();
        (distance(&chars, &name), *key)
    });
    let (distance, key) = distances.min()?;
    (distance <= (key.len() / 4).max(1)).then_some(key)
}

/// How many characters have to be put in, left out, replaced or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    // Names that differ this much in length are not alike, however long they are.
    if a.len().abs_diff(b.len()) > a.len() {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y;
            if swapped {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("hostdirs", Some("hostDir"))]
    #[case("hotsDir", Some("hostDir"))]
    #[case("mount_dir", Some("mountDir"))]
    #[case("namePatterns", Some("namePattern"))]
    #[case("blockCleanerCmd", Some("blockCleanerCommand"))]
    #[case("cleaner", None)]
    #[case("", None)]
    #[case("whatever", None)]
    fn a_key_like_a_known_one_is_recognised(#[case] name: &str, #[case] want: Option<&str>) {
        assert_eq!(nearest(&CLASS, name), want);
    }
}
