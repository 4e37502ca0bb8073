//! The root directory outlives its contents, with all that a tenant did to it (W-32): the kubelet
//! skips the recursive change of group where the root already looks right.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};

use crate::sys::inode;

/// What a tenant can have set and `mkfs` does not. Flags of the filesystem's own (extents, encryption,
/// no copy-on-write) are not touched, and neither is project inheritance: that is how an
/// administrator limits the size of a volume, and clearing it would lift the limit for good.
const UNWANTED_FLAGS: libc::c_int = inode::IMMUTABLE
    | inode::APPEND
    | inode::NODUMP
    | inode::NOATIME
    | inode::SYNC
    | inode::DIRSYNC;

/// Makes `dir` root's, with `mode`, without ACLs, attributes of users, and flags.
pub(super) fn root(dir: &OwnedFd, mode: u32) -> Result<(), Errno> {
    inode::clear_flags(dir, UNWANTED_FLAGS)?;
    for name in inode::xattrs(dir)? {
        if is_tenants(&name) {
            inode::remove_xattr(dir, &name)?;
        }
    }
    fchown(dir, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
    // Last: a change of owner clears bits, and an ACL shadows the group's.
    fchmod(dir, Mode::from_bits_truncate(mode))
}

/// Whether an attribute is a tenant's. Labels of security modules are the host's policy.
fn is_tenants(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || name == b"security.capability"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_security_modules_stay() {
        for name in [
            c"user.a",
            c"system.posix_acl_default",
            c"system.posix_acl_access",
            c"security.capability",
        ] {
            assert!(is_tenants(name), "{name:?}");
        }
        for name in [c"security.selinux", c"security.ima", c"trusted.x", c"users"] {
            assert!(!is_tenants(name), "{name:?}");
        }
    }
}
