package rootfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const upperName = "upper"

// OpenUpper opens the directory of the scratch disk that has what differs from the image.
func (r *Root) OpenUpper() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scratch == nil {
		return nil, errors.New("there is no scratch disk")
	}
	fd, err := unix.Openat(int(r.scratch.Fd()), upperName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: upperName, Err: err}
	}
	return os.NewFile(uintptr(fd), upperName), nil
}
