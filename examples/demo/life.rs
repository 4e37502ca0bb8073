//! The story: two disks from their first offer to the next.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::apiserver::{Change, ChangeKind};
use crate::disks::{Data, Loop, MIB, Mounted, census, fill};
use crate::namespace::Rights;
use crate::node::{DemoNode, FAST, NODE, RAW, text};
use crate::screen::{Screen, Tone, count, millis};

const FAST_SIZE: u64 = 64 * MIB;
const RAW_SIZE: u64 = 256 * MIB;

/// How long the Pod holds its volume after its claim is gone: long enough to see that nothing is done.
const HELD: Duration = Duration::from_millis(600);

/// Tells it all; an error is a step that did not go as it must.
pub(crate) async fn tell(rights: Rights, dir: PathBuf) -> anyhow::Result<()> {
    let begun = Instant::now();
    let screen = Screen::new();
    screen.title(&format!(
        "Provisor {}: the life of a volume on this machine",
        env!("CARGO_PKG_VERSION")
    ))?;
    let node = DemoNode::start(&dir).await?;
    screen.cause(
        "namespaces",
        "mounts and processes of its own; nothing is seen outside or stays",
    )?;
    screen.cause(
        "API server",
        &format!("a stand-in in this process, {}", node.server.url()),
    )?;
    screen.effect(
        begun.elapsed(),
        "daemon ready",
        &format!("the real one, for node {NODE}, with the classes {FAST} and {RAW}"),
    )?;

    let _disk = filesystem(&screen, &node, &dir).await?;
    plain_directory(&screen, &node).await?;
    device(&screen, &node, &dir, rights).await?;

    screen.title("The end")?;
    let stopping = Instant::now();
    node.stop()?;
    screen.effect(
        stopping.elapsed(),
        "stopped",
        "the daemon, as SIGTERM would stop it",
    )?;
    let all = format!(
        "every step went as it must, in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    screen.cause("done", &all)
}

/// Gives the disk back still mounted.
async fn filesystem(screen: &Screen, node: &DemoNode, dir: &Path) -> anyhow::Result<Mounted> {
    screen.title(&format!(
        "A disk with a filesystem, in the directory of class {FAST}"
    ))?;
    let point = node.entry(FAST, "nvme1");
    let pv = provisor::pv::name("nvme1", NODE, FAST);
    let disk = Mounted::tmpfs(&point, FAST_SIZE)?;
    let mounted = Instant::now();
    screen.cause(
        "mounted",
        &format!("a tmpfs of {} MiB on {FAST}/nvme1", FAST_SIZE / MIB),
    )?;
    let first = node.until_available(&pv, "").await?;
    screen.effect(mounted.elapsed(), "offered", &offer(&first))?;

    // What the kubelet does for a Pod.
    let pods_place = dir
        .join("pods/a/volumes/kubernetes.io~local-volume")
        .join(&pv);
    let pods = claim(screen, node, &pv, &point, &pods_place)?;
    let written = fill(pods.point())?;
    screen.cause("written", &format!("{}, by the Pod", contents(written)))?;

    let released = release(
        screen,
        node,
        &pv,
        "the Pod, deleted by force, still has it mounted",
    )?;
    let why = node.until_event(&pv, "InUse").await?;
    screen.event(
        Tone::Refusal,
        Some(released.elapsed()),
        "refused",
        &format!("InUse: {}", shorten(&why, dir)),
    )?;
    tokio::time::sleep(HELD.saturating_sub(released.elapsed())).await;
    let left = census(&point)?;
    ensure!(
        left == written,
        "a volume in use was touched: {left:?} of {written:?} are left"
    );
    screen.cause("looked", &format!("{}: all still there", contents(left)))?;

    drop(pods);
    let freed = Instant::now();
    screen.cause(
        "let go",
        "the Pod's mount is gone; the daemon tries again at growing intervals",
    )?;
    let again = reclaimed(screen, node, &pv, &first, freed).await?;
    empty(screen, &point)?;

    // Once more, with nobody in the way.
    let pods = claim(screen, node, &pv, &point, &pods_place)?;
    let written = fill(pods.point())?;
    screen.cause("written", &contents(written))?;
    drop(pods);
    let released = release(screen, node, &pv, "this time the Pod is gone")?;
    reclaimed(screen, node, &pv, &again, released).await?;
    empty(screen, &point)?;
    Ok(disk)
}

async fn plain_directory(screen: &Screen, node: &DemoNode) -> anyhow::Result<()> {
    screen.title("A directory that nothing is mounted on")?;
    let path = node.entry(FAST, "photos");
    fs::create_dir(&path).with_context(|| format!("can't make {}", path.display()))?;
    let made = Instant::now();
    screen.cause("made", &format!("{FAST}/photos"))?;
    let why = node.until_event(NODE, "NotMounted").await?;
    screen.event(
        Tone::Refusal,
        Some(made.elapsed()),
        "refused",
        &format!("NotMounted: {why}"),
    )?;
    ensure!(
        node.server
            .pv(&provisor::pv::name("photos", NODE, FAST))
            .is_none(),
        "a plain directory was offered"
    );
    screen.cause("/status", &summary(&node.status()?))
}

async fn device(
    screen: &Screen,
    node: &DemoNode,
    dir: &Path,
    rights: Rights,
) -> anyhow::Result<()> {
    screen.title(&format!("A raw device, in the directory of class {RAW}"))?;
    if rights == Rights::User {
        return screen.cause("left out", "loop devices need root: sudo make demo");
    }
    let disk = Loop::new(&dir.join("disk.img"), RAW_SIZE).context("can't make a loop device")?;
    let pv = provisor::pv::name("ssd1", NODE, RAW);
    let entry = node.entry(RAW, "ssd1");
    symlink(&disk.node, &entry).with_context(|| format!("can't make {}", entry.display()))?;
    let linked = Instant::now();
    let target = disk.node.display();
    screen.cause(
        "linked",
        &format!(
            "{RAW}/ssd1 -> {target}, a loop device of {} MiB",
            RAW_SIZE / MIB
        ),
    )?;
    let first = node.until_available(&pv, "").await?;
    screen.effect(linked.elapsed(), "offered", &offer(&first))?;

    let pods_place = dir
        .join("pods/b/volumeDevices/kubernetes.io~local-volume")
        .join(&pv);
    let pods = claim(screen, node, &pv, &disk.node, &pods_place)?;
    let marks = disk.mark(pods.point())?;
    let dirty = disk.dirty_mib()?;
    ensure!(dirty > 0, "what the Pod wrote did not reach the image");
    screen.cause(
        "written",
        &format!("{marks} marks, from the first to the last MiB, by the Pod"),
    )?;

    let released = release(screen, node, &pv, "the Pod, deleted by force, still has it")?;
    let why = node.until_event(&pv, "InUse").await?;
    screen.event(
        Tone::Refusal,
        Some(released.elapsed()),
        "refused",
        &format!("InUse: {}", shorten(&why, dir)),
    )?;
    tokio::time::sleep(HELD.saturating_sub(released.elapsed())).await;
    ensure!(disk.dirty_mib()? == dirty, "a device in use was touched");
    screen.cause("looked", &format!("all {marks} marks are still there"))?;

    drop(pods);
    let freed = Instant::now();
    screen.cause("let go", "the Pod's device node is gone")?;
    reclaimed(screen, node, &pv, &first, freed).await?;
    let dirty = disk.dirty_mib()?;
    ensure!(dirty == 0, "{dirty} MiB of the image are not zero");
    let all = format!(
        "looked itself: all {} MiB of the image behind it are zero",
        RAW_SIZE / MIB
    );
    screen.cause("verified", &all)?;
    // The daemon would see the device vanish below its link otherwise.
    fs::remove_file(&entry).with_context(|| format!("can't remove {}", entry.display()))
}

/// Binds a claim and gives the volume to a Pod.
fn claim(
    screen: &Screen,
    node: &DemoNode,
    pv: &str,
    source: &Path,
    place: &Path,
) -> anyhow::Result<Mounted> {
    node.server.bind(pv, "default", "data");
    let phase = node.server.phase(pv);
    ensure!(phase == "Bound", "{pv} is {phase}, not Bound");
    let pods = Mounted::bind(source, place)?;
    screen.cause(
        "claimed",
        &format!("{pv} is Bound to the claim default/data, and a Pod has it"),
    )?;
    Ok(pods)
}

/// Deletes the claim; when that was.
fn release(screen: &Screen, node: &DemoNode, pv: &str, text: &str) -> anyhow::Result<Instant> {
    node.server.release(pv);
    let released = Instant::now();
    screen.cause("released", &format!("the claim is deleted; {text}"))?;
    Ok(released)
}

/// Waits until the volume is offered again, and tells what the API server saw in between.
async fn reclaimed(
    screen: &Screen,
    node: &DemoNode,
    pv: &str,
    old: &Value,
    cause: Instant,
) -> anyhow::Result<Value> {
    let uid = text(old, "/metadata/uid");
    let new = node.until_available(pv, uid).await?;
    let after = cause.elapsed();
    let seen = node.server.changes_of("persistentvolumes", pv);
    let began = moment(&seen, uid, |change| cleaning(change) == "started");
    let wiped = moment(&seen, uid, |change| cleaning(change) == "wiped");
    let gone = moment(&seen, uid, |change| change.kind == ChangeKind::Deleted);
    let (Some(began), Some(wiped), Some(gone)) = (began, wiped, gone) else {
        anyhow::bail!("{pv} was offered again without a proven wipe");
    };
    ensure!(
        began <= wiped && wiped <= gone,
        "{pv} went before its wipe was proven"
    );
    let note = node.until_event(pv, "Wiped").await?;
    // The API server has seen all of it by now; its clock tells how long before.
    let last = seen.last().map_or(gone, |change| change.at);
    let wiped_after = after.saturating_sub(last.saturating_sub(wiped));
    screen.effect(
        wiped_after,
        "wiped",
        &format!(
            "{note}; {} from the record that it begins to the record of its proof",
            millis(wiped - began)
        ),
    )?;
    let short = |object: &Value| {
        text(object, "/metadata/uid")
            .chars()
            .take(8)
            .collect::<String>()
    };
    screen.effect(
        after,
        "offered again",
        &format!(
            "{pv} is Available, another object: UID {}.. was {}..",
            short(&new),
            short(old)
        ),
    )?;
    Ok(new)
}

fn moment(seen: &[Change], uid: &str, is_it: impl Fn(&Change) -> bool) -> Option<Duration> {
    let of_uid = |change: &&Change| text(&change.object, "/metadata/uid") == uid;
    seen.iter()
        .filter(of_uid)
        .find(|change| is_it(change))
        .map(|change| change.at)
}

/// The state in the record that the daemon keeps on the volume while it wipes.
fn cleaning(change: &Change) -> String {
    let record = text(
        &change.object,
        "/metadata/annotations/provisor.dev~1cleaning",
    );
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    text(&record, "/state").to_owned()
}

fn empty(screen: &Screen, point: &Path) -> anyhow::Result<()> {
    let left = census(point)?;
    ensure!(
        left == Data::default(),
        "the volume was offered with {} in it",
        contents(left)
    );
    screen.cause("verified", "looked itself: the directory is empty")
}

fn offer(pv: &Value) -> String {
    format!(
        "{} is Available: {}, {}, policy {}",
        text(pv, "/metadata/name"),
        text(pv, "/spec/capacity/storage"),
        text(pv, "/spec/volumeMode"),
        text(pv, "/spec/persistentVolumeReclaimPolicy"),
    )
}

fn contents(data: Data) -> String {
    let (files, directories) = (count(data.files), count(data.directories));
    format!(
        "{files} files in {directories} directories, {} bytes",
        count(data.bytes)
    )
}

/// Without the demo's own directory, which says nothing to anybody.
fn shorten(text: &str, dir: &Path) -> String {
    text.replace(&format!("{}/", dir.display()), "")
}

/// `/status` in a line.
fn summary(status: &Value) -> String {
    let mut parts = Vec::new();
    let classes = status.pointer("/classes").and_then(Value::as_object);
    for (class, facts) in classes.into_iter().flatten() {
        let entries = facts.pointer("/entries").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let mut part = format!(
                "{class}/{} {}",
                text(entry, "/entry"),
                text(entry, "/outcome")
            );
            if let Some(reason) = entry.pointer("/reason").and_then(Value::as_str) {
                part += &format!(" ({reason})");
            }
            parts.push(part);
        }
    }
    parts.join("; ")
}
