package serve

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Opener opens overlays.
type Opener interface {
	Open(name string) (*os.File, error)
}

// Beneath opens files below a directory that the runner passes as a descriptor. An escaped QEMU may put a link there.
type Beneath struct {
	Directory int
}

// Open opens a regular file.
func (b Beneath) Open(name string) (*os.File, error) {
	if b.Directory < 0 {
		return nil, fmt.Errorf("%w: the server has no directory of overlays", errInvalid)
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	descriptor, err := unix.Openat2(b.Directory, name, &how)
	if err != nil {
		return nil, fmt.Errorf("opening the overlay %.100q: %w", name, err)
	}
	return os.NewFile(uintptr(descriptor), name), nil
}
