package shell

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/process"
	"coppice/agent/internal/stream"
)

// lastReportLimit bounds the wait for a shell's report after its end, in case another process holds the pipe.
const lastReportLimit = 100 * time.Millisecond

// session serves one shell until its end. Only the handler uses its fields, except those under mu.
type session struct {
	*shell
	body   io.Closer
	frames *frame.Reader
	reply  *stream.Answer
	out    *stream.Pump
	err    *stream.Pump

	sequence uint64
	// reports is closed when the shell has closed its end or has sent an invalid report.
	reports chan report
	// wanted requests one run frame. commands carries it, and is closed at the end of the request's body.
	wanted   chan struct{}
	commands chan string

	mu sync.Mutex
	// last is the newest report; running means that a command has started since then.
	last    report
	running bool
}

func newSession(started *shell, w http.ResponseWriter, r *http.Request, frames *frame.Reader) (*session, error) {
	reply := stream.NewAnswer(w)
	out, outErr := stream.NewPump(frame.Stdout, started.stdout, reply)
	err, errErr := stream.NewPump(frame.Stderr, started.stderr, reply)
	if err := errors.Join(outErr, errErr); err != nil {
		return nil, err
	}
	return &session{
		shell: started, body: r.Body, frames: frames, reply: reply, out: out, err: err,
		reports: make(chan report), wanted: make(chan struct{}, 1), commands: make(chan string),
	}, nil
}

// attend returns when the shell has ended and all output is sent.
func (s *session) attend(ctx context.Context, hostMoved func(context.Context) bool) {
	s.reply.Begin()
	go s.out.Run()
	go s.err.Run()
	var workers sync.WaitGroup
	workers.Add(2)
	over := make(chan struct{})
	go func() {
		defer workers.Done()
		s.readReports(over)
	}()
	go func() {
		defer workers.Done()
		s.readCommands(over)
	}()
	go func() {
		// From now on a write into the script fails, even if other processes hold the pipe.
		<-s.child.Ended()
		process.CloseLogged(s.script)
	}()
	stopWatching := context.AfterFunc(ctx, func() {
		if !hostMoved(ctx) {
			s.depart()
		}
	})
	defer stopWatching()
	s.converse()
	s.finish()

	close(over)
	if err := s.body.Close(); err != nil {
		slog.Debug("close of a request body", "error", err)
	}
	process.CloseLogged(s.status)
	workers.Wait()
}

// converse runs command after command until the shell has ended.
func (s *session) converse() {
	defer process.CloseLogged(s.script)
	if _, err := io.WriteString(s.script, s.dialect.preamble()); err != nil {
		slog.Debug("the shell does not read its script", "error", err)
	}
	for {
		s.wanted <- struct{}{}
		select {
		case command, more := <-s.commands:
			if !more {
				// At the end of its script, the shell ends by itself.
				process.CloseLogged(s.script)
				<-s.child.Ended()
				return
			}
			if !s.execute(command) {
				return
			}
		case <-s.child.Ended():
			return
		}
	}
}

// execute returns false if the shell has ended.
func (s *session) execute(command string) bool {
	s.sequence++
	s.mu.Lock()
	s.running = true
	script := s.dialect.command(s.sequence, command, s.last)
	s.mu.Unlock()
	if _, err := io.WriteString(s.script, script); err != nil {
		slog.Debug("the shell does not read its script", "error", err)
	}
	watch := time.NewTicker(stallInterval)
	defer watch.Stop()
	for stalls := 0; stalls < stallLimit; {
		select {
		case found, ok := <-s.reports:
			return s.take(found, ok)
		case <-s.child.Ended():
			return s.takeLast()
		case <-watch.C:
			if stalls++; !s.isStalled() {
				stalls = 0
			}
		}
	}
	slog.Warn("shell ended: it waits for more of a script that is complete")
	s.depart()
	<-s.child.Ended()
	return false
}

// takeLast handles a shell that has ended: its report may still be in the pipe.
func (s *session) takeLast() bool {
	select {
	case found, ok := <-s.reports:
		return s.take(found, ok)
	case <-time.After(lastReportLimit):
		return false
	}
}

// take sends the output of the command and then its done frame. Without a report, the shell has ended, or has become
// another program by "exec"; take waits for the end of either.
func (s *session) take(found report, ok bool) bool {
	if !ok {
		<-s.child.Ended()
		return false
	}
	if found.sequence != s.sequence {
		slog.Warn("shell ended: its report is of another command", "sequence", found.sequence, "want", s.sequence)
		s.depart()
		<-s.child.Ended()
		return false
	}
	s.out.Flush()
	s.err.Flush()
	s.mu.Lock()
	s.last, s.running = found, false
	s.mu.Unlock()
	s.reply.Send(doneFrame(found.status))
	return true
}

// finish sends the remaining output and the exit frame. A command that was running at the shell's end gets the shell's
// exit code.
func (s *session) finish() {
	s.out.Stop()
	s.err.Stop()
	<-s.out.Sent()
	<-s.err.Sent()
	exit := stream.ExitOf(s.child.Status(), false)
	if s.running {
		s.reply.Send(doneFrame(exit.ExitCode))
	}
	s.reply.Send(exit.Frame())
}

func doneFrame(code int) []byte {
	payload, err := json.Marshal(struct {
		ExitCode int `json:"exit_code"`
	}{code})
	if err != nil {
		panic("done frame: " + err.Error())
	}
	return frame.Encode(frame.Done, payload)
}

func (s *session) readReports(over <-chan struct{}) {
	defer close(s.reports)
	reader := newReportReader(s.status)
	for {
		found, err := reader.next()
		if errors.Is(err, errBadReport) {
			slog.Warn("shell ended", "error", err)
			s.depart()
		}
		if err != nil {
			return
		}
		select {
		case s.reports <- found:
		case <-over:
			return
		}
	}
}
