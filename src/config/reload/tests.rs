//! Against a directory that is swapped as the kubelet's atomic writer does it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::config::load;

const LIMIT: Duration = Duration::from_secs(20);

/// A mounted ConfigMap, and the version it is at.
struct Mounted {
    root: tempfile::TempDir,
    version: u32,
}

impl Mounted {
    fn new(keys: &[(&str, &str)]) -> Self {
        let mut mounted = Self {
            root: tempfile::tempdir().unwrap(),
            version: 0,
        };
        mounted.swap(keys);
        mounted
    }

    /// Writes a new version, points `..data` at it by a rename, fixes the links of the keys, and removes
    /// the old version file by file.
    fn swap(&mut self, keys: &[(&str, &str)]) {
        let root = self.root.path();
        let old = fs::read_link(root.join("..data")).ok();
        self.version += 1;
        let name = format!("..2026_01_01_00_00_00.{}", self.version);
        fs::create_dir(root.join(&name)).unwrap();
        for (key, text) in keys {
            fs::write(root.join(&name).join(key), text).unwrap();
        }
        symlink(&name, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        for (key, _) in keys {
            let _ = symlink(Path::new("..data").join(key), root.join(key));
        }
        let Some(old) = old else { return };
        for entry in fs::read_dir(root.join(&old)).unwrap() {
            let entry = entry.unwrap();
            if !keys.iter().any(|(key, _)| entry.file_name() == *key) {
                fs::remove_file(root.join(entry.file_name())).unwrap();
            }
            fs::remove_file(entry.path()).unwrap();
        }
        fs::remove_dir(root.join(&old)).unwrap();
    }

    fn follow(&self) -> (Reloader, Arc<Config>, Receiver<Arc<Config>>) {
        let (sender, receiver) = channel();
        let first = Arc::new(load(self.root.path()).unwrap());
        let notify = move |config| sender.send(config).unwrap_or_default();
        let dir = self.root.path().to_owned();
        let reloader = Reloader::start(dir, Arc::clone(&first), notify).unwrap();
        (reloader, first, receiver)
    }
}

fn class(name: &str) -> String {
    format!("{name}: {{hostDir: /{name}, mountDir: /{name}}}\n")
}

fn names(config: &Config) -> Vec<&str> {
    config.classes.keys().map(|name| name.as_str()).collect()
}

/// A configuration whose keys all tell its number; odd ones have a class and a key more.
fn keys_of(number: u32) -> Vec<(&'static str, String)> {
    let classes = match number % 2 {
        0 => class(&format!("c{number}")),
        _ => class(&format!("c{number}")) + &class("odd"),
    };
    let mut keys = vec![
        ("labelsForPV", format!("number: n{number}")),
        ("storageClassMap", classes),
    ];
    if number % 2 == 1 {
        keys.push(("nodeLabelsForPV", format!("[n{number}]")));
    }
    keys
}

fn swap_to(mounted: &mut Mounted, number: u32) {
    let keys = keys_of(number);
    let keys: Vec<_> = keys
        .iter()
        .map(|(key, text)| (*key, text.as_str()))
        .collect();
    mounted.swap(&keys);
}

/// The number of a configuration of which every key tells the same.
fn number(config: &Config) -> u32 {
    let text = &config.labels["number"];
    let number: u32 = text.trim_start_matches('n').parse().unwrap();
    let own = format!("c{number}");
    let odd = number % 2 == 1;
    assert_eq!(
        names(config),
        if odd {
            vec![own.as_str(), "odd"]
        } else {
            vec![own.as_str()]
        }
    );
    assert_eq!(
        config.node_labels,
        if odd { vec![text.clone()] } else { Vec::new() }
    );
    assert_eq!(config.findings, []);
    number
}

#[test]
fn cfg_64_a_thousand_swaps_are_never_read_half() {
    let mut mounted = Mounted::new(&[]);
    swap_to(&mut mounted, 0);
    let (_reloader, _, configs) = mounted.follow();
    let dir = mounted.root.path().to_owned();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let reader = thread::spawn(move || {
        let (mut last, mut reads) = (0, 0_u32);
        while !is_done.load(Ordering::Relaxed) {
            let now = number(&load(&dir).unwrap());
            assert!(now >= last, "{now} after {last}");
            (last, reads) = (now, reads + 1);
        }
        reads
    });
    for n in 1..=1000 {
        swap_to(&mut mounted, n);
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 100);
    // The follower may skip versions, but it goes forward and ends with the last one.
    let mut last = 0;
    while last < 1000 {
        let now = number(
            &configs
                .recv_timeout(LIMIT)
                .expect("the last version arrives"),
        );
        assert!(now > last, "{now} after {last}");
        last = now;
    }
}

#[test]
fn cfg_62_63_no_removal_is_missed() {
    let mut mounted = Mounted::new(&[("storageClassMap", &class("a"))]);
    let (_reloader, first, configs) = mounted.follow();
    assert_eq!(names(&first), ["a"]);
    for _ in 0..100 {
        mounted.swap(&[
            ("storageClassMap", &(class("a") + &class("b"))),
            ("useNodeNameOnly", "yes"),
        ]);
        let now = configs
            .recv_timeout(LIMIT)
            .expect("a class and a key are added");
        assert_eq!(
            (names(&now), now.use_node_name_only),
            (vec!["a", "b"], true)
        );
        mounted.swap(&[("storageClassMap", &class("a"))]);
        let now = configs.recv_timeout(LIMIT).expect("they are gone again");
        assert_eq!((names(&now), now.use_node_name_only), (vec!["a"], false));
    }
    mounted.swap(&[]);
    assert_eq!(names(&configs.recv_timeout(LIMIT).unwrap()), [""; 0]);
}

#[test]
fn cfg_07_a_bad_edit_keeps_what_was_good_and_a_good_one_ends_it() {
    let mut mounted = Mounted::new(&[("storageClassMap", &(class("a") + &class("b")))]);
    let (_reloader, first, configs) = mounted.follow();
    for bad in ["a: [", "a: {hostDir: relative, mountDir: /a}\nb: 1\n"] {
        mounted.swap(&[("storageClassMap", bad)]);
        let now = configs.recv_timeout(LIMIT).unwrap();
        assert_eq!(now.classes, first.classes, "{bad}");
        assert!(
            now.findings
                .iter()
                .any(|finding| finding.severity == Severity::Error)
        );
    }
    mounted.swap(&[("storageClassMap", &class("b"))]);
    let now = configs.recv_timeout(LIMIT).unwrap();
    assert_eq!((names(&now), now.findings.len()), (vec!["b"], 0));
}

#[test]
fn a_directory_that_vanished_leaves_everything_in_force() {
    let last = Config {
        use_node_name_only: true,
        ..Config::default()
    };
    let dir = Path::new("/nonexistent/provisor");
    let error = load_over(dir, &last).expect_err("it is not there");
    let now = kept(dir, &last, &error);
    assert!(now.use_node_name_only);
    assert!(
        now.findings[0].text.contains("stays in force"),
        "{:?}",
        now.findings
    );
}

#[test]
fn a_directory_that_was_replaced_is_followed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("config");
    let make = |text: &str| {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("storageClassMap"), text).unwrap();
    };
    make(&class("a"));
    let (send, configs) = channel();
    let first = Arc::new(load(&dir).unwrap());
    let _reloader = Reloader::start(dir.clone(), first, move |config| {
        let _ = send.send(config);
    });
    fs::rename(&dir, root.path().join("away")).unwrap();
    while configs.recv_timeout(LIMIT).unwrap().findings.is_empty() {}
    make(&class("b"));
    while names(&configs.recv_timeout(LIMIT).unwrap()) != ["b"] {}
    // And its successor is watched.
    fs::write(dir.join("storageClassMap"), class("c")).unwrap();
    while names(&configs.recv_timeout(LIMIT).unwrap()) != ["c"] {}
}

#[test]
fn a_version_with_the_same_content_is_no_news() {
    let mut mounted = Mounted::new(&[("storageClassMap", &class("a"))]);
    let (_reloader, _, configs) = mounted.follow();
    mounted.swap(&[("storageClassMap", &format!("# the same\n{}", class("a")))]);
    mounted.swap(&[("storageClassMap", &class("z"))]);
    assert_eq!(names(&configs.recv_timeout(LIMIT).unwrap()), ["z"]);
}

#[test]
fn plain_files_are_followed_too() {
    let root = tempfile::tempdir().unwrap();
    let mounted = Mounted { root, version: 0 };
    let file = mounted.root.path().join("storageClassMap");
    fs::write(&file, class("a")).unwrap();
    let (_reloader, first, configs) = mounted.follow();
    assert_eq!(names(&first), ["a"]);
    fs::write(&file, class("b")).unwrap();
    while names(&configs.recv_timeout(LIMIT).unwrap()) != ["b"] {}
    fs::remove_file(&file).unwrap();
    while !configs.recv_timeout(LIMIT).unwrap().classes.is_empty() {}
}
