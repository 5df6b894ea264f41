package commands

import (
	"encoding/binary"
	"log/slog"
	"os"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/frame"
)

const (
	// memoryBytes of output stay in memory. More goes to a file, and stays in memory alone while no file can be written.
	memoryBytes = 64 << 10
	// markBytes is about how far the places are apart at which a reader can begin without reading what is before.
	markBytes = 64 << 10
	// punchBytes is how much of the file is freed at once.
	punchBytes = 256 << 10
	// maxFileBytes is less than what a file system can address, though the first parts of a file are freed.
	maxFileBytes = 1 << 40
)

// output keeps the newest output of one command, as frames one after the other:
//
//	Send ─▶ memory, up to 64 KiB ─▶ a file without a name on the scratch disk, up to a limit ─▶ dropped, oldest first
//
// A position counts the bytes of standard output and standard error together, in the order in which they were read. An
// offset counts the bytes of frames, in memory and in the file alike.
type output struct {
	limit  int64
	shared *budget

	mu sync.Mutex
	// marks are frames in ascending order; the first is the oldest that is kept.
	marks []mark
	end   mark
	// memory holds the frames if file is nil.
	memory []byte
	// file holds the frame of offset base at its begin. A file has no more than maxFileBytes.
	file *os.File
	base int64
	// punched is the offset up to which the file has been freed.
	punched int64
	// retryAt is the offset at which a file is tried again.
	retryAt int64
	isEnded bool
	changed chan struct{}
}

type mark struct{ position, offset int64 }

func newOutput(limit int64, shared *budget) *output {
	return &output{limit: limit, shared: shared, marks: []mark{{}}, changed: make(chan struct{})}
}

// Send adds a frame. It never waits for a reader: a command without a client must not stand still.
func (o *output) Send(encoded []byte) {
	o.send(encoded)
	o.shared.balance()
}

func (o *output) send(encoded []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end.offset-o.marks[len(o.marks)-1].offset >= markBytes {
		o.marks = append(o.marks, o.end)
	}
	o.keep(encoded)
	o.end.offset += int64(len(encoded))
	o.end.position += int64(len(encoded) - frame.HeaderBytes)
	o.reduce()
	o.notify()
}

// finish says that no output follows.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isEnded = true
	o.notify()
}

// discard frees everything.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropAll()
	o.notify()
}

// counts returns how many bytes the command has written, and how many of them are kept no more.
func (o *output) counts() (written, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end.position, o.marks[0].position
}

func (o *output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// keep stores a frame at the end.
func (o *output) keep(encoded []byte) {
	if o.file != nil && o.end.offset-o.base > maxFileBytes {
		o.dropAll()
	}
	if o.file == nil {
		o.memory = append(o.memory, encoded...)
		if len(o.memory) > memoryBytes && o.end.offset >= o.retryAt {
			o.moveToFile()
		}
		return
	}
	_, err := o.file.WriteAt(encoded, o.end.offset-o.base)
	if err == nil {
		o.shared.add(int64(len(encoded)))
		return
	}
	slog.Warn("output of a command is dropped", "error", err)
	o.dropAll()
	o.retryAt = o.end.offset + memoryBytes
	o.memory = append(o.memory, encoded...)
}

func (o *output) moveToFile() {
	start := o.marks[0].offset
	file, err := o.shared.open(o)
	if err == nil {
		if _, err = file.WriteAt(o.memory, 0); err != nil {
			o.shared.close(o, file)
		}
	}
	if err != nil {
		slog.Warn("output of a command stays in memory", "error", err)
		o.retryAt = o.end.offset + memoryBytes
		return
	}
	o.shared.add(int64(len(o.memory)))
	o.file, o.memory, o.base, o.punched = file, nil, start, start
}

// reduce drops the oldest output until the limits hold.
func (o *output) reduce() {
	if o.file == nil {
		o.reduceMemory()
		return
	}
	for len(o.marks) > 1 && o.size() > o.limit {
		o.marks = o.marks[1:]
		o.punch(punchBytes)
	}
}

func (o *output) size() int64 { return o.end.offset - o.marks[0].offset }

// extent returns how much is kept, and whether the command has ended.
func (o *output) extent() (size int64, hasEnded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size(), o.isEnded
}

// shrink frees some of the oldest output. It returns false if there is too little.
func (o *output) shrink() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil {
		return true // it has been discarded meanwhile
	}
	before := o.punched
	for len(o.marks) > 1 && o.punched == before {
		o.marks = o.marks[1:]
		o.punch(min(punchBytes, o.size()))
	}
	return o.punched > before
}

// reduceMemory drops whole frames. The first mark moves to the first frame that is kept.
func (o *output) reduceMemory() {
	dropped := 0
	first := o.marks[0]
	for len(o.memory)-dropped > memoryBytes {
		length := frame.HeaderBytes + int(binary.BigEndian.Uint32(o.memory[dropped+1:]))
		dropped += length
		first.offset += int64(length)
		first.position += int64(length - frame.HeaderBytes)
	}
	if dropped == 0 {
		return
	}
	o.memory = append(o.memory[:0], o.memory[dropped:]...)
	later := sort.Search(len(o.marks), func(i int) bool { return o.marks[i].offset > first.offset })
	o.marks = append([]mark{first}, o.marks[later:]...)
}

// punch frees the part of the file before the oldest frame, if it is at least that large.
func (o *output) punch(atLeast int64) {
	start := o.marks[0].offset
	if start-o.punched < atLeast {
		return
	}
	err := unix.Fallocate(int(o.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, o.punched-o.base, start-o.punched)
	if err != nil {
		slog.Warn("output of a command is not freed", "error", err)
	}
	o.shared.add(o.punched - start)
	o.punched = start
}

// dropAll forgets everything up to the end.
func (o *output) dropAll() {
	if o.file != nil {
		o.shared.add(o.punched - o.end.offset)
		o.shared.close(o, o.file)
	}
	o.file, o.memory, o.marks = nil, nil, []mark{o.end}
}
