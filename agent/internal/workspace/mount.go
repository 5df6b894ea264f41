package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/rootfs"
)

// mountOptions are those of the persistent disk. discard: deleted blocks need no space in the object store.
// noinit_itable: blocks that were never written read as zero, so a kernel thread need not write inode tables, all of
// which would be stored. no_prefetch_block_bitmaps: each bitmap that is read ahead is a read of the object store.
// noauto_da_alloc, which the scratch disk has, is missing on purpose: this disk outlives a crash. Programs, devices and
// set-id bits are allowed, as at /workspace without a disk.
const mountOptions = "discard,noinit_itable,no_prefetch_block_bitmaps,errors=remount-ro"

const checkHint = "export the disk and run e2fsck -f on the image"

func unusable(format string, args ...any) error {
	return fault.New(fault.InvalidState, "the disk cannot be mounted at /workspace: %s", fmt.Sprintf(format, args...))
}

func damaged(reason string) error {
	return unusable("its file system is damaged (%s); %s", reason, checkHint)
}

// mountDisk mounts the disk and returns the top directory of its file system.
func (w *Workspace) mountDisk(device string, settings guest.Settings) (top *os.File, err error) {
	// A second mount of a device shows the first one's file system, with what the kernel has cached of it.
	if isInUse(device) {
		return nil, unusable("it is still mounted or otherwise in use; call POST /workspace/unmount first")
	}
	super, deviceBytes, err := readSuperblock(device, true)
	if err != nil {
		return nil, unusable("%v", err)
	}
	if err := super.check(deviceBytes); err != nil {
		return nil, err
	}
	owner := account.ImageOwner(w.root, settings.User)
	directory, below, err := ensurePoint(w.root, owner)
	if err != nil {
		return nil, fmt.Errorf("mount point: %w", err)
	}
	if err := unix.Mount(device, directory, "ext4", unix.MS_NOATIME, mountOptions); err != nil {
		return nil, explainMount(err)
	}
	top, err = openTop(directory)
	if err == nil {
		err = w.prepareMounted(top, device, below)
	}
	if err == nil {
		// The working directory may be below /workspace.
		err = rootfs.EnsureDirectories(w.root, settings.Workdir, owner)
	}
	if err == nil {
		return top, nil
	}
	if top != nil {
		_ = top.Close()
	}
	return nil, errors.Join(err, unix.Unmount(directory, unix.UMOUNT_NOFOLLOW))
}

// check finds what the kernel would only report as "invalid argument", or accept.
func (s superblock) check(deviceBytes uint64) error {
	switch {
	case s.unknownIncompatible != 0 || s.unknownReadOnly != 0:
		return unusable("its ext4 file system has features that need a newer kernel (incompatible %#x, read-only %#x)",
			s.unknownIncompatible, s.unknownReadOnly)
	case s.hasErrors:
		return damaged("an earlier sandbox found errors")
	case s.bytes > deviceBytes:
		return unusable("its file system has %d bytes, but the disk only %d", s.bytes, deviceBytes)
	}
	return nil
}

func explainMount(err error) error {
	switch {
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EBADMSG), errors.Is(err, unix.EINVAL):
		return damaged(err.Error())
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EROFS):
		return unusable("its ext4 file system has features that need a newer kernel: %v", err)
	case errors.Is(err, unix.EIO):
		return unusable("it cannot be read (%v); if that remains, %s", err, checkHint)
	}
	return unusable("%v", err)
}

// ensurePoint makes /workspace a directory and returns its path and state. Anything else of that name is removed: a
// mount through a symlink of the image would land somewhere else.
func ensurePoint(root string, owner account.Identity) (path string, state unix.Stat_t, err error) {
	path = pointIn(root)
	err = unix.Lstat(path, &state)
	if err == nil && state.Mode&unix.S_IFMT == unix.S_IFDIR {
		return path, state, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", state, err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", state, err
	}
	if err := os.Lchown(path, int(owner.UID), int(owner.GID)); err != nil {
		return "", state, err
	}
	return path, state, unix.Lstat(path, &state)
}

func openTop(directory string) (*os.File, error) {
	return os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// prepareMounted makes a file system that has just been mounted ready for use. below is the state of the directory on
// which it is mounted.
func (w *Workspace) prepareMounted(top *os.File, device string, below unix.Stat_t) error {
	if err := checkMounted(top, device); err != nil {
		return err
	}
	if err := w.growToDevice(top, device); err != nil {
		return err
	}
	return adopt(top, below)
}

// checkMounted finds damage that the kernel noticed while it mounted the file system, as from the journal.
func checkMounted(top *os.File, device string) error {
	var info unix.Statfs_t
	if err := unix.Fstatfs(int(top.Fd()), &info); err != nil {
		return err
	}
	if info.Flags&unix.ST_RDONLY != 0 {
		return damaged("the kernel mounts it read-only")
	}
	super, _, err := readSuperblock(device, false)
	if err != nil {
		return err
	}
	if super.hasErrors {
		return damaged("the kernel found errors")
	}
	return nil
}

// growToDevice makes a file system as large as its disk. It leaves one as it is that is of a kind of ext4 that the
// kernel cannot grow.
func (w *Workspace) growToDevice(top *os.File, device string) error {
	super, deviceBytes, err := readSuperblock(device, false)
	if err != nil || super.bytes >= deviceBytes {
		return err
	}
	err = w.resize(top, deviceBytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		slog.Warn("the file system of the disk cannot grow", "error", err)
		return nil
	}
	return err
}

const lostAndFound = "lost+found"

// adopt gives the top directory of a disk that no sandbox has used the owner and mode of the directory below it. It
// removes lost+found, because programs such as git clone want an empty directory; e2fsck makes it anew.
func adopt(top *os.File, below unix.Stat_t) error {
	fresh, err := isFresh(top)
	if err != nil || !fresh {
		return err
	}
	err = unix.Unlinkat(int(top.Fd()), lostAndFound, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", filepath.Join(point, lostAndFound), err)
	}
	if err := top.Chown(int(below.Uid), int(below.Gid)); err != nil {
		return err
	}
	return unix.Fchmod(int(top.Fd()), below.Mode&^unix.S_IFMT)
}

// isFresh reports whether the top directory belongs to root and contains nothing but lost+found.
func isFresh(top *os.File) (bool, error) {
	var state unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &state); err != nil {
		return false, err
	}
	if state.Uid != 0 || state.Gid != 0 {
		return false, nil
	}
	fd, err := unix.Openat(int(top.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("open", err)
	}
	listing := os.NewFile(uintptr(fd), top.Name())
	names, err := listing.Readdirnames(2)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, listing.Close()); err != nil {
		return false, err
	}
	return len(names) == 0 || len(names) == 1 && names[0] == lostAndFound, nil
}
