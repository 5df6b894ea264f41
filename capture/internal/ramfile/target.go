package ramfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Target is a file that is being made. Until it is kept, the code that ends the program removes it, even during another
// operation.
type Target struct {
	mutex   sync.Mutex
	file    *os.File
	removed bool
	kept    bool
}

// Create creates the file, which must not exist yet.
func (t *Target) Create(path string) (*os.File, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.removed {
		return nil, os.ErrClosed
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	t.file = file
	return file, err
}

// Keep leaves the file where it is, unless it has been removed.
func (t *Target) Keep() { t.setKept(true) }

// Discard undoes Keep and removes the file.
func (t *Target) Discard() {
	t.setKept(false)
	t.Remove()
}

func (t *Target) setKept(kept bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.kept = kept
}

// Remove removes the file if it was made here and is not kept. After that, Create makes no file.
func (t *Target) Remove() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.kept || t.removed {
		return
	}
	t.removed = true
	if t.file != nil {
		os.Remove(t.file.Name())
	}
}

// CopyBase fills target with the first size bytes of base: shared if the file system supports that, else extent by
// extent. It returns how many of these bytes are data, and calls visit for each extent.
func CopyBase(target, base *os.File, size int64, visit func(Extent)) (int64, error) {
	shared, err := share(target, base)
	if err != nil {
		return 0, err
	}
	if err := target.Truncate(size); err != nil {
		return 0, err
	}
	copied := int64(0)
	err = VisitData(base, size, func(extent Extent) error {
		visit(extent)
		copied += extent.Length
		if shared {
			return nil
		}
		return copyExtent(target, base, extent)
	})
	return copied, err
}

func share(target, base *os.File) (bool, error) {
	err := unix.IoctlFileClone(int(target.Fd()), int(base.Fd()))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return false, fmt.Errorf("sharing the base: %w", err)
	default:
		return false, nil
	}
}

func copyExtent(target, base *os.File, extent Extent) error {
	from := io.NewSectionReader(base, extent.Offset, extent.Length)
	copied, err := io.CopyBuffer(onlyWriter{io.NewOffsetWriter(target, extent.Offset)}, onlyReader{from}, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("copying the base: %w", err)
	}
	if copied != extent.Length {
		return fmt.Errorf("copying the base: it ends at %d", extent.Offset+copied)
	}
	return nil
}

type onlyReader struct{ io.Reader }

type onlyWriter struct{ io.Writer }

// AllocatedBytes returns the space that the file takes on the disk, in bytes.
func AllocatedBytes(file *os.File) (int64, error) {
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return 0, err
	}
	return status.Blocks * 512, nil
}
