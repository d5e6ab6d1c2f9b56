//! `Root`: opens files below a folder, and none outside it.
//!
//! The kernel resolves names with `openat2` and its rules: beneath the root, without links unless they are wanted. Where
//! it does not have that call, each component is opened from the one before, and no link is followed.
//!
//! A file is opened for reading without waiting: a FIFO without a writer does not block. The kind of the opened file is
//! checked afterwards, so nothing can be exchanged in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2};
use rustix::io::Errno;

/// A folder, held open.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
    has_links: bool,
    /// The kernel has no `openat2`, or a sandbox denies it.
    by_component: AtomicBool,
}

/// The target of a name.
#[derive(Debug)]
pub(super) enum FolderEntry {
    File(File, Identity),
    Folder(OwnedFd),
    /// Nothing that is served: absent, outside the root, a link, a device, a FIFO, a socket.
    Absent,
}

/// An identity that changes with the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) inode: u64,
    pub(super) device: u64,
    pub(super) length: u64,
    /// Seconds and nanoseconds since 1970 of the last change of the content.
    pub(super) modified: (i64, u32),
    /// The same of the last change of the content or of the attributes.
    changed: (i64, u32),
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            device: stat.st_dev,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }
}

impl Root {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let folder = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { folder, has_links: false, by_component: AtomicBool::new(false) })
    }

    /// The same folder, whose links are followed as far as they stay within it.
    pub(super) fn follow_links(&self, has_links: bool) -> io::Result<Self> {
        let folder = self.folder.try_clone()?;
        Ok(Self { folder, has_links, by_component: AtomicBool::new(self.by_component.load(Ordering::Relaxed)) })
    }

    pub(super) fn has_links(&self) -> bool {
        self.has_links
    }

    /// Opens a name: segments with slashes between them, none of them `.`, `..` or empty; the root for an empty one.
    pub(super) fn open(&self, name: &str) -> io::Result<FolderEntry> {
        let name = if name.is_empty() { "." } else { name };
        let file = match self.resolve(name) {
            Ok(file) => file,
            Err(error) if is_absent(error) => return Ok(FolderEntry::Absent),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FolderEntry::File(file.into(), Identity::of(&stat)),
            FileType::Directory => FolderEntry::Folder(file),
            _ => FolderEntry::Absent,
        })
    }

    fn resolve(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        if self.by_component.load(Ordering::Relaxed) {
            return self.resolve_by_component(name);
        }
        let links = if self.has_links { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links;
        let mut attempts = 0;
        loop {
            match openat2(&self.folder, name, READ, Mode::empty(), rules) {
                // A folder was renamed meanwhile, so that the kernel cannot tell where the name leads.
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS_MAX => attempts += 1,
                // `EPERM` is the answer of sandboxes that are older than the call.
                Err(Errno::NOSYS | Errno::PERM) => {
                    let result = self.resolve_by_component(name);
                    if result.is_ok() {
                        self.by_component.store(true, Ordering::Relaxed);
                    }
                    return result;
                }
                other => return other,
            }
        }
    }

    /// Opens each folder from the one before. A link at any place is an error.
    fn resolve_by_component(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let mut folder: Option<OwnedFd> = None;
        let (folders, last) = name.rsplit_once('/').unwrap_or(("", name));
        for segment in folders.split('/').filter(|segment| !segment.is_empty()) {
            let from: BorrowedFd<'_> = folder.as_ref().unwrap_or(&self.folder).as_fd();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = Some(openat(from, segment, flags, Mode::empty())?);
        }
        let from = folder.as_ref().unwrap_or(&self.folder);
        openat(from, last, READ | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// Whether an error means that there is nothing to be served.
fn is_absent(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::INVAL
            | Errno::NODEV
    )
}

/// For reading, at once, and without side effects.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// How often a name is resolved anew while folders are renamed.
const ATTEMPTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidegate-open-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("root/inner")).unwrap();
            fs::write(path.join("secret"), "secret").unwrap();
            fs::write(path.join("root/inner/file"), "file").unwrap();
            symlink("inner/file", path.join("root/link")).unwrap();
            symlink("inner", path.join("root/folder-link")).unwrap();
            symlink("../secret", path.join("root/out")).unwrap();
            symlink(path.join("secret"), path.join("root/out-absolute")).unwrap();
            symlink("/proc/self/exe", path.join("root/magic")).unwrap();
            symlink("loop", path.join("root/loop")).unwrap();
            Self(path)
        }

        fn root(&self, has_links: bool, by_component: bool) -> Root {
            let root = Root::new(&self.0.join("root")).unwrap().follow_links(has_links).unwrap();
            root.by_component.store(by_component, Ordering::Relaxed);
            root
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn is_file(root: &Root, name: &str) -> bool {
        matches!(root.open(name), Ok(FolderEntry::File(..)))
    }

    #[test]
    fn only_files_below_the_root_are_opened() {
        let folder = Folder::new("below");
        for by_component in [false, true] {
            for has_links in [false, true] {
                let root = folder.root(has_links, by_component);
                assert!(is_file(&root, "inner/file"));
                assert!(matches!(root.open("").unwrap(), FolderEntry::Folder(_)));
                assert!(matches!(root.open("inner").unwrap(), FolderEntry::Folder(_)));
                for name in ["out", "out-absolute", "magic", "loop", "absent", "inner/file/more", "inner/absent"] {
                    assert!(matches!(root.open(name), Ok(FolderEntry::Absent)), "{name} {by_component} {has_links}");
                }
                let follows = has_links && !by_component;
                assert_eq!(is_file(&root, "link"), follows);
                assert_eq!(is_file(&root, "folder-link/file"), follows);
            }
        }
    }

    #[test]
    fn the_kernel_refuses_to_leave_the_root_even_if_a_name_were_not_checked() {
        let folder = Folder::new("unchecked");
        let root = folder.root(true, false);
        for name in ["../secret", "inner/../../secret", "/etc/passwd"] {
            assert!(matches!(root.open(name), Ok(FolderEntry::Absent)), "{name}");
        }
    }
}
