package stream

import (
	"net/http"
	"sync"
)

// Answer puts frames onto one response. After the first failed write it discards: the client is gone,
// but the process must not be stopped by a full pipe.
type Answer struct {
	mu     sync.Mutex
	writer http.ResponseWriter
	flush  func() error
	gone   bool
}

// NewAnswer makes an Answer; nothing is sent yet.
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

// Send blocks while the client does not read; that is what stops a process that writes too much.
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
