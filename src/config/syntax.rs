//! What Kubernetes takes for a name, a label key and a label value.

/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;

/// Longest label value, and longest name of a label key without its prefix.
const LABEL_MAX: usize = 63;

/// DNS-1123 subdomain, which the name of every StorageClass is.
pub(super) fn is_subdomain(name: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= SUBDOMAIN_MAX
        && name.split('.').all(|label| {
            label.starts_with(alphanumeric)
                && label.ends_with(alphanumeric)
                && label.chars().all(|c| alphanumeric(c) || c == '-')
        })
}

/// `name`, or `prefix/name` with a DNS subdomain as the prefix.
pub(super) fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && is_label_name(name)
}

/// Empty, or a name.
pub(super) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

fn is_label_name(name: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    name.len() <= LABEL_MAX
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric)
        && name
            .chars()
            .all(|c| alphanumeric(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_storage_classes() {
        for name in ["fast", "fast-disks", "local.nvme", "0", "a1"] {
            assert!(is_subdomain(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in [
            "",
            "Fast",
            "fast_disks",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a b",
            &long,
        ] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    #[test]
    fn label_keys_and_values() {
        for key in [
            "a",
            "A_b.c-d",
            "example.com/zone",
            "topology.kubernetes.io/zone",
        ] {
            assert!(is_label_key(key), "{key}");
        }
        let long = "a".repeat(64);
        for key in ["", "/a", "a/", "a/b/c", "-a", "Example.com/a", "a b", &long] {
            assert!(!is_label_key(key), "{key}");
        }
        for value in ["", "a", "1.5", "A_b"] {
            assert!(is_label_value(value), "{value}");
        }
        for value in ["-", "a b", "a/b", "ü", &long] {
            assert!(!is_label_value(value), "{value}");
        }
    }
}
