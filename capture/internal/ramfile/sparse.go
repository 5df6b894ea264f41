// Package ramfile makes the files in which RAM is saved: sparse files, as long as the RAM.
package ramfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Extent is a range of a file that holds data, in bytes.
type Extent struct{ Offset, Length int64 }

// VisitData calls visit for each extent of the first size bytes that is not a hole, in order. A file system that does
// not know holes shows one extent.
func VisitData(file *os.File, size int64, visit func(Extent) error) error {
	descriptor := int(file.Fd())
	for offset := int64(0); offset < size; {
		start, err := unix.Seek(descriptor, offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for data in %s: %w", file.Name(), err)
		}
		end, err := unix.Seek(descriptor, start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("looking for holes in %s: %w", file.Name(), err)
		}
		if start >= size {
			return nil
		}
		end = min(end, size)
		if err := visit(Extent{start, end - start}); err != nil {
			return err
		}
		offset = end
	}
	return nil
}
