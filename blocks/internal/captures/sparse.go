package captures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// dataChunks yields the indexes of the chunks that are not only a hole.
func dataChunks(file *os.File, size int64) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for at := int64(0); at < size; {
			data, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				return
			}
			if err != nil {
				yield(0, fmt.Errorf("finding the data of %s: %w", file.Name(), err))
				return
			}
			index := data / ChunkBytes
			if data >= size || !yield(index, nil) {
				return
			}
			at = (index + 1) * ChunkBytes
		}
	}
}

// readChunk fills the content. A file that ends earlier has changed.
func readChunk(file *os.File, content []byte, index int64) error {
	_, err := file.ReadAt(content, index*ChunkBytes)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s is shorter", ErrChanged, file.Name())
	}
	return err
}

// writeSparse writes what is not zero, page by page.
func writeSparse(file *os.File, content []byte, at int64) error {
	for start := 0; start < len(content); {
		end := start
		for end < len(content) && !isZero(content[end:min(end+pageBytes, len(content))]) {
			end = min(end+pageBytes, len(content))
		}
		if end > start {
			if _, err := file.WriteAt(content[start:end], at+int64(start)); err != nil {
				return err
			}
		}
		start = end + pageBytes
	}
	return nil
}

// place is a chunk of a file of a job.
type place struct {
	file  int
	index int64
	// chunk is the position in the list of chunks of the file.
	chunk int
}

// buffers are the memory of one worker.
type buffers struct {
	content [ChunkBytes]byte
	object  []byte
}

// inParallel calls do for all places, in a fixed number of goroutines, and returns the first error.
func inParallel(ctx context.Context, workers int, places iter.Seq2[place, error], do func(context.Context, place, *buffers) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan place)
	var group sync.WaitGroup
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			memory := &buffers{object: make([]byte, 0, ChunkBytes+ChunkBytes/8)}
			for at := range queue {
				if err := do(ctx, at, memory); err != nil {
					// A request that failed may still read the memory, so it is not used again.
					cancel(err)
					return
				}
			}
		}()
	}
	for at, err := range places {
		if err != nil {
			cancel(err)
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case queue <- at:
		case <-ctx.Done():
		}
	}
	close(queue)
	group.Wait()
	return context.Cause(ctx)
}
