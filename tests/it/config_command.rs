//! `provisor config` as a person or a pipeline meets it.

use std::fs;

use crate::support::daemon::provisor;

#[test]
fn a_check_says_what_is_wrong_and_fails_for_errors_only() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("storageClassMap");
    let path = dir.path().to_str().unwrap();
    let class = "fast:\n  hostDir: /mnt/f\n  mountDir: /mnt//f\n";
    fs::write(&key, class).unwrap();
    let (success, out, err) = provisor(&["config", "check", path], &[]);
    assert!(success, "{err}");
    let line = format!(
        "{}:3: warning: storageClassMap.fast.mountDir: read as /mnt/f\n",
        key.display()
    );
    assert_eq!(out, line + "1 class, 0 errors, 1 warning\n");

    fs::write(&key, format!("{class}  accessMode: RWO\n")).unwrap();
    let (success, out, err) = provisor(&["config", "check", path], &[]);
    assert!(!success);
    assert!(
        out.contains(":4: error: storageClassMap.fast.accessMode: "),
        "{out}"
    );
    assert!(err.contains("not in force as written"), "{err}");
}

#[test]
fn a_check_of_nothing_fails() {
    let (success, _, err) = provisor(&["config", "check", "/nonexistent/provisor"], &[]);
    assert!(!success && err.contains("/nonexistent/provisor"), "{err}");
}

#[test]
fn the_schema_is_json() {
    let (success, out, err) = provisor(&["config", "schema"], &[]);
    assert!(success, "{err}");
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(schema["properties"]["storageClassMap"].is_object());
}
