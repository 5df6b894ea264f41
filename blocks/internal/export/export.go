// Package export writes a version of a disk as an image, in one pass from its beginning to its end.
package export

import (
	"context"
	"fmt"
	"io"
	"os"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/segment"
)

// readers is how many blocks are read at a time. The store answers slowly, but many requests at once.
const readers = 16

// Raw writes all bytes of a version. Holes become holes if out is a file that starts empty, and zeroes otherwise.
func Raw(ctx context.Context, version *blockmap.Version, out *os.File) error {
	info, err := out.Stat()
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	skip := writeZeroes
	if info.Mode().IsRegular() {
		skip = func(out *os.File, length int64) error {
			_, err := out.Seek(length, io.SeekCurrent)
			return err
		}
	}
	written := int64(0)
	err = eachBlock(ctx, version, func(offset int64, content []byte) error {
		if err := skip(out, offset-written); err != nil {
			return err
		}
		content = content[:min(int64(len(content)), version.Size()-offset)]
		_, err := out.Write(content)
		written = offset + int64(len(content))
		return err
	})
	if err == nil && info.Mode().IsRegular() {
		err = out.Truncate(version.Size())
	} else if err == nil {
		err = skip(out, version.Size()-written)
	}
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return nil
}

var zeroes [1 << 20]byte

func writeZeroes(out *os.File, length int64) error {
	for length > 0 {
		n, err := out.Write(zeroes[:min(length, int64(len(zeroes)))])
		if err != nil {
			return err
		}
		length -= int64(n)
	}
	return nil
}

type block struct {
	offset  int64
	content [segment.BlockBytes]byte
	err     error
	done    chan struct{}
}

// eachBlock passes on all blocks with data, in ascending order. Some are read ahead.
func eachBlock(ctx context.Context, version *blockmap.Version, use func(offset int64, content []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ordered := make(chan *block, readers)
	go func() {
		defer close(ordered)
		for number, err := range version.DataBlocks(ctx) {
			b := &block{offset: number * segment.BlockBytes, err: err, done: make(chan struct{})}
			select {
			case ordered <- b:
			case <-ctx.Done():
				return
			}
			if err != nil {
				close(b.done)
				return
			}
			go func() {
				defer close(b.done)
				b.err = version.ReadAt(ctx, b.content[:min(segment.BlockBytes, version.Size()-b.offset)], b.offset)
			}()
		}
	}()
	for b := range ordered {
		<-b.done
		if b.err != nil {
			return b.err
		}
		if err := use(b.offset, b.content[:]); err != nil {
			return err
		}
	}
	return ctx.Err()
}
