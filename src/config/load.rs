//! One consistent snapshot of a mounted ConfigMap.
//!
//! The kubelet writes all keys into a new directory, points the link `..data` at it and removes the
//! old one. Reading through the link's target, resolved once, never mixes two versions.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{Config, parse};

/// Where upstream's chart mounts the ConfigMap (contract CFG-01).
pub const DEFAULT_DIR: &str = "/etc/provisioner/config";

/// The kubelet may remove a version while it is read; each try then meets the next one.
const TRIES: usize = 5;

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
}

/// Reads and parses the ConfigMap mounted at `dir`.
///
/// # Errors
/// [`LoadError`] when the directory can't be read. What is wrong inside is in [`Config::findings`].
pub fn load(dir: &Path) -> Result<Config, LoadError> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match read(dir) {
            Err(LoadError::Read { source, .. })
                if source.kind() == io::ErrorKind::NotFound && left > 0 && dir.exists() => {}
            result => return result.map(|values| parse(&values)),
        }
    }
}

/// The keys and values of the ConfigMap (contract CFG-02).
fn read(dir: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::Read { path, source }
    };
    let version = match fs::read_link(dir.join("..data")) {
        Ok(target) => dir.join(target),
        // A plain directory of files, as somebody has it on a workstation.
        Err(_) => dir.to_owned(),
    };
    let mut values = BTreeMap::new();
    for entry in fs::read_dir(&version).map_err(failed(&version))? {
        let path = entry.map_err(failed(&version))?.path();
        let meta = fs::metadata(&path).map_err(failed(&path))?;
        let Some(key) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if !meta.is_file() || key.starts_with("..") || meta.len() > VALUE_MAX_BYTES {
            continue;
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
