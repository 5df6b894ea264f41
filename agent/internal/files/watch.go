package files

import (
	"context"
	"net/http"
	"path"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/process"
)

const (
	// maxWatches leaves the guest's root most of the kernel's 128 inotify instances.
	maxWatches = 32
	// pairWait is how long the first half of a rename waits for the second. The kernel reports both at once.
	pairWait = 100 * time.Millisecond
)

// event is a line of a watch. From is set for a rename only.
type event struct {
	Type      string `json:"type"`
	Path      string `json:"path,omitempty"`
	From      string `json:"from,omitempty"`
	Directory bool   `json:"directory,omitempty"`
}

// The types of events.
const (
	eventCreated    = "created"
	eventModified   = "modified"
	eventAttributes = "attributes"
	eventRemoved    = "removed"
	eventRenamed    = "renamed"
	// eventLost means that events are missing: the kernel's queue was full, or a directory is not watched.
	eventLost = "lost"
	// eventEnded is the last event: the directory itself was removed, moved or unmounted.
	eventEnded = "ended"
)

// Watch answers GET /files/watch: a line of JSON for each change below a directory, until the client leaves or the
// directory is gone. A client that does not read makes the kernel's queue overflow; nothing is queued here.
func (s *Service) Watch(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := s.locate(query)
	if err != nil {
		return err
	}
	if s.watches.Add(1) > maxWatches {
		s.watches.Add(-1)
		return fault.New(fault.InvalidState, "the sandbox has %d watches of files, which is the limit; end one", maxWatches)
	}
	defer s.watches.Add(-1)
	watched, err := openWatch(r.Context(), path.Clean(asked), query.Get("recursive") == "true")
	if err != nil {
		return err
	}
	defer process.CloseLogged(watched.queue)
	stop := context.AfterFunc(r.Context(), func() { process.CloseLogged(watched.queue) })
	defer stop()
	watched.lines = &eventLines{Lines: api.BeginLines(w)}
	return watched.serve()
}

// eventLines is the answer with the events.
type eventLines struct {
	*api.Lines
	last event
}

// send leaves out a repetition: a program that writes in small pieces modifies a file thousands of times.
func (l *eventLines) send(e event) error {
	if e == l.last && (e.Type == eventModified || e.Type == eventAttributes) {
		return nil
	}
	l.last = e
	return l.Add(e)
}

func (l *eventLines) flush() error {
	l.last = event{}
	return l.Flush()
}
