package commands

import (
	"log/slog"
	"os"
	"slices"
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

// budget is what the files of all outputs may use of the scratch disk together. An output calls it without holding its own
// lock, so that it may take that of any other.
type budget struct {
	// create makes a file without a name on the scratch disk.
	create func() (*os.File, error)
	// atMost is the limit on a large disk.
	atMost int64

	// balancing is held by the output that frees what another one uses.
	balancing sync.Mutex

	mu    sync.Mutex
	limit int64
	used  int64
	// files are the outputs that have one, in the order in which they got it.
	files []*output
}

// open makes a file for an output.
func (b *budget) open(o *output) (*os.File, error) {
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
	b.files = append(b.files, o)
	return file, nil
}

func (b *budget) close(o *output, file *os.File) {
	b.mu.Lock()
	b.files = slices.DeleteFunc(b.files, func(other *output) bool { return other == o })
	b.mu.Unlock()
	process.CloseLogged(file)
}

func (b *budget) add(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += bytes
}

func (b *budget) isExceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used > b.limit
}

// balance frees output until the limit holds: first all of commands that have ended, the oldest before the others, then
// the oldest part of the largest output.
func (b *budget) balance() {
	if !b.isExceeded() {
		return
	}
	b.balancing.Lock()
	defer b.balancing.Unlock()
	for b.isExceeded() {
		victim, hasEnded := b.choose()
		switch {
		case victim == nil:
			return
		case hasEnded:
			victim.discard()
		case !victim.shrink():
			return
		}
	}
}

func (b *budget) choose() (victim *output, hasEnded bool) {
	b.mu.Lock()
	files := slices.Clone(b.files)
	b.mu.Unlock()
	var largest int64
	for _, o := range files {
		size, hasEnded := o.extent()
		if hasEnded {
			return o, true
		}
		if size > largest {
			victim, largest = o, size
		}
	}
	return victim, false
}
