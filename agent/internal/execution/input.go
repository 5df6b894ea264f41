package execution

import (
	"errors"
	"io"
	"log/slog"
	"os"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/stream"
)

// input passes the request's frames to a process. Standard input and signals share the stream, so a signal waits behind
// input that the process does not read. A timeout does not wait.
type input struct {
	frames *frame.Reader
	stdin  *os.File
	child  *reap.Child
	// open is false once the process or the client has closed standard input.
	open bool
}

func newInput(frames *frame.Reader, p *command) *input {
	return &input{frames: frames, stdin: p.Stdin, child: p.Child, open: p.Stdin != nil}
}

// run returns at the end of the request's body, which also ends standard input.
func (in *input) run() {
	defer in.closeStdin()
	for {
		kind, _, err := in.frames.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				slog.Debug("request body ended", "error", err)
			}
			return
		}
		if err := in.act(kind); err != nil {
			slog.Debug("input frame dropped", "kind", kind, "error", err)
		}
	}
}

func (in *input) act(kind byte) error {
	switch kind {
	case frame.Stdin:
		return in.feed()
	case frame.StdinEnd:
		in.closeStdin()
		return nil
	case frame.Signal:
		return in.signal()
	default:
		// Newer runners may send other types. Next skips their payload.
		return nil
	}
}

func (in *input) feed() error {
	if !in.open {
		return nil
	}
	// *os.File would copy through its own buffer. The pool's buffer is reused.
	buffer, _ := stream.Chunks.Get().(*stream.Chunk)
	defer stream.Chunks.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{in.stdin}, in.frames.Payload(), buffer[:])
	if err != nil {
		in.closeStdin()
	}
	return err
}

func (in *input) signal() error {
	payload, err := in.frames.ReadPayload()
	if err != nil {
		return err
	}
	signal, err := stream.ParseSignal(payload)
	if err != nil {
		return err
	}
	return in.child.SignalGroup(signal)
}

func (in *input) closeStdin() {
	if in.open {
		in.open = false
		process.CloseLogged(in.stdin)
	}
}
