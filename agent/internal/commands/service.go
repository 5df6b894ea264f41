// Package commands runs commands that outlive their clients: the /commands calls of docs/reference/agent-protocol.md.
//
//	POST /commands ──▶ process ──▶ two pumps ──▶ output (bounded; the oldest is dropped)
//	POST /commands/stdin, /commands/signal ──▶ process      GET /commands/output ◀── output, from any position
//	                      end of the process ──▶ table ──▶ GET /commands/watch
//
// Commands and what is kept of their output belong to the guest: they continue in each copy of it.
package commands

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/stream"
)

const (
	// maxIDBytes limits the ids that the host chooses.
	maxIDBytes = 64
	// maxTimeoutMs is one year.
	maxTimeoutMs = 365 * 24 * 3600 * 1000
	// minOutputBytes and maxOutputBytes limit what is kept of one output.
	minOutputBytes = 1 << 20
	maxOutputBytes = 1 << 30
)

// Service runs commands in the guest's root.
type Service struct {
	guest    *guest.State
	launcher *process.Launcher
	null     *os.File
	table    *table
	budget   *budget
}

// Options are what a Service needs. Null is an open /dev/null: the guest can put something else in its place. CreateFile
// makes a file without a name on the scratch disk.
type Options struct {
	Guest      *guest.State
	Launcher   *process.Launcher
	Null       *os.File
	CreateFile func() (*os.File, error)
}

// New returns a Service.
func New(o Options) *Service {
	shared := &budget{create: o.CreateFile, atMost: sharedBytes}
	return &Service{guest: o.Guest, launcher: o.Launcher, null: o.Null, table: newTable(), budget: shared}
}

// head is the body of a start. The id is the host's.
type head struct {
	ID        string `json:"id"`
	Command   string `json:"command"`
	TimeoutMs int64  `json:"timeout_ms"`
	// Stdin is written at the start. KeepStdin leaves standard input open after it.
	Stdin       string `json:"stdin"`
	KeepStdin   bool   `json:"keep_stdin"`
	OutputBytes int64  `json:"output_bytes"`

	place process.Place
}

func parseHead(payload []byte) (head, error) {
	var h head
	if err := api.DecodeJSON("body", payload, &h); err != nil {
		return head{}, err
	}
	if h.ID == "" || len(h.ID) > maxIDBytes {
		return head{}, fault.Invalid("id: must have 1 to %d bytes", maxIDBytes)
	}
	if err := process.ValidateCommand(h.Command); err != nil {
		return head{}, err
	}
	if h.TimeoutMs < 0 || h.TimeoutMs > maxTimeoutMs {
		return head{}, fault.Invalid("timeout_ms: must be from 0 (none) to %d", int64(maxTimeoutMs))
	}
	if h.OutputBytes < minOutputBytes || h.OutputBytes > maxOutputBytes {
		return head{}, fault.Invalid("output_bytes: must be from %d to %d", minOutputBytes, maxOutputBytes)
	}
	var err error
	h.place, err = process.ParsePlace(payload)
	return h, err
}

// Start answers POST /commands. A repeated id answers with the command that has it.
func (s *Service) Start(w http.ResponseWriter, r *http.Request) error {
	settings, err := s.guest.Get()
	if err != nil {
		return err
	}
	var body json.RawMessage
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	h, err := parseHead(body)
	if err != nil {
		return err
	}
	c, err := s.table.reserve(r.Context(), h.ID)
	if err == nil && c == nil {
		if c, err = s.launch(r.Context(), h, settings); err != nil {
			s.table.release(h.ID)
		}
	}
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, c.record())
	return nil
}

