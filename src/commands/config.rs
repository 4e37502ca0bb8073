//! `provisor config`: what is wrong in a configuration, and what may be in one.

use std::io::{self, Write};
use std::path::Path;

use anyhow::bail;

use crate::args::ConfigCommand;
use crate::config::{self, Finding, SCHEMA, Severity};

/// Runs the command.
///
/// # Errors
/// A configuration with errors, or none that can be read.
pub fn main(command: &ConfigCommand) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match command {
        ConfigCommand::Check { dir } => check(dir, &mut out),
        ConfigCommand::Schema => Ok(out.write_all(SCHEMA.as_bytes())?),
    }
}

/// Writes every finding with its file and line, as compilers do, and then what there is in all.
///
/// # Errors
/// As [`main`].
pub fn check(dir: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let config = config::load(dir)?;
    for finding in &config.findings {
        let Finding {
            severity,
            file,
            key,
            line,
            text,
        } = finding;
        let file = dir.join(file);
        writeln!(out, "{}:{line}: {severity}: {key}: {text}", file.display())?;
    }
    let count = |severity| {
        config
            .findings
            .iter()
            .filter(|f| f.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let classes = config.classes.len();
    writeln!(
        out,
        "{}, {}, {}",
        number(classes, "class", "classes"),
        number(errors, "error", "errors"),
        number(warnings, "warning", "warnings")
    )?;
    if errors > 0 {
        bail!("{} is not in force as written", dir.display());
    }
    Ok(())
}

fn number(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn checked(keys: &[(&str, &str)]) -> (bool, String) {
        let dir = tempfile::tempdir().unwrap();
        for (key, text) in keys {
            fs::write(dir.path().join(key), text).unwrap();
        }
        let mut out = Vec::new();
        let result = check(dir.path(), &mut out);
        let text = String::from_utf8(out).unwrap();
        (
            result.is_ok(),
            text.replace(&format!("{}/", dir.path().display()), ""),
        )
    }

    #[test]
    fn a_good_configuration_passes() {
        let class = "fast: {hostDir: /mnt/f, mountDir: /mnt/f}";
        let (good, text) = checked(&[("storageClassMap", class)]);
        assert_eq!(
            (good, text.as_str()),
            (true, "1 class, 0 errors, 0 warnings\n")
        );
    }

    #[test]
    fn warnings_pass_and_are_printed() {
        let (good, text) = checked(&[("notes", "x")]);
        assert!(good);
        assert_eq!(
            text,
            "notes:1: warning: notes: unknown key, ignored\n0 classes, 0 errors, 1 warning\n"
        );
    }

    #[test]
    fn errors_fail_with_file_line_and_key() {
        let class = "fast:\n  hostDir: /mnt/f\n  mountDir: /mnt/f\n  volumeMode: Tape\n";
        let (good, text) = checked(&[("storageClassMap", class), ("labelsForPV", "a: [")]);
        assert!(!good);
        assert!(
            text.contains("labelsForPV:1: error: labelsForPV: not YAML"),
            "{text}"
        );
        let line = "storageClassMap:4: error: storageClassMap.fast.volumeMode: volumeMode \"Tape\"";
        assert!(text.contains(line), "{text}");
        assert!(
            text.ends_with("0 classes, 2 errors, 0 warnings\n"),
            "{text}"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_fails() {
        assert!(check(Path::new("/nonexistent/provisor"), &mut Vec::new()).is_err());
    }
}
