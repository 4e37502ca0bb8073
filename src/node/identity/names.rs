//! The names of a disk that survive a reboot: WWN, serial number, partition UUID.
//!
//! Vendors ship disks with made-up names, and udev and sysfs spell the same name differently; so every
//! name is brought to one spelling, and one that says nothing is no name.

use std::cell::OnceCell;
use std::path::Path;

use udev::{Device, DeviceType};

use super::{read_attribute, read_text};
use crate::volume::DevNum;

/// What firmware writes when nobody gave the disk a serial number.
const PLACEHOLDERS: &[&str] = &[
    "none",
    "null",
    "na",
    "unknown",
    "notspecified",
    "defaultstring",
    "tobefilledbyoem",
    "serialnumber",
    "123456789",
    "0123456789",
    "0123456789abcdef",
];

/// Where udev keeps its records: for each block device a file `b<major>:<minor>`.
const RECORDS: &str = "/run/udev/data";

/// udev's record of a device, if there is one. Looked for once something is asked of it: libudev asks sysfs much
/// that nobody wants to know.
pub(super) struct Database {
    number: DevNum,
    record: OnceCell<Option<Device>>,
}

impl Database {
    pub(super) fn of(number: DevNum) -> Self {
        Self {
            number,
            record: OnceCell::new(),
        }
    }

    fn record(&self) -> Option<&Device> {
        let read = || {
            let has_one = Path::new(RECORDS)
                .join(format!("b{}", self.number))
                .exists();
            let open = || Device::from_devnum(DeviceType::Block, self.number.to_raw()).ok();
            has_one.then(open).flatten()
        };
        self.record.get_or_init(read).as_ref()
    }

    /// `ID_FS_UUID`: what a probe saw on the device.
    pub(super) fn filesystem_uuid(&self) -> Option<String> {
        let uuid = self.property("ID_FS_UUID")?;
        Some(uuid.to_ascii_lowercase())
    }

    fn property(&self, name: &str) -> Option<String> {
        let text = self.record()?.property_value(name)?.to_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// The World Wide Name of the disk in `disk_dir`.
pub(super) fn wwn(disk_dir: &Path, database: &Database) -> Option<String> {
    // NVMe has it on the namespace, SCSI on the unit below it. SCSI units without a WWN show a "t10."
    // text of model and serial there, which is not one.
    ["wwid", "device/wwid"]
        .iter()
        .filter_map(|file| read_text(&disk_dir.join(file)))
        .filter(|text| !text.starts_with("t10."))
        .chain(
            ["ID_WWN_WITH_EXTENSION", "ID_WWN"]
                .iter()
                .filter_map(|key| database.property(key)),
        )
        .find_map(|text| normal_wwn(&text))
}

fn normal_wwn(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let bare = ["naa.", "eui.", "uuid.", "0x"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(&text);
    meaningful(bare).then(|| bare.replace(char::is_whitespace, "_"))
}

/// The serial number of the disk in `disk_dir`.
pub(super) fn serial(disk_dir: &Path, database: &Database) -> Option<String> {
    // The UUID of a device mapper volume is as good as a serial number, and its disk's serial number
    // would be that of all volumes on it.
    if let Some(uuid) = read_text(&disk_dir.join("dm/uuid")).filter(|uuid| meaningful(uuid)) {
        return Some(format!("dm-{uuid}"));
    }
    let text = ["serial", "device/serial"]
        .iter()
        .filter_map(|file| read_text(&disk_dir.join(file)))
        .chain(scsi_serial(disk_dir))
        .chain(
            ["MD_UUID", "ID_SERIAL_SHORT", "ID_SERIAL"]
                .iter()
                .filter_map(|key| database.property(key)),
        )
        .find(|text| meaningful(text))?;
    let serial = text.trim().replace(char::is_whitespace, "_");
    // All namespaces of an NVMe controller show the controller's serial number.
    Some(match read_text(&disk_dir.join("nsid")) {
        Some(namespace) => format!("{serial}-ns{namespace}"),
        None => serial,
    })
}

/// The unit serial number page of a SCSI or ATA disk: a header of four bytes, then the text.
fn scsi_serial(disk_dir: &Path) -> Option<String> {
    let page = read_attribute(&disk_dir.join("device/vpd_pg80"))?;
    let text = String::from_utf8_lossy(page.get(4..)?);
    Some(
        text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
            .to_owned(),
    )
}

/// The UUID of the partition in `dir`.
pub(super) fn partition_uuid(dir: &Path, database: &Database) -> Option<String> {
    let uevent = read_text(&dir.join("uevent")).unwrap_or_default();
    uevent
        .lines()
        .find_map(|line| line.strip_prefix("PARTUUID=").map(str::to_owned))
        .or_else(|| database.property("ID_PART_ENTRY_UUID"))
        .map(|uuid| uuid.trim().to_ascii_lowercase())
        .filter(|uuid| meaningful(uuid))
}

/// Whether a name can tell one disk from another.
fn meaningful(text: &str) -> bool {
    let bare: String = text
        .chars()
        .filter(|c| c.is_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let mut chars = bare.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    let is_one_char = chars.all(|c| c == first);
    !is_one_char && !PLACEHOLDERS.contains(&bare.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fs;

    #[rstest]
    #[case("S4EVNX0R123456", true)]
    #[case("disk-1", true)]
    #[case("", false)]
    #[case("0", false)]
    #[case(" 0000-0000 ", false)]
    #[case("FFFFFFFF", false)]
    #[case("None", false)]
    #[case("N/A", false)]
    #[case("To Be Filled By O.E.M.", false)]
    fn placeholders_are_no_names(#[case] text: &str, #[case] want: bool) {
        assert_eq!(meaningful(text), want, "{text:?}");
    }

    #[rstest]
    #[case("naa.5000C500A1B2C3D4", Some("5000c500a1b2c3d4"))]
    #[case("0x5000c500a1b2c3d4", Some("5000c500a1b2c3d4"))]
    #[case("eui.0025388b91d01f3a", Some("0025388b91d01f3a"))]
    #[case("0x0000000000000000", None)]
    fn udev_and_sysfs_agree_on_a_wwn(#[case] text: &str, #[case] want: Option<&str>) {
        assert_eq!(normal_wwn(text).as_deref(), want);
    }

    #[test]
    fn names_are_read_from_sysfs() {
        let disk = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = disk.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let nothing = Database::of(DevNum {
            major: 4000,
            minor: 1,
        });
        assert_eq!(serial(disk.path(), &nothing), None);
        write("device/wwid", "t10.ATA     Disk  1234\n");
        assert_eq!(wwn(disk.path(), &nothing), None);
        write("device/vpd_pg80", "\0\u{0}\0\u{8} Z1D2E3F4\0");
        assert_eq!(serial(disk.path(), &nothing).as_deref(), Some("Z1D2E3F4"));
        write("device/serial", "  S4EV 01  \n");
        assert_eq!(serial(disk.path(), &nothing).as_deref(), Some("S4EV_01"));
        write("nsid", "2\n");
        assert_eq!(
            serial(disk.path(), &nothing).as_deref(),
            Some("S4EV_01-ns2")
        );
        write("dm/uuid", "LVM-abc\n");
        assert_eq!(serial(disk.path(), &nothing).as_deref(), Some("dm-LVM-abc"));
        write("uevent", "DEVTYPE=partition\nPARTUUID=AB-01\n");
        assert_eq!(
            partition_uuid(disk.path(), &nothing).as_deref(),
            Some("ab-01")
        );
    }
}
