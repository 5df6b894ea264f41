package stream

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/process"
)

// terminalBytes is more than a PTY holds: 64 KiB in transit, and a page in the line discipline.
const terminalBytes = 128 << 10

// Sink takes encoded frames, which it must not keep.
type Sink interface {
	Send(encoded []byte)
}

// Pump copies the output of a process to a sink.
//
//	following ──(process ended: Stop)──▶ the bytes that are in the pipe now ──▶ discarding ──(last writer gone)──▶ closed
//	    └───────────────(last writer gone)─────────────────────────────────────────────────────────────────────────▲
type Pump struct {
	kind byte
	file *os.File
	raw  syscall.RawConn
	to   Sink
	// restLimit bounds the bytes that are in the pipe now, if the kernel does not count them.
	restLimit int
	// mu is held from the reading of bytes until they have been sent.
	mu   sync.Mutex
	sent chan struct{}
}

// NewPump returns a Pump for the agent's end of a pipe. The Pump closes it.
func NewPump(kind byte, file *os.File, to Sink) (*Pump, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Pump{kind: kind, file: file, raw: raw, to: to, sent: make(chan struct{})}, nil
}

// NewTerminalPump returns a Pump for the master of a PTY.
func NewTerminalPump(kind byte, master *os.File, to Sink) (*Pump, error) {
	p, err := NewPump(kind, master, to)
	if err == nil {
		p.restLimit = terminalBytes
	}
	return p, err
}

// Run copies until the last writer has gone.
func (p *Pump) Run() {
	defer process.CloseLogged(p.file)
	for p.forward(ChunkBytes) > 0 {
	}
	p.Flush()
	close(p.sent)
	p.discard()
}

// Stop makes the pump finish with what is in the pipe. Call it when the shell has ended. The pump may already have
// reached the end and closed the pipe.
func (p *Pump) Stop() {
	if err := p.file.SetReadDeadline(time.Unix(1, 0)); errors.Is(err, os.ErrNoDeadline) {
		panic("pipe has no deadlines: " + err.Error())
	}
}

// Sent returns a channel that is closed when everything that belongs to the output has been sent.
func (p *Pump) Sent() <-chan struct{} { return p.sent }

// forward waits for output and sends up to limit bytes of it. It returns 0 at the end of the pipe and after Stop. It
// holds a buffer only while the buffer contains something, so an idle command costs none.
func (p *Pump) forward(limit int) int {
	var buffer *Chunk
	n := 0
	err := p.raw.Read(func(fd uintptr) bool {
		p.mu.Lock()
		buffer, n = readChunk(fd, limit)
		if n <= 0 {
			p.mu.Unlock()
		}
		return n >= 0
	})
	if err != nil || n <= 0 {
		return 0
	}
	defer p.mu.Unlock()
	p.sendChunk(buffer, n)
	return n
}

// Flush returns when everything that is in the pipe at this moment has been sent. It does not wait for an empty pipe: a
// background process may keep writing forever.
func (p *Pump) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.buffered()
	for left > 0 {
		var buffer *Chunk
		n := 0
		err := p.raw.Control(func(fd uintptr) { buffer, n = readChunk(fd, min(left, ChunkBytes)) })
		if err != nil || n <= 0 {
			return
		}
		p.sendChunk(buffer, n)
		left -= n
	}
}

func (p *Pump) buffered() int {
	if p.restLimit > 0 {
		return p.restLimit
	}
	count := 0
	err := p.raw.Control(func(fd uintptr) {
		n, ioctlErr := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if ioctlErr == nil {
			count = n
		}
	})
	if err != nil {
		return 0
	}
	return count
}

func (p *Pump) sendChunk(buffer *Chunk, n int) {
	frame.PutHeader(buffer[:], p.kind, n)
	p.to.Send(buffer[:frame.HeaderBytes+n])
	Chunks.Put(buffer)
}

// discard reads the rest, so that a full pipe does not stop a background process that still holds it.
func (p *Pump) discard() {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			var buffer *Chunk
			buffer, n = readChunk(fd, ChunkBytes)
			if n > 0 {
				Chunks.Put(buffer)
			}
			return n >= 0
		})
		if err != nil || n == 0 {
			return
		}
	}
}
