package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, kind string
	flags                uintptr
	options              string
}

// mountAt creates the target directory if it is missing, and mounts there. Use it only for directories that the agent
// has made or checked, not for the image's.
func mountAt(m mount) error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

const noProgramsOrDevices = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// system lists the mounts that the agent needs in the initramfs and the guest needs in its root. They are moved there:
// they are made once, in the template, so no sandbox spends time on them.
var system = []mount{
	{"proc", "/proc", "proc", noProgramsOrDevices, ""},
	{"sysfs", "/sys", "sysfs", noProgramsOrDevices, ""},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", noProgramsOrDevices, "nsdelegate"},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
	{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"mqueue", "/dev/mqueue", "mqueue", noProgramsOrDevices, ""},
}

// systemPoints are the top-level mount points of system.
var systemPoints = []string{"/proc", "/sys", "/dev"}

// runMount is mounted twice: once for the initramfs and once for the guest.
var runMount = mount{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"}

// deviceLinks are the symlinks that programs expect in /dev in addition to the kernel's nodes.
var deviceLinks = map[string]string{
	"/dev/fd":     "/proc/self/fd",
	"/dev/stdin":  "/proc/self/fd/0",
	"/dev/stdout": "/proc/self/fd/1",
	"/dev/stderr": "/proc/self/fd/2",
}

// MountSystem makes the mounts of the initramfs and the links in /dev.
func MountSystem() error {
	for _, m := range append(system, runMount) {
		if err := mountAt(m); err != nil {
			return err
		}
	}
	for link, target := range deviceLinks {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// ensureDirectory makes path, below root, a directory. It removes anything else that has that name, also a symlink: a
// mount through the image's symlink would land somewhere else.
func ensureDirectory(root, path string) error {
	full := filepath.Join(root, path)
	info, err := os.Lstat(full)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		if err := os.Remove(full); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.MkdirAll(full, 0o755)
}

// isMountPoint compares device numbers: every mount made here is of a different file system than its parent directory.
func isMountPoint(path string) (bool, error) {
	var here, above unix.Stat_t
	err := unix.Lstat(path, &here)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat %s: %w", path, err)
	}
	if here.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil
	}
	if err := unix.Stat(filepath.Dir(path), &above); err != nil {
		return false, fmt.Errorf("stat %s: %w", filepath.Dir(path), err)
	}
	return here.Dev != above.Dev, nil
}
