//! Names and sizes, equal to upstream's to the letter so that its volumes and ours are one set.

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Label values may not be longer (Kubernetes API conventions).
const LABEL_VALUE_MAX: usize = 63;

/// `metadata.name` for an entry (contract PV-01): FNV-1a of 32 bits over entry, node and class
/// without separators, in hexadecimal without leading zeros.
pub fn name(entry: &str, node: &str, class: &str) -> String {
    format!("local-pv-{:x}", fnv1a_32(&[entry, node, class]))
}

/// `metadata.name` for an entry whose name of [`name`] somebody else has: 64 bits, over parts that can't
/// run into each other.
pub fn long_name(entry: &str, node: &str, class: &str) -> String {
    let bytes = [entry, "/", node, "/", class]
        .into_iter()
        .flat_map(str::bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("local-pv-{hash:016x}")
}

/// The value of the label `provisor.dev/node`: the node's name, or for a name over 63 characters its
/// first 50, a dash and a stable hash.
pub fn node_label(node: &str) -> String {
    if node.len() <= LABEL_VALUE_MAX {
        return node.to_owned();
    }
    // Node names are ASCII (DNS-1123), so that any byte is a character boundary.
    let head: String = node.chars().take(50).collect();
    format!("{head}-{:08x}", fnv1a_32(&[node]))
}

fn fnv1a_32(parts: &[&str]) -> u32 {
    parts
        .iter()
        .flat_map(|part| part.bytes())
        .fold(FNV_OFFSET, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(FNV_PRIME)
        })
}

/// Rounds a size down as upstream does (contract PV-06): from 10 GiB to whole GiB, from 10 MiB to
/// whole MiB, below that not at all. Bytes.
pub fn capacity(bytes: u64) -> u64 {
    let unit = match bytes {
        b if b >= 10 * GIB => GIB,
        b if b >= 10 * MIB => MIB,
        _ => 1,
    };
    bytes / unit * unit
}

/// A number of bytes as a Kubernetes quantity in canonical BinarySI form: the largest suffix that
/// leaves a whole number.
pub fn quantity(bytes: u64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut value, mut suffix) = (bytes, 0);
    while value != 0 && value % KIB == 0 && suffix + 1 < SUFFIXES.len() {
        value /= KIB;
        suffix += 1;
    }
    format!("{value}{}", SUFFIXES[suffix])
}

/// Reads a quantity of bytes: a whole number with a binary or decimal suffix or none. `None` for what
/// the API allows beyond that (fractions, exponents), which no volume of ours has.
pub fn parse_quantity(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let unit: u64 = match suffix {
        "" => 1,
        "Ki" => KIB,
        "Mi" => MIB,
        "Gi" => GIB,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_names_do_not_collide_where_short_ones_do() {
        assert_eq!(name("ab", "c", "d"), name("a", "bc", "d"));
        assert_ne!(long_name("ab", "c", "d"), long_name("a", "bc", "d"));
        assert_eq!(long_name("ab", "c", "d").len(), "local-pv-".len() + 16);
    }

    /// Contract PV-02.
    #[test]
    fn pv_01_02_names_equal_upstreams() {
        for (entry, node, class, want) in [
            ("mount1", "test-node", "sc1", "local-pv-aaaafef5"),
            ("vol1", "node-1", "fast-disks", "local-pv-457091be"),
            ("disk11", "node-1", "sc", "local-pv-9ea550e"),
            (
                "nvme0n1",
                "ip-10-0-0-1.ec2.internal",
                "local-nvme",
                "local-pv-a9e715c6",
            ),
            ("ab", "c", "d", "local-pv-ce3479bd"),
            ("a", "bc", "d", "local-pv-ce3479bd"),
        ] {
            assert_eq!(name(entry, node, class), want, "{entry} {node} {class}");
        }
    }

    #[test]
    fn pv_06_capacity_equals_upstreams() {
        const TIB: u64 = 1 << 40;
        for (bytes, want) in [
            (9 * GIB + 999 * MIB, 9 * GIB + 999 * MIB),
            (10 * GIB + 5, 10 * GIB),
            (63 * MIB - 10, 62 * MIB),
            (12345, 12345),
            (10 * MIB - 1, 10 * MIB - 1),
            (3 * TIB + 2 * GIB + MIB, 3 * TIB + 2 * GIB),
        ] {
            assert_eq!(capacity(bytes), want, "{bytes}");
        }
    }

    #[test]
    fn pv_06_quantities_are_canonical() {
        for (bytes, want) in [
            (0, "0"),
            (12345, "12345"),
            (9999 * MIB, "9999Mi"),
            (12 * GIB, "12Gi"),
            (1_024_220 * KIB, "1024220Ki"),
            ((3 << 40) + 2 * GIB, "3074Gi"),
            (5 << 60, "5Ei"),
        ] {
            assert_eq!(quantity(bytes), want);
        }
    }

    #[test]
    fn long_node_names_get_a_label_of_their_own() {
        let (a, b) = (
            format!("{}a", "n".repeat(80)),
            format!("{}b", "n".repeat(80)),
        );
        assert_eq!(node_label("node-1"), "node-1");
        assert!(node_label(&a).len() <= 63);
        assert_ne!(node_label(&a), node_label(&b));
    }

    #[test]
    fn quantities_of_others_are_read() {
        for (text, want) in [
            ("5k", Some(5000)),
            ("1.5Gi", None),
            ("", None),
            ("99Ei", None),
            ("1e3", None),
        ] {
            assert_eq!(parse_quantity(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_quantity_reads_back(bytes in any::<u64>()) {
            prop_assert_eq!(parse_quantity(&quantity(bytes)), Some(bytes));
            let rounded = capacity(bytes);
            prop_assert_eq!(parse_quantity(&quantity(rounded)), Some(rounded));
        }

        #[test]
        fn capacity_never_grows_and_loses_less_than_a_tenth(bytes in any::<u64>()) {
            let rounded = capacity(bytes);
            prop_assert!(rounded <= bytes);
            prop_assert!(bytes - rounded <= bytes / 10);
            prop_assert_eq!(capacity(rounded), rounded);
        }
    }
}