// launch starts a command, whose id is reserved.
func (s *Service) launch(ctx context.Context, h head, settings guest.Settings) (*command, error) {
	plan, err := s.launcher.Plan(h.place, settings, nil)
	if err != nil {
		return nil, err
	}
	hasStdin := h.KeepStdin || h.Stdin != ""
	piped, err := plan.StartPiped(ctx, plan.RunInShell(h.Command), s.null, hasStdin)
	if err != nil {
		return nil, err
	}
	c := &command{
		id: h.ID, piped: piped, output: newOutput(h.OutputBytes, s.budget), startedAt: time.Now(),
		limit: process.LimitTime(piped.Child, time.Duration(h.TimeoutMs)*time.Millisecond),
		turn:  make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.table.add(c)
	if err := c.attend(func() { s.table.end(c) }); err != nil {
		s.table.drop(c)
		return nil, err
	}
	if hasStdin {
		c.feed(h.Stdin, !h.KeepStdin)
	}
	return c, nil
}

// List answers GET /commands.
func (s *Service) List(w http.ResponseWriter, _ *http.Request) error {
	all := s.table.list()
	records := make([]record, 0, len(all))
	for _, c := range all {
		records = append(records, c.record())
	}
	api.WriteJSON(w, http.StatusOK, records)
	return nil
}

// Watch answers GET /commands/watch: a line of JSON for each command that has ended, and then for each that
// ends. Empty lines show that the guest lives.
func (s *Service) Watch(w http.ResponseWriter, r *http.Request) error {
	lines := api.BeginLines(w)
	beat := time.NewTicker(api.LineBeat)
	defer beat.Stop()
	var seen int64
	for {
		ends, last, changed := s.table.endsAfter(seen)
		for _, c := range ends {
			if err := lines.Add(c.record()); err != nil {
				return nil // the client has left
			}
		}
		seen = last
		if err := lines.Flush(); err != nil {
			return nil
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := lines.Beat(); err != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// Output answers GET /commands/output?id=&position=&follow=. The first frame is the position of the next byte. Another one
// follows where output has been dropped. With follow the answer continues until the command ends; its last frame is the exit.
func (s *Service) Output(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	c, err := s.table.find(query.Get("id"))
	if err != nil {
		return err
	}
	position, err := strconv.ParseInt(query.Get("position"), 10, 64)
	if err != nil || position < 0 {
		return fault.Invalid("position: must be a whole number of 0 or more")
	}
	reply := stream.NewAnswer(w)
	reply.Begin()
	reader := c.output.readFrom(position)
	sendPosition(reply, reader)
	for {
		kind, payload, changed, err := reader.next()
		switch {
		case errors.Is(err, errGap):
			sendPosition(reply, reader)
		case errors.Is(err, io.EOF):
			<-c.ended
			reply.Send(c.exit.Frame())
			return nil
		case err != nil:
			// The status has been sent: only a reset of the stream tells the client.
			panic(http.ErrAbortHandler)
		case changed == nil:
			reply.Send(frame.Encode(kind, payload))
		case query.Get("follow") != "true":
			return nil
		default:
			select {
			case <-changed:
			case <-r.Context().Done():
				return nil
			}
		}
		if r.Context().Err() != nil {
			return nil
		}
	}
}

func sendPosition(reply *stream.Answer, reader *reader) {
	payload := `{"position":` + strconv.FormatInt(reader.position(), 10) + `}`
	reply.Send(frame.Encode(frame.Position, []byte(payload)))
}

// Stdin answers POST /commands/stdin?id=&end=, whose body is the input, when the command has read it up to what its pipe
// holds.
func (s *Service) Stdin(w http.ResponseWriter, r *http.Request) error {
	c, err := s.table.find(r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	if err := c.write(r.Context(), r.Body, r.URL.Query().Get("end") == "true"); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// Signal answers POST /commands/signal?id=. The body is that of a signal frame.
func (s *Service) Signal(w http.ResponseWriter, r *http.Request) error {
	c, err := s.table.find(r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	var body json.RawMessage
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	signal, err := stream.ParseSignal(body)
	if err != nil {
		return err
	}
	if err := c.piped.Child.SignalGroup(signal); err != nil {
		return fault.New(fault.InvalidState, "the command has ended")
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// feed writes the input of the start in the background, before all other input.
func (c *command) feed(input string, isLast bool) {
	c.turn <- struct{}{}
	go func() {
		// A command that reads no input ends the write by its own end.
		_ = c.pass(context.Background(), strings.NewReader(input), isLast)
	}()
}
