package api

import (
	"encoding/json"
	"net/http"
	"time"
)

// LineBeat is the time after which a quiet answer of lines gets an empty one, which shows that the guest lives.
const LineBeat = 30 * time.Second

// Lines is an answer of lines of JSON that come one after the other. An error of any call means that the client has left.
type Lines struct {
	encoder *json.Encoder
	writer  http.ResponseWriter
	control *http.ResponseController
}

// BeginLines sets the status. The first Flush sends it.
func BeginLines(w http.ResponseWriter) *Lines {
	w.Header().Set("content-type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	return &Lines{encoder: json.NewEncoder(w), writer: w, control: http.NewResponseController(w)}
}

// Add adds a line with a value.
func (l *Lines) Add(value any) error { return l.encoder.Encode(value) }

// Beat adds an empty line.
func (l *Lines) Beat() error {
	_, err := l.writer.Write([]byte("\n"))
	return err
}

// Flush sends what has been added.
func (l *Lines) Flush() error { return l.control.Flush() }
