package stream

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/frame"
)

// ChunkBytes is the size of a pipe unless the guest enlarges it.
const ChunkBytes = 64 << 10

// Chunk has room for a frame's header in front, so that a frame is one write.
type Chunk [frame.HeaderBytes + ChunkBytes]byte

// Chunks is the pool of chunks. A chunk is given back as soon as it is empty.
var Chunks = sync.Pool{New: func() any { return new(Chunk) }}

// readChunk reads once without waiting: n is -1 when nothing is there yet and 0 at the end of the pipe. If n > 0, the
// caller must give the buffer back.
func readChunk(fd uintptr, limit int) (buffer *Chunk, n int) {
	buffer, _ = Chunks.Get().(*Chunk)
	for {
		n, err := unix.Read(int(fd), buffer[frame.HeaderBytes:frame.HeaderBytes+limit])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n > 0:
			return buffer, n
		case errors.Is(err, unix.EAGAIN):
			n = -1
		default:
			n = 0
		}
		Chunks.Put(buffer)
		return nil, n
	}
}
