package commands

import (
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/process"
)

const (
	// sharedBytes limits the files of all outputs together.
	sharedBytes = 512 << 20
	// diskParts is the divisor of the scratch disk that limits them, too.
	diskParts = 8
)

// budget is what the files of all outputs may use of the scratch disk together.
type budget struct {
	// create makes a file without a name on the scratch disk.
	create func() (*os.File, error)
	// evict frees the output of a command that has ended. It returns false if there is none.
	evict func() bool
	// atMost is the limit on a large disk.
	atMost int64

	mu    sync.Mutex
	limit int64
	used  int64
	files int64
}

// open makes a file for an output.
func (b *budget) open() (*os.File, error) {
	file, err := b.create()
	if err != nil {
		return nil, err
	}
	limit := b.atMost
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &disk); err != nil {
		slog.Warn("the size of the scratch disk is not known", "error", err)
	} else {
		limit = min(limit, int64(disk.Blocks)*disk.Bsize/diskParts)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	b.files++
	return file, nil
}

func (b *budget) close(file *os.File) {
	b.mu.Lock()
	b.files--
	b.mu.Unlock()
	process.CloseLogged(file)
}

func (b *budget) add(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += bytes
}

// mustShrink returns whether an output that is written, of this size, must drop something. Outputs of commands that have
// ended go first. An output below its share is left to those above theirs.
func (b *budget) mustShrink(size int64) bool {
	for b.isExceeded() {
		if !b.evict() {
			b.mu.Lock()
			defer b.mu.Unlock()
			return size > b.limit/max(1, b.files)
		}
	}
	return false
}

func (b *budget) isExceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used > b.limit
}
