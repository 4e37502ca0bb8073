//! The rules that hold at every moment, checked against each change that the API server saw.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::model::{Id, Kind, Model, Place, Pv, markers_in};
use crate::support::apiserver::{ApiServer, Change, ChangeKind};
use crate::support::zram::Zram;

/// What a tenant writes on a device.
pub(super) const MARK: &[u8] = b"a tenant was here";

/// Counts for the report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) actions: u64,
    pub(super) quiet_points: u64,
    pub(super) changes: u64,
    pub(super) offers: u64,
    pub(super) tenants: u64,
    pub(super) wipes: u64,
    pub(super) restarts: u64,
    pub(super) faults: u64,
    /// The longest time that it took to come to rest.
    pub(super) longest: Duration,
}

/// What the change log has told so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The version up to which the log was read.
    read: u64,
    uids: BTreeSet<String>,
    /// PersistentVolumes that the soak took away by hand: their disk is gone for good.
    pub(super) given_up: BTreeSet<String>,
    /// The specs of bound volumes.
    bound: BTreeMap<String, Value>,
    pub(super) counts: Counts,
}

impl Judge {
    /// Reads what is new in the log. An error is a broken rule.
    pub(super) fn read(&mut self, server: &ApiServer, model: &mut Model) -> Result<(), String> {
        for change in server.changes_since(self.read) {
            self.read = change.version;
            if change.resource == "persistentvolumes" {
                self.counts.changes += 1;
                self.judge(&change, model)
                    .map_err(|rule| format!("{rule}; {:?} {}", change.kind, change.object))?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, change: &Change, model: &mut Model) -> Result<(), String> {
        let object = &change.object;
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let uid = text("/metadata/uid");
        let place = place_of(model, &text("/spec/local/path"))
            .ok_or("a volume outside of the discovery directories")?;
        if change.kind == ChangeKind::Added {
            self.offered(&uid, &place, object, model)?;
        }
        let Some(pv) = model.pvs.get_mut(&place).filter(|pv| pv.uid == uid) else {
            return Err("a volume that was never offered".into());
        };
        let (was, storage) = (
            std::mem::replace(&mut pv.phase, text("/status/phase")),
            pv.storage,
        );
        pv.is_deleted = object.pointer("/metadata/deletionTimestamp").is_some();
        let phase = pv.phase.clone();
        if change.kind == ChangeKind::Deleted {
            return self.deleted(&place, storage, &phase, model);
        }
        match (was.as_str(), phase.as_str()) {
            (_, "Available") if was != phase => {
                if !["", "Pending"].contains(&was.as_str()) {
                    return Err(format!("it went from {was} to Available"));
                }
                clean(model, storage, "it is Available")?;
            }
            (_, "Bound") => {
                let mut spec = object["spec"].clone();
                spec["claimRef"] = Value::Null;
                let then = self.bound.entry(uid).or_insert_with(|| spec.clone());
                if *then != spec {
                    return Err(format!("a bound volume was changed from {then}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn offered(
        &mut self,
        uid: &str,
        place: &Place,
        object: &Value,
        model: &mut Model,
    ) -> Result<(), String> {
        self.counts.offers += 1;
        if !self.uids.insert(uid.to_owned()) {
            return Err("a UID for the second time".into());
        }
        let record = object["metadata"]["annotations"]["provisor.dev/identity"]
            .as_str()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            .ok_or("a volume without a record")?;
        let seen = model.seen.get(place);
        let storage = seen
            .into_iter()
            .flat_map(|seen| seen.keys())
            .copied()
            .find(|id| model.storages[*id].record == record)
            .ok_or_else(|| {
                let was = seen.into_iter().flatten();
                let was: Vec<_> = was
                    .map(|(id, last)| (&model.storages[*id].record, last.elapsed()))
                    .collect();
                format!("what was offered was not at this entry, which was {was:?}")
            })?;
        if let Some(other) = model.pvs.get(place) {
            return Err(format!("its entry has {} already", other.name));
        }
        if let Some((other, pv)) = model.holder(storage) {
            return Err(format!("its storage has {} at {other:?} already", pv.name));
        }
        let wanted = &model.storages[storage].capacity;
        if object["spec"]["capacity"]["storage"] != **wanted {
            return Err(format!("its capacity should be {wanted}"));
        }
        let mode = if model.classes[place.0].is_block {
            "Block"
        } else {
            "Filesystem"
        };
        if object["spec"]["volumeMode"] != mode {
            return Err(format!("its mode should be {mode}"));
        }
        let pv = Pv {
            name: object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            uid: uid.to_owned(),
            storage,
            phase: String::new(),
            is_deleted: false,
        };
        model.pvs.insert(place.clone(), pv);
        Ok(())
    }

    fn deleted(
        &mut self,
        place: &Place,
        storage: Id,
        phase: &str,
        model: &mut Model,
    ) -> Result<(), String> {
        let Some(pv) = model.pvs.remove(place) else {
            return Ok(());
        };
        self.bound.remove(&pv.uid);
        if self.given_up.contains(&pv.uid) {
            model.storages[storage].tenant = None;
            return Ok(());
        }
        if phase == "Bound" {
            return Err("a bound volume was deleted".into());
        }
        if phase == "Released" {
            self.counts.wipes += 1;
            wiped(model, storage)?;
        }
        clean(model, storage, "it was deleted")?;
        model.storages[storage].tenant = None;
        Ok(())
    }
}

fn place_of(model: &Model, path: &str) -> Option<Place> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let class = model
        .classes
        .iter()
        .position(|class| Some(class.dir.as_path()) == path.parent())?;
    Some((class, name.to_owned()))
}

/// A device that was wiped is zero from end to end, whatever else it was before.
fn wiped(model: &mut Model, storage: Id) -> Result<(), String> {
    let Kind::Disk(bay) = model.storages[storage].kind else {
        return Ok(());
    };
    if model.media[bay] != Some(storage) {
        return Ok(());
    }
    // What was a filesystem is none any more.
    if let Some(filesystem) = model.filesystems[bay].take() {
        model.storages[filesystem].is_alive = false;
    }
    let image = fs::read(&model.bays[bay].image).map_err(|error| error.to_string())?;
    match image.iter().position(|byte| *byte != 0) {
        Some(at) => Err(format!(
            "it was let go, but byte {at} of its device is not zero"
        )),
        None => Ok(()),
    }
}

/// An error when anything of a tenant is on the storage. What can't be seen now is looked at later.
pub(super) fn clean(model: &mut Model, storage: Id, when: &str) -> Result<(), String> {
    match residue(model, storage) {
        Some(left) if left.is_empty() => model.storages[storage].is_unproven = false,
        Some(left) => {
            return Err(format!(
                "{when}, and of a tenant there is {}",
                left.join(", ")
            ));
        }
        None => model.storages[storage].is_unproven = true,
    }
    Ok(())
}

/// What is left of tenants; `None` when it can't be seen.
pub(super) fn residue(model: &Model, storage: Id) -> Option<Vec<String>> {
    let shown = |paths: Vec<PathBuf>| {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    match &model.storages[storage].kind {
        Kind::Tmpfs | Kind::Ext4(_) => Some(shown(markers_in(&model.view_of(storage)?))),
        Kind::Dir(source) => Some(shown(markers_in(source))),
        Kind::Disk(bay) => {
            (model.media[*bay] == Some(storage)).then(|| marks(&model.bays[*bay].image))?
        }
        Kind::Zram(number) => {
            (model.zrams.get(number) == Some(&storage)).then(|| marks(&Zram::node(*number)))?
        }
    }
}

/// Places of a device's marks: its start, its middle, its end.
pub(super) fn places(size: u64) -> [u64; 3] {
    [0, size / 2, size - MARK.len() as u64]
}

fn marks(device: &Path) -> Option<Vec<String>> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(device).ok()?;
    let size = file.seek(SeekFrom::End(0)).ok()?;
    let mut buffer = vec![0; MARK.len()];
    let mut found = Vec::new();
    for place in places(size) {
        file.read_exact_at(&mut buffer, place).ok()?;
        if buffer == MARK {
            found.push(format!("{}, byte {place}", device.display()));
        }
    }
    Some(found)
}
