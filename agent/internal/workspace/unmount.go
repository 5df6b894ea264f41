package workspace

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	// ioctlShutdown is EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32); shutdownAtOnce makes it write nothing out.
	ioctlShutdown  = 0x8004587d
	shutdownAtOnce = 2

	unmountInterval = 5 * time.Millisecond
	// thoroughAfter is the part of the limit after which processes in other mount namespaces are ended, too.
	thoroughAfter = 3
)

// Unmount ends the processes that use the disk and unmounts it. abandon gives up what is not written out, for a guest
// whose disk has another content by now. The kernel may still write to the disk a little, and trims what the guest had
// deleted, so the host must have put a disk in its place whose content is not needed. A disk that is not mounted stays so.
func (w *Workspace) Unmount(limit time.Duration, abandon bool) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	path, err := w.find()
	if err != nil {
		return err
	}
	top, err := w.take()
	if top == nil || err != nil {
		return err
	}
	if abandon {
		if err := unix.IoctlSetPointerInt(int(top.Fd()), ioctlShutdown, shutdownAtOnce); err != nil {
			slog.Warn("the file system at /workspace is written out although it was given up", "error", err)
		}
	}
	var state unix.Stat_t
	if err := errors.Join(unix.Fstat(int(top.Fd()), &state), top.Close()); err != nil {
		return err
	}
	err = release(path, state.Dev, limit)
	if err != nil {
		w.restore(state.Dev)
	}
	return err
}

// take makes the mounted file system unknown to all later requests. Requests in progress keep it in use.
func (w *Workspace) take() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		return nil, errFrozen()
	}
	top := w.top
	w.top = nil
	return top, nil
}

// restore undoes take if the file system is still mounted at its place.
func (w *Workspace) restore(device uint64) {
	top, err := openTop(pointIn(w.root))
	if err != nil {
		return
	}
	var state unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &state); err != nil || state.Dev != device {
		_ = top.Close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.top = top
}

// release unmounts a device everywhere, and ends the processes that use it until that succeeds.
func release(path string, device uint64, limit time.Duration) error {
	start := time.Now()
	for {
		users, err := endUsers(device, time.Since(start) > limit/thoroughAfter)
		if err != nil {
			return err
		}
		mounts, err := unmountAll(device)
		if err != nil {
			return err
		}
		if users == 0 && mounts == 0 && !isInUse(path) {
			return nil
		}
		if time.Since(start) > limit {
			return fault.New(fault.InvalidState, "the disk at /workspace is still in use after %v (processes: %d, mounts: %d); "+
				"another mount, a loop device or swap may use it", limit, users, mounts)
		}
		time.Sleep(unmountInterval)
	}
}

// unmountAll unmounts the device and what is mounted below it, the newest mount first, and returns how many mounts are
// left.
func unmountAll(device uint64) (left int, err error) {
	table, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	wanted := selectMounts(table, device)
	for i := len(wanted) - 1; i >= 0; i-- {
		if err := unix.Unmount(wanted[i].point, unix.UMOUNT_NOFOLLOW); err != nil {
			slog.Debug("not unmounted yet", "point", wanted[i].point, "error", err)
			left++
		}
	}
	return left, nil
}

// isInUse reports whether a file system in any mount namespace, or another part of the kernel, holds the device.
func isInUse(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = unix.Close(fd)
	return false
}
