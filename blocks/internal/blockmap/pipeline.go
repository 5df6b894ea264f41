package blockmap

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/blocks/internal/segment"
)

// pipeline encodes frames on all CPUs that are idle and stores them in the order in which they came. Leaves wait in the same order until
// their frames have a place.
//
//	add ──► queue: frame, frame, leaf, frame … ──► oldest first: into the segment, or to the store
//	             └─ encoded meanwhile
type pipeline struct {
	queue []queued
	// frame and leaf take what leaves the queue.
	frame func(piece *Piece, frame segment.Frame) error
	leaf  func(index int64, leaf *Leaf) error
}

// queued is a frame that is being encoded, or a leaf.
type queued struct {
	piece *Piece
	done  chan segment.Frame
	// pages and scratch are free again when the frame is stored.
	pages, scratch *buffer

	leaf  *Leaf
	index int64
}

type buffer [segment.BlockBytes]byte

var (
	buffers = sync.Pool{New: func() any { return new(buffer) }}
	// maxQueued limits the memory of an upload.
	maxQueued = 16 * runtime.GOMAXPROCS(0)
	// jobs are for the encoders, which are shared by all uploads of a process.
	jobs          = make(chan func(), maxQueued)
	startEncoders = sync.OnceFunc(func() {
		for range runtime.GOMAXPROCS(0) {
			go encode()
		}
	})
)

// encoderNice leaves the CPUs to guests, which write, and to reads: an upload may wait.
const encoderNice = 10

func encode() {
	// The priority is that of the thread, which ends with the process.
	runtime.LockOSThread()
	// Without it uploads only compete with guests.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, encoderNice)
	for job := range jobs {
		job()
	}
}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

// addFrame takes the buffer, whose first pages are the frame. The piece must stay where it is.
func (p *pipeline) addFrame(piece *Piece, pages *buffer, length int) error {
	item := queued{piece: piece, done: make(chan segment.Frame, 1), pages: pages, scratch: newBuffer()}
	startEncoders()
	jobs <- func() { item.done <- segment.Encode(pages[:length], item.scratch[:]) }
	return p.add(item)
}

func (p *pipeline) addLeaf(index int64, leaf *Leaf) error {
	return p.add(queued{leaf: leaf, index: index})
}

func (p *pipeline) add(item queued) error {
	p.queue = append(p.queue, item)
	return p.reduce(maxQueued)
}

// reduce takes from the queue until it is short enough.
func (p *pipeline) reduce(length int) error {
	for len(p.queue) > length {
		item := p.queue[0]
		p.queue = p.queue[1:]
		if item.leaf != nil {
			if err := p.leaf(item.index, item.leaf); err != nil {
				return err
			}
			continue
		}
		err := p.frame(item.piece, <-item.done)
		buffers.Put(item.pages)
		buffers.Put(item.scratch)
		if err != nil {
			return err
		}
	}
	return nil
}
