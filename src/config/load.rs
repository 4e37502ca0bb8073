//! One consistent snapshot of a mounted ConfigMap.
//!
//! The kubelet writes all keys into a new directory, points the link `..data` at it and removes the
//! old one. Reading through the link's target, resolved once, never mixes two versions.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{Config, keys, parse_over};

/// Where upstream's chart mounts the ConfigMap (contract CFG-01).
pub const DEFAULT_DIR: &str = "/etc/provisioner/config";

/// The kubelet may replace a version while it is read; each try then meets the next one. It takes about
/// a minute between two versions, so that the second try succeeds.
const TRIES: usize = 100;

/// Values longer than a whole ConfigMap may be (1 MiB) are not read.
const VALUE_MAX_BYTES: u64 = 1 << 20;

/// Why there is no configuration at all.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The directory or a file in it can't be read.
    #[error("can't read the configuration at {path}")]
    Read {
        /// What was read.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A key's value is longer than a whole ConfigMap may be.
    #[error("the configuration at {path} is longer than a ConfigMap may be")]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The directory changed whenever it was read.
    #[error("the configuration at {path} does not hold still")]
    Restless {
        /// The directory.
        path: PathBuf,
    },
}

/// Reads and parses the ConfigMap mounted at `dir`.
///
/// # Errors
/// [`LoadError`] when the directory can't be read. What is wrong inside is in [`Config::findings`].
pub fn load(dir: &Path) -> Result<Config, LoadError> {
    load_over(dir, &Config::default())
}

/// As [`load`], but what can't be used stays as it is in `last`, the configuration in force.
///
/// # Errors
/// As [`load`].
pub fn load_over(dir: &Path, last: &Config) -> Result<Config, LoadError> {
    for _ in 0..TRIES {
        // An old version is removed only after the link leads to the new one: if it leads to the same
        // version before and after, nothing was missing in between.
        let version = fs::read_link(dir.join("..data")).ok();
        let values = match &version {
            Some(target) => read(&dir.join(target)),
            // A plain directory of files, as somebody has it on a workstation.
            None => read(dir),
        };
        if fs::read_link(dir.join("..data")).ok() == version {
            return values.map(|values| parse_over(&values, last));
        }
    }
    Err(LoadError::Restless {
        path: dir.to_owned(),
    })
}

/// The keys and values in the directory (contract CFG-02).
fn read(dir: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::Read { path, source }
    };
    let mut values = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let path = entry.map_err(failed(dir))?.path();
        let Some(key) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if key.starts_with("..") {
            continue;
        }
        let meta = match fs::metadata(&path) {
            // An editor's temporary file, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            meta => meta.map_err(failed(&path))?,
        };
        if !meta.is_file() {
            continue;
        }
        if meta.len() > VALUE_MAX_BYTES {
            match keys::find(&keys::TOP, key) {
                Some(_) => return Err(LoadError::TooLong { path }),
                None => continue,
            }
        }
        let bytes = fs::read(&path).map_err(failed(&path))?;
        values.insert(key.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn reads_the_version_that_data_points_to() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (version, value) in [("..v1", "a: 1"), ("..v2", "a: 2")] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("labelsForPV"), value).unwrap();
        }
        symlink("..v2", root.join("..data")).unwrap();
        symlink("..data/labelsForPV", root.join("labelsForPV")).unwrap();
        let config = load(root).unwrap();
        assert_eq!(config.labels, BTreeMap::from([("a".into(), "2".into())]));
    }

    #[test]
    fn a_missing_directory_is_an_error_that_names_it() {
        let error = load(Path::new("/nonexistent/provisor")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/provisor"));
    }
}
