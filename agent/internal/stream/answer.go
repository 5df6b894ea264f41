package stream

import (
	"net/http"
	"sync"
)

// Answer writes frames to one response. After the first failed write it discards them: the client is gone, but a full
// pipe must not stop the process.
type Answer struct {
	mu     sync.Mutex
	writer http.ResponseWriter
	flush  func() error
	gone   bool
}

// NewAnswer returns an Answer. It sends nothing yet.
func NewAnswer(w http.ResponseWriter) *Answer {
	return &Answer{writer: w, flush: http.NewResponseController(w).Flush}
}

// Begin sends the status line.
func (a *Answer) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writer.Header().Set("content-type", "application/octet-stream")
	a.writer.WriteHeader(http.StatusOK)
	a.gone = a.flush() != nil
}

// Send writes a frame. It blocks while the client does not read, which stops a process that writes too much.
func (a *Answer) Send(encoded []byte) {
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
