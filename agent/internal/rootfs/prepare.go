package rootfs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/reap"
)

// warmLimit bounds the warm-up shell. The shell is the image's program, and the host waits 15 s for an answer.
const warmLimit = 8 * time.Second

// Prepare builds the root while the template is made, so that no sandbox spends time on it. The disks are not those
// with which the guest booted. Prepare runs a shell in the root, so that clones have in the page cache what their first
// command needs. It reports whether the image has /bin/sh.
func (r *Root) Prepare(reaper *reap.Reaper, null *os.File) (hasShell bool, err error) {
	if err := rereadDisks("/sys"); err != nil {
		return false, err
	}
	if err := r.Switch(); err != nil {
		return false, err
	}
	if hasShell, err = isProgram("/", "/bin/sh"); err != nil || !hasShell {
		return hasShell, err
	}
	return true, runWarming(reaper, null)
}

// isProgram reports whether path is an executable file. It resolves path as a process inside root would: /bin/sh is
// often an absolute symlink.
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
		// The program is missing or a dangling link; both mean that it cannot run.
		return false, nil
	}
	var info unix.Stat_t
	err = unix.Fstat(program, &info)
	const anyExecute = 0o111
	isRegular := info.Mode&unix.S_IFMT == unix.S_IFREG
	return isRegular && info.Mode&anyExecute != 0, errors.Join(err, unix.Close(program))
}

func runWarming(reaper *reap.Reaper, null *os.File) error {
	child, err := reaper.Start("/bin/sh", []string{"sh", "-c", "true"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
	})
	if err != nil {
		// For example, the image is of another architecture. exec will explain it; a template is still possible.
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
