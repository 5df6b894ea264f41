package execution

import (
	"errors"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/frame"
)

// chunkBytes is what a pipe holds unless the guest enlarges it.
const chunkBytes = 64 << 10

// chunk has room for a frame's header in front, so that a frame is one write.
type chunk [frame.HeaderBytes + chunkBytes]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// answer puts frames of both pipes onto one response. After the first failed write it discards: the client is gone,
// but the process must not be stopped by a full pipe.
type answer struct {
	mu     sync.Mutex
	writer http.ResponseWriter
	flush  func() error
	gone   bool
}

func newAnswer(w http.ResponseWriter) *answer {
	return &answer{writer: w, flush: http.NewResponseController(w).Flush}
}

// begin sends the status line.
func (a *answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writer.Header().Set("content-type", "application/octet-stream")
	a.writer.WriteHeader(http.StatusOK)
	a.gone = a.flush() != nil
}

// send blocks while the client does not read; that is what stops a process that writes too much.
func (a *answer) send(encoded []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return
	}
	if _, err := a.writer.Write(encoded); err != nil {
		a.gone = true
		return
	}
	a.gone = a.flush() != nil
}

// pump carries one pipe of a process to the answer.
//
//	following ──(process ended: stop)──▶ the bytes that are in the pipe now ──▶ discarding ──(last writer gone)──▶ closed
//	    └───────────────(last writer gone)─────────────────────────────────────────────────────────────────────────▲
type pump struct {
	kind   byte
	file   *os.File
	raw    syscall.RawConn
	answer *answer
	// sent is closed when everything that belongs into the answer has been written to it.
	sent chan struct{}
}

func newPump(kind byte, file *os.File, to *answer) (*pump, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &pump{kind: kind, file: file, raw: raw, answer: to, sent: make(chan struct{})}, nil
}

func (p *pump) run() {
	defer closeLogged(p.file)
	for p.forward(chunkBytes) > 0 {
	}
	p.forwardRest()
	close(p.sent)
	p.discard()
}

// stop makes the pump finish with what is in the pipe. It is called when the shell has ended. The pump may have come
// to the end and closed the pipe before.
func (p *pump) stop() {
	if err := p.file.SetReadDeadline(time.Unix(1, 0)); errors.Is(err, os.ErrNoDeadline) {
		panic("pipe has no deadlines: " + err.Error())
	}
}

// forward waits for output and sends up to limit bytes of it. It returns 0 at the end of the pipe and after stop.
// A buffer is held only while there is something in it, so an idle command costs none.
func (p *pump) forward(limit int) int {
	var buffer *chunk
	n := 0
	err := p.raw.Read(func(fd uintptr) bool {
		buffer, n = readChunk(fd, limit)
		return n >= 0
	})
	if err != nil || n <= 0 {
		return 0
	}
	p.sendChunk(buffer, n)
	return n
}

// forwardRest sends what the pipe holds at this moment. A background process may go on writing for ever, so "until
// the pipe is empty" could be never.
func (p *pump) forwardRest() {
	left := p.buffered()
	for left > 0 {
		var buffer *chunk
		n := 0
		err := p.raw.Control(func(fd uintptr) { buffer, n = readChunk(fd, min(left, chunkBytes)) })
		if err != nil || n <= 0 {
			return
		}
		p.sendChunk(buffer, n)
		left -= n
	}
}

func (p *pump) buffered() int {
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

func (p *pump) sendChunk(buffer *chunk, n int) {
	frame.PutHeader(buffer[:], p.kind, n)
	p.answer.send(buffer[:frame.HeaderBytes+n])
	chunks.Put(buffer)
}

// discard keeps a background process that still holds the pipe from being stopped by it.
func (p *pump) discard() {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			var buffer *chunk
			buffer, n = readChunk(fd, chunkBytes)
			if n > 0 {
				chunks.Put(buffer)
			}
			return n >= 0
		})
		if err != nil || n == 0 {
			return
		}
	}
}

// readChunk reads once without waiting: n is -1 when nothing is there yet and 0 at the end of the pipe. The buffer is
// the caller's to give back if n > 0.
func readChunk(fd uintptr, limit int) (buffer *chunk, n int) {
	buffer, _ = chunks.Get().(*chunk)
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
		chunks.Put(buffer)
		return nil, n
	}
}
