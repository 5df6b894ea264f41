package rootfs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/reap"
)

// warmLimit bounds the warming shell: it is the image's program.
const warmLimit = 30 * time.Second

// Prepare mounts the image and warms the page cache, so that clones of the template find there what their first
// command needs. It reports whether the image has /bin/sh.
func (r *Root) Prepare(reaper *reap.Reaper, null *os.File) (hasShell bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.switched {
		return false, fault.New(fault.InvalidState, "the guest has been resumed; prepare belongs into the template")
	}
	if err := r.mountImage(); err != nil {
		return false, fmt.Errorf("image: %w", err)
	}
	if hasShell, err = isProgram(imagePoint, "/bin/sh"); err != nil || !hasShell {
		return hasShell, err
	}
	return true, warm(reaper, null)
}

// isProgram resolves path as a process inside of root would: /bin/sh is often an absolute symlink.
func isProgram(root, path string) (bool, error) {
	directory, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", root, err)
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	program, openErr := unix.Openat2(directory, path, how)
	if err := unix.Close(directory); err != nil {
		return false, err
	}
	if openErr != nil {
		// Missing, or a dangling link; both mean that nothing can be run.
		return false, nil
	}
	var info unix.Stat_t
	err = unix.Fstat(program, &info)
	const anyExecute = 0o111
	isRegular := info.Mode&unix.S_IFMT == unix.S_IFREG
	return isRegular && info.Mode&anyExecute != 0, errors.Join(err, unix.Close(program))
}

func warm(reaper *reap.Reaper, null *os.File) (err error) {
	writable := warmPoint + "/writable"
	root := warmPoint + "/root"
	defer func() {
		err = errors.Join(err, unix.Unmount(root, unix.MNT_DETACH), unix.Unmount(writable, unix.MNT_DETACH))
	}()
	if err := mountAt(mount{"tmpfs", writable, "tmpfs", 0, ""}); err != nil {
		return err
	}
	if err := mountOverlay(writable, root); err != nil {
		return err
	}
	return runWarming(reaper, root, null)
}

func runWarming(reaper *reap.Reaper, root string, null *os.File) error {
	child, err := reaper.Start("/bin/sh", []string{"sh", "-c", "true"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Chroot: root},
	})
	if err != nil {
		// Of another architecture, say: exec will explain it; a template is still possible.
		slog.Warn("the image's shell does not start", "error", err)
		return nil
	}
	select {
	case <-child.Ended():
		return nil
	case <-time.After(warmLimit):
		slog.Warn("the image's shell did not end", "limit", warmLimit)
	}
	if err := child.SignalGroup(syscall.SIGKILL); err != nil && !errors.Is(err, reap.ErrEnded) {
		return err
	}
	<-child.Ended()
	return nil
}
