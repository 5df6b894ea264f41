package rootfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CreateNameless creates a file without a name on the scratch disk, for the agent alone. It is gone when it is closed.
func (r *Root) CreateNameless() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scratch == nil {
		return nil, errors.New("there is no scratch disk for a file")
	}
	file, err := unix.Openat(int(r.scratch.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: scratchPoint, Err: err}
	}
	return os.NewFile(uintptr(file), "nameless"), nil
}
