use std::collections::BTreeMap;

use super::*;
use crate::serve::status::{ClassStatus, EntryStatus};
use crate::volume::{ClassName, Refusal};

const SECOND: Duration = Duration::from_secs(1);

fn entry(outcome: Outcome, reason: Option<Reason>, capacity_bytes: Option<u64>) -> EntryStatus {
    EntryStatus {
        entry: "e".into(),
        outcome,
        reason,
        detail: String::new(),
        pv: None,
        phase: None,
        capacity_bytes,
    }
}

fn status(classes: impl IntoIterator<Item = (&'static str, ClassStatus)>) -> Status {
    let classes = classes.into_iter();
    Status {
        classes: classes.map(|(n, c)| (ClassName::new(n), c)).collect(),
        ..Status::default()
    }
}

/// Contract MET-01 to MET-08.
#[test]
fn upstreams_names_types_and_labels_stand() {
    let metrics = Metrics::new("1.2.3");
    metrics.discovered(VolumeMode::Block, SECOND);
    metrics.deleted(
        VolumeMode::Block,
        CleanType::Process,
        1,
        "/scripts/shred.sh",
        SECOND,
    );
    metrics.delete_failed(None, CleanType::Job);
    metrics.api_call(ApiMethod::Create, SECOND, true);
    let text = metrics.render();
    let types: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    for (name, kind) in [
        ("persistentvolume_capacity_bytes", "gauge"),
        ("persistentvolume_discovery_total", "counter"),
        ("persistentvolume_discovery_duration_seconds", "histogram"),
        ("persistentvolume_delete_total", "counter"),
        ("persistentvolume_delete_failed_total", "counter"),
        ("persistentvolume_delete_duration_seconds", "histogram"),
        ("apiserver_requests_total", "counter"),
        ("apiserver_requests_failed_total", "counter"),
        ("apiserver_requests_duration_seconds", "histogram"),
        ("proctable_running", "gauge"),
        ("proctable_failed", "gauge"),
        ("proctable_succeeded", "gauge"),
    ] {
        let name = upstream(name);
        assert_eq!(types.get(name.as_str()), Some(&kind), "{name}");
    }
    for line in [
        r#"persistentvolume_discovery_total{mode="Block"} 1"#,
        r#"persistentvolume_delete_total{mode="Block",type="process"} 1"#,
        r#"persistentvolume_delete_failed_total{mode="unknown",type="job"} 1"#,
        r#"persistentvolume_delete_duration_seconds_count{capacity="500G",cleanup_command="/scripts/shred.sh",mode="Block",type="process"} 1"#,
        r#"apiserver_requests_total{method="create"} 1"#,
        r#"apiserver_requests_failed_total{method="create"} 1"#,
    ] {
        assert!(text.contains(&upstream(line)), "{line} in\n{text}");
    }
}

#[test]
fn our_own_names_stand() {
    let metrics = Metrics::new("1.2.3");
    metrics.refused(Reason::InUse);
    metrics.wipe_succeeded(SECOND, 10);
    metrics.wipe_failed(5);
    metrics.wipes_running(2);
    metrics.event_dropped();
    metrics.watch_connected(WatchKind::Nodes);
    metrics.watch_failed(WatchKind::PersistentVolumes);
    let text = metrics.render();
    for line in [
        r#"provisor_build_info{version="1.2.3"} 1"#,
        r#"provisor_refused_total{reason="InUse"} 1"#,
        "provisor_wipe_seconds_count 1",
        r#"provisor_wipe_seconds_bucket{le="86400"} 1"#,
        "provisor_wiped_bytes_total 15",
        "provisor_events_dropped_total 1",
        r#"provisor_config_findings{severity="error"} 0"#,
        r#"provisor_watch_connected{kind="nodes"} 1"#,
        r#"provisor_watch_connected{kind="persistentvolumes"} 0"#,
        r#"provisor_watch_failures_total{kind="persistentvolumes"} 1"#,
        "local_volume_provisioner_proctable_running 2",
        "local_volume_provisioner_proctable_failed 1",
        "local_volume_provisioner_proctable_succeeded 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        assert!(text.contains(&format!("\n{name} ")), "{name}");
    }
}

#[test]
fn gauges_follow_the_status_and_forget_what_is_gone() {
    let metrics = Metrics::new("test");
    let fast = ClassStatus {
        entries: vec![
            entry(Outcome::Offered, None, Some(10)),
            entry(Outcome::Kept, None, Some(20)),
            entry(Outcome::Refused, Some(Reason::InUse), None),
        ],
        ..ClassStatus::default()
    };
    let raw = ClassStatus {
        mode: VolumeMode::Block,
        refusal: Some(Refusal::new(Reason::DirectoryMissing, "")),
        entries: vec![entry(Outcome::Reclaiming, None, Some(7))],
        ..ClassStatus::default()
    };
    metrics.observe(&Status {
        refusal: Some(Refusal::new(Reason::ApiRefused, "")),
        ..status([("fast", fast), ("raw", raw)])
    });
    let text = metrics.render();
    for line in [
        r#"provisor_entries{class="fast",outcome="offered"} 1"#,
        r#"provisor_entries{class="fast",outcome="reclaiming"} 0"#,
        r#"provisor_refusals{class="fast",reason="InUse"} 1"#,
        r#"provisor_refusals{class="raw",reason="DirectoryMissing"} 1"#,
        r#"provisor_refusals{class="",reason="ApiRefused"} 1"#,
        r#"local_volume_provisioner_persistentvolume_capacity_bytes{mode="Filesystem"} 30"#,
        r#"local_volume_provisioner_persistentvolume_capacity_bytes{mode="Block"} 7"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    metrics.observe(&status([("fast", ClassStatus::default())]));
    let text = metrics.render();
    assert!(!text.contains(r#"class="raw""#) && !text.contains("provisor_refusals{"));
    assert!(text.contains(r#"capacity_bytes{mode="Block"} 0"#));
}

#[test]
fn findings_are_counted_by_severity() {
    let metrics = Metrics::new("test");
    let finding = |severity| Finding {
        severity,
        file: String::new(),
        key: String::new(),
        line: 1,
        text: String::new(),
    };
    metrics.observe_findings(&[Severity::Warning, Severity::Error, Severity::Error].map(finding));
    assert!(
        metrics
            .render()
            .contains(r#"provisor_config_findings{severity="error"} 2"#)
    );
    metrics.observe_findings(&[]);
    assert!(
        metrics
            .render()
            .contains(r#"provisor_config_findings{severity="error"} 0"#)
    );
}
