// Package digest computes digests of sparse files: SHA-256 over the SHA-256 of each 4 MiB, on all cores, without
// reading holes.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/ramfile"
)

const chunkBytes = 4 << 20

// Sum is the size and digest of a whole file.
type Sum struct {
	SizeBytes int64  `json:"size_bytes"`
	Digest    string `json:"digest"`
}

var zeroChunk = sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256(make([]byte, chunkBytes)) })

// Path computes the Sum of the regular file at path.
func Path(path string) (Sum, error) {
	// Opening a named pipe must not wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Sum{}, err
	}
	defer file.Close()
	return File(file)
}

// File computes the Sum of an open file, which must not change in the meantime.
func File(file *os.File) (Sum, error) {
	info, err := file.Stat()
	if err != nil {
		return Sum{}, err
	}
	if !info.Mode().IsRegular() {
		return Sum{}, fmt.Errorf("%s is not a regular file", file.Name())
	}
	size := info.Size()
	holdsData, err := findChunks(file, size)
	if err != nil {
		return Sum{}, err
	}
	sums := make([]byte, len(holdsData)*sha256.Size)
	if err := sumChunks(file, size, holdsData, sums); err != nil {
		return Sum{}, err
	}
	digest := sha256.Sum256(sums)
	return Sum{SizeBytes: size, Digest: hex.EncodeToString(digest[:])}, nil
}

// findChunks reports for each chunk whether any of it is data.
func findChunks(file *os.File, size int64) ([]bool, error) {
	holdsData := make([]bool, (size+chunkBytes-1)/chunkBytes)
	err := ramfile.VisitData(file, size, func(extent ramfile.Extent) error {
		for chunk := extent.Offset / chunkBytes; chunk*chunkBytes < extent.Offset+extent.Length; chunk++ {
			holdsData[chunk] = true
		}
		return nil
	})
	return holdsData, err
}

func sumChunks(file *os.File, size int64, holdsData []bool, sums []byte) error {
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Add(1)
		go func() {
			defer workers.Done()
			buffer := make([]byte, min(chunkBytes, size))
			for failure.Load() == nil {
				chunk := next.Add(1) - 1
				if chunk >= int64(len(holdsData)) {
					return
				}
				sum, err := sumChunk(file, size, chunk, holdsData[chunk], buffer)
				if err != nil {
					failure.Store(&err)
					return
				}
				copy(sums[chunk*sha256.Size:], sum[:])
			}
		}()
	}
	workers.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

func sumChunk(file *os.File, size, chunk int64, holdsData bool, buffer []byte) ([sha256.Size]byte, error) {
	offset := chunk * chunkBytes
	length := min(chunkBytes, size-offset)
	if !holdsData && length == chunkBytes {
		return zeroChunk(), nil
	}
	part := buffer[:length]
	if _, err := io.ReadFull(io.NewSectionReader(file, offset, length), part); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("reading %s at %d: %w", file.Name(), offset, err)
	}
	return sha256.Sum256(part), nil
}
