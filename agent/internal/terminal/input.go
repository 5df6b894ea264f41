package terminal

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/stream"
)

// Input, sizes and signals share the stream and are handled in order. None of them may wait forever behind input that
// no program reads. So the agent drops input, as a real terminal does, but only after the kernel has accepted none for
// patience. After that, the kernel must accept input within stalledPatience, until it accepts some again.
const (
	patience        = 30 * time.Second
	stalledPatience = 100 * time.Millisecond
)

// feed returns at the end of the request's body, which only means that there is no more input.
func (t *terminal) feed(frames *frame.Reader) {
	wait := patience
	for {
		kind, _, err := frames.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				slog.Debug("request body ended", "error", err)
			}
			return
		}
		switch kind {
		case frame.Stdin:
			wait, err = t.typeIn(frames.Payload(), wait)
		case frame.Resize:
			err = t.resize(frames)
		case frame.Signal:
			err = t.deliver(frames)
		}
		// Newer runners may send other types. Next skips their payload.
		if err != nil {
			slog.Debug("terminal input dropped", "kind", kind, "error", err)
		}
	}
}

// typeIn returns the time that the next input may take.
func (t *terminal) typeIn(input io.Reader, wait time.Duration) (time.Duration, error) {
	for {
		n, err := t.typeChunk(input, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return stalledPatience, err
		case errors.Is(err, io.EOF):
			return patience, nil
		case err != nil:
			return wait, err
		case n > 0:
			wait = patience
		}
	}
}

// typeChunk holds a buffer only for one chunk.
func (t *terminal) typeChunk(input io.Reader, wait time.Duration) (int, error) {
	buffer, _ := stream.Chunks.Get().(*stream.Chunk)
	defer stream.Chunks.Put(buffer)
	n, err := input.Read(buffer[:])
	if n == 0 {
		return 0, err
	}
	return n, t.pty.write(buffer[:n], wait)
}

func (t *terminal) resize(frames *frame.Reader) error {
	payload, err := frames.ReadPayload()
	if err != nil {
		return err
	}
	window, err := parseSize("resize frame", payload)
	if err != nil {
		return err
	}
	return t.pty.resize(window)
}

// deliver sends a signal to the foreground process group, or to the program's group if there is none.
func (t *terminal) deliver(frames *frame.Reader) error {
	payload, err := frames.ReadPayload()
	if err != nil {
		return err
	}
	signal, err := stream.ParseSignal(payload)
	if err != nil {
		return err
	}
	foreground := t.pty.foreground()
	if foreground == 0 {
		return t.child.SignalGroup(signal)
	}
	t.signal(foreground, signal)
	return nil
}
