//! `namePattern`: a comma-separated list of Go globs (contract CFG-36).

use std::fmt;

use thiserror::Error;

/// Which entries of a discovery directory are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    globs: Vec<Vec<Part>>,
}

/// One piece of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `*`: any run of characters.
    Any,
    /// `?`: one character.
    One,
    /// `[a-z]` or `[^a-z]`.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// A character itself.
    Literal(char),
}

/// A glob that Go's `filepath.Match` would not accept either.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{glob:?} is not a valid glob: {why}")]
pub struct PatternError {
    glob: String,
    why: &'static str,
}

impl Default for NamePattern {
    fn default() -> Self {
        Self {
            text: "*".to_owned(),
            globs: vec![vec![Part::Any]],
        }
    }
}

impl NamePattern {
    /// Reads the list. As upstream does, empty items are skipped and nothing is trimmed.
    ///
    /// # Errors
    /// The first glob that is malformed, and why.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let globs = text
            .split(',')
            .filter(|glob| !glob.is_empty())
            .map(|glob| {
                compile(glob).map_err(|why| PatternError {
                    glob: glob.to_owned(),
                    why,
                })
            })
            .collect::<Result<_, _>>()?;
        let text = text.to_owned();
        Ok(Self { text, globs })
    }

    /// The list without white space around its globs, if any glob can't match for it: nothing is
    /// trimmed, and no entry with white space in its name is ever offered.
    pub fn without_space(&self) -> Option<String> {
        let trimmed: Vec<_> = self.text.split(',').map(str::trim).collect();
        let trimmed = trimmed.join(",");
        (trimmed != self.text).then_some(trimmed)
    }

    /// Whether an entry of this name is looked at.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.globs.iter().any(|glob| matches(glob, &name))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn compile(glob: &str) -> Result<Vec<Part>, &'static str> {
    let mut chars = glob.chars().peekable();
    let mut parts = Vec::new();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => Part::Literal(chars.next().ok_or("it ends with a backslash")?),
            '[' => {
                let negated = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                while ranges.is_empty() || chars.next_if_eq(&']').is_none() {
                    let low = class_char(&mut chars)?;
                    let high = match chars.next_if_eq(&'-') {
                        Some(_) => class_char(&mut chars)?,
                        None => low,
                    };
                    ranges.push((low, high));
                }
                Part::Class { negated, ranges }
            }
            other => Part::Literal(other),
        });
    }
    Ok(parts)
}

/// One end of a range in a character class.
fn class_char(chars: &mut impl Iterator<Item = char>) -> Result<char, &'static str> {
    match chars.next() {
        None => Err("a [ is not closed"),
        Some('-' | ']') => Err("a range in [ ] lacks an end"),
        Some('\\') => chars.next().ok_or("it ends with a backslash"),
        Some(c) => Ok(c),
    }
}

/// Greedy matching with one point to come back to: the last `*`.
fn matches(parts: &[Part], name: &[char]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() {
        let hit = match parts.get(part) {
            Some(Part::Any) => {
                star = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::One) => name[at] != '/',
            Some(Part::Literal(c)) => name[at] == *c,
            Some(Part::Class { negated, ranges }) => {
                ranges
                    .iter()
                    .any(|(low, high)| (low..=high).contains(&&name[at]))
                    != *negated
            }
            None => false,
        };
        if hit {
            (part, at) = (part + 1, at + 1);
        } else if let Some((star_part, star_at)) = star {
            star = Some((star_part, star_at + 1));
            (part, at) = (star_part + 1, star_at + 1);
        } else {
            return false;
        }
    }
    parts[part..].iter().all(|p| *p == Part::Any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("*", "vol1", true)]
    #[case("*", ".hidden", true)]
    #[case("nvme*", "nvme0n1", true)]
    #[case("nvme*", "sda", false)]
    #[case("nvme*,sd?", "sda", true)]
    #[case("nvme*,,sd?", "", false)]
    #[case("a*, b*", "bc", false)]
    #[case("a*, b*", " bc", true)]
    #[case("disk[0-9]", "disk7", true)]
    #[case("disk[^0-9]", "disk7", false)]
    #[case("disk[!0-9]", "disk!", true)]
    #[case(r"a\*b", "a*b", true)]
    #[case(r"a\*b", "axb", false)]
    #[case("**a", "bca", true)]
    #[case("a*b*c", "axxbyyc", true)]
    #[case("a*b*c", "axxbyy", false)]
    #[case("{a,b}", "a", false)]
    fn cfg_36_globs(#[case] pattern: &str, #[case] name: &str, #[case] want: bool) {
        assert_eq!(NamePattern::parse(pattern).unwrap().matches(name), want);
    }

    #[rstest]
    #[case("[")]
    #[case("[a")]
    #[case("[]a]")]
    #[case("[a-]")]
    #[case("a\\")]
    fn cfg_36_malformed_globs_are_found_at_load(#[case] pattern: &str) {
        assert!(NamePattern::parse(pattern).is_err());
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_when_escaped(name in "[^,]{1,20}") {
            let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert!(NamePattern::parse(&escaped).unwrap().matches(&name));
        }

        #[test]
        fn matching_never_fails(pattern in any::<String>(), name in any::<String>()) {
            if let Ok(pattern) = NamePattern::parse(&pattern) {
                pattern.matches(&name);
            }
        }
    }
}
