package commands

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/process"
	"coppice/agent/internal/stream"
)

// command is a command that needs no client.
type command struct {
	id        string
	piped     *process.Piped
	limit     *process.TimeLimit
	output    *output
	startedAt time.Time

	// turn is taken by the request that writes to standard input.
	turn chan struct{}
	// ended is closed when exit and endedAt are set.
	ended   chan struct{}
	exit    stream.Exit
	endedAt time.Time
	// endNumber belongs to the table.
	endNumber int64
}

// record describes a command to the host, which knows the rest.
type record struct {
	ID         string       `json:"id"`
	AgeMs      int64        `json:"age_ms"`
	EndedAgoMs int64        `json:"ended_ago_ms,omitempty"`
	Exit       *stream.Exit `json:"exit,omitempty"`
	// OutputBytes were written in all, DroppedBytes of them are not kept.
	OutputBytes  int64 `json:"output_bytes"`
	DroppedBytes int64 `json:"dropped_bytes"`
}

func (c *command) record() record {
	written, dropped := c.output.counts()
	r := record{ID: c.id, AgeMs: time.Since(c.startedAt).Milliseconds(), OutputBytes: written, DroppedBytes: dropped}
	if c.hasEnded() {
		exit := c.exit
		r.Exit, r.EndedAgoMs = &exit, time.Since(c.endedAt).Milliseconds()
	}
	return r
}

func (c *command) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// attend keeps the output of a started command until it ends, and then calls done.
func (c *command) attend(done func()) error {
	pumps, err := stream.NewPumps(c.piped.Stdout, c.piped.Stderr, c.output)
	if err != nil {
		c.piped.Child.KillGroup()
		return err
	}
	pumps.Start()
	go func() {
		<-c.piped.Child.Ended()
		timedOut := c.limit.End()
		pumps.Finish()
		if c.piped.Stdin != nil {
			process.CloseLogged(c.piped.Stdin)
		}
		c.exit, c.endedAt = stream.ExitOf(c.piped.Child.Status(), timedOut), time.Now()
		close(c.ended)
		c.output.finish()
		done()
	}()
	return nil
}

// write passes input to the command, as fast as the command reads it, and then closes standard input if isLast. Of
// several writers one writes at a time.
func (c *command) write(ctx context.Context, input io.Reader, isLast bool) error {
	if c.piped.Stdin == nil {
		return fault.New(fault.InvalidState, "the command was started without standard input")
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.pass(ctx, input, isLast)
}

// pass does what write does, and gives back the turn, which the caller has taken.
func (c *command) pass(ctx context.Context, input io.Reader, isLast bool) error {
	defer func() { <-c.turn }()
	stdin := c.piped.Stdin
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = stdin.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	buffer, _ := stream.Chunks.Get().(*stream.Chunk)
	_, err := io.CopyBuffer(struct{ io.Writer }{stdin}, input, buffer[:])
	stream.Chunks.Put(buffer)
	if !stop() {
		<-interrupted // the next writer must not find the deadline
		_ = stdin.SetWriteDeadline(time.Time{})
	}
	if err == nil && isLast {
		// A command may end as soon as it has read the input, and its end closes stdin, too.
		if err = stdin.Close(); errors.Is(err, os.ErrClosed) {
			return nil
		}
	}
	return explainWrite(err)
}

func explainWrite(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return fault.New(fault.InvalidState, "the command's standard input is closed")
	}
	return err
}
