package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	socketMode = 0o666
	// firstFreeDescriptor is above all that a child inherits by number.
	firstFreeDescriptor = 64
)

// Listen makes the listening socket. Every VMM may connect; who may reach the socket is up to its directory. A socket of
// an earlier process is removed.
func Listen(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists, and is no socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing the socket of an earlier process: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, fmt.Errorf("opening the socket to all users: %w", err)
	}
	return listener.File()
}

// BecomeUnprivileged gives up root for good. uid 0 is refused.
func BecomeUnprivileged(uid int) error {
	if uid <= 0 {
		return fmt.Errorf("user id %d: must be that of an unprivileged user", uid)
	}
	if os.Geteuid() == 0 {
		steps := []func() error{
			func() error { return syscall.Setgroups(nil) },
			func() error { return syscall.Setresgid(uid, uid, uid) },
			func() error { return syscall.Setresuid(uid, uid, uid) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("becoming user %d: %w", uid, err)
			}
		}
	}
	real, effective, saved := unix.Getresuid()
	if real != uid || effective != uid || saved != uid || syscall.Setuid(0) == nil {
		return fmt.Errorf("becoming user %d: the process is still user %d", uid, effective)
	}
	return nil
}

// openAbove opens a file with a descriptor of at least a number.
func openAbove(path string, number int) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return -1, err
	}
	defer file.Close()
	descriptor, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, number)
	if err != nil {
		return -1, fmt.Errorf("keeping %s open: %w", path, err)
	}
	return descriptor, nil
}
