//! How the block devices of a class are wiped, as its `blockCleanerCommand` says (contract CFG-32).

use std::path::Path;

/// A way to wipe a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaner {
    /// Zeroes by the kernel's fastest way that reads back as zeros. What upstream's
    /// `quick_reset.sh` (its default), `dd_zero.sh` and `blkdiscard.sh` stand for: the first and the
    /// last leave readable data there, which is never what was meant.
    Zero,
    /// Random data this many times, then zeroes: upstream's `shred.sh`.
    Overwrite {
        /// How many passes of random data come before the zeroes.
        passes: u32,
    },
    /// A program of the user's own with its arguments, run with upstream's environment.
    Command(Vec<String>),
}

/// What `shred.sh` does without an argument (contract DEL-31).
const SHRED_PASSES: u32 = 3;

impl Cleaner {
    /// Reads a command line. Upstream's five scripts are known by their file name and have a native
    /// equivalent, so that no shell is needed.
    ///
    /// # Errors
    /// What is wrong with the command line, in words.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let Some(program) = words.first().filter(|word| !word.is_empty()) else {
            return Err("the command is empty; leave the key out for the default".into());
        };
        let path = Path::new(program);
        let script = path
            .parent()
            .filter(|dir| *dir == Path::new("/scripts"))
            .and_then(|_| path.file_name()?.to_str());
        match (script, &words[1..]) {
            (Some("quick_reset.sh" | "dd_zero.sh" | "blkdiscard.sh"), _) => Ok(Self::Zero),
            (Some("shred.sh"), []) => Ok(Self::Overwrite {
                passes: SHRED_PASSES,
            }),
            (Some("shred.sh"), [passes, ..]) => passes
                .parse()
                .map(|passes| Self::Overwrite { passes })
                .map_err(|_| format!("{passes:?} is not a number of passes")),
            (Some("fsclean.sh"), _) => {
                Err("fsclean.sh empties filesystems; it can't wipe a block device".into())
            }
            _ if path.is_absolute() => Ok(Self::Command(words.to_vec())),
            _ => Err(format!("{program:?} is not an absolute path")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&["/scripts/quick_reset.sh"], Ok(Cleaner::Zero))]
    #[case(&["/scripts/dd_zero.sh", "2"], Ok(Cleaner::Zero))]
    #[case(&["/scripts/blkdiscard.sh"], Ok(Cleaner::Zero))]
    #[case(&["/scripts/shred.sh"], Ok(Cleaner::Overwrite { passes: 3 }))]
    #[case(&["/scripts/shred.sh", "2"], Ok(Cleaner::Overwrite { passes: 2 }))]
    #[case(&["/scripts/shred.sh", "two"], Err(()))]
    #[case(&["/scripts/fsclean.sh"], Err(()))]
    #[case(&["/hooks/wipe", "-x"], Ok(Cleaner::Command(vec!["/hooks/wipe".into(), "-x".into()])))]
    #[case(&["wipe"], Err(()))]
    #[case(&[""], Err(()))]
    #[case(&[], Err(()))]
    fn cfg_32_commands(#[case] words: &[&str], #[case] want: Result<Cleaner, ()>) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(Cleaner::parse(&words).map_err(drop), want);
    }
}
