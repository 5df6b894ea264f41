package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Open opens a regular file, one name of its path after the other and without links. Not by openat2, which does the same
// in one call: systemd's RestrictSUIDSGID= refuses that.
func (b Beneath) Open(name string) (*os.File, error) {
	if b.Directory < 0 {
		return nil, fmt.Errorf("%w: the server has no directory of overlays", errInvalid)
	}
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%w: %.100q is no name of an overlay", errInvalid, name)
	}
	names := strings.Split(filepath.Clean(name), "/")
	at := b.Directory
	for index, each := range names {
		flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOFOLLOW
		if index < len(names)-1 {
			flags |= unix.O_DIRECTORY | unix.O_PATH
		}
		next, err := unix.Openat(at, each, flags, 0)
		if at != b.Directory {
			_ = unix.Close(at)
		}
		if err != nil {
			return nil, fmt.Errorf("opening the overlay %.100q: %w", name, err)
		}
		at = next
	}
	return os.NewFile(uintptr(at), name), nil
}
