package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/segment"
)

// fillRaw adds the parts of a file that are no holes.
func fillRaw(ctx context.Context, builder *blockmap.Builder, file *os.File, size int64) error {
	for end := int64(0); ; {
		first, next, err := nextData(file, end, size)
		if err != nil || first == size {
			return err
		}
		// Holes begin and end at blocks of the file system, which may be smaller than a page.
		from := max(end, first/segment.PageBytes*segment.PageBytes)
		if end = roundUp(next); end <= from {
			continue
		}
		read := func(content []byte, at int64) error {
			n, err := file.ReadAt(content, from+at)
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("reading the image: %w", err)
			}
			clear(content[n:])
			return nil
		}
		if err := builder.Apply(ctx, blockmap.Change{Offset: from, Length: end - from, Read: read}); err != nil {
			return err
		}
	}
}

// nextData finds data from an offset on. At the end, both answers are the size.
func nextData(file *os.File, from, size int64) (first, next int64, err error) {
	if from >= size {
		return size, size, nil
	}
	descriptor := int(file.Fd())
	first, err = unix.Seek(descriptor, from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err == nil {
		next, err = unix.Seek(descriptor, first, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("finding the holes of the image: %w", err)
	}
	return min(first, size), min(next, size), nil
}
