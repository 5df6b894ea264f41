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

// Input, sizes and signals share the stream and are taken in order. So that none of them waits for ever behind input
// that no program reads, input is dropped as a real terminal drops it, but only after the kernel has taken none for
// patience; what follows has to be taken within stalledPatience until some of it is.
const (
	patience        = 30 * time.Second
	stalledPatience = 100 * time.Millisecond
)

// feed returns at the end of the request's body, which by itself means no more than that nobody types.
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
		// Newer runners may know more types; Next skips the payload.
		if err != nil {
			slog.Debug("terminal input dropped", "kind", kind, "error", err)
		}
	}
}

// typeIn returns how long the next input may take.
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

// typeChunk holds a buffer only as long as there is something in it.
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

// deliver signals the foreground process group.
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
