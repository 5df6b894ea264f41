package shell

import (
	"bytes"
	"errors"
	"log/slog"
	"unicode/utf8"

	"coppice/agent/internal/frame"
)

// readCommands takes a frame from the stream only when one is wanted, so that flow control slows down a client that
// sends many. A frame that the runner should have refused ends the shell, because no answer could report it.
func (s *session) readCommands(over <-chan struct{}) {
	defer close(s.commands)
	for {
		select {
		case <-s.wanted:
		case <-over:
			return
		}
		command, err := s.nextCommand()
		if errors.Is(err, errViolation) {
			slog.Warn("shell ended", "error", err)
			s.depart()
		}
		if err != nil {
			return
		}
		select {
		case s.commands <- command:
		case <-over:
			return
		}
	}
}

var errViolation = errors.New("a run frame must be 1 byte to 1 MiB of UTF-8 without NUL")

func (s *session) nextCommand() (string, error) {
	for {
		kind, _, err := s.frames.Next()
		if errors.Is(err, frame.ErrTooLong) {
			return "", errViolation
		}
		if err != nil {
			return "", err
		}
		if kind != frame.Run {
			// Newer runners may send other types. Next skips their payload.
			continue
		}
		payload, err := s.frames.ReadPayload()
		if err != nil {
			return "", err
		}
		if len(payload) == 0 || !utf8.Valid(payload) || bytes.IndexByte(payload, 0) >= 0 {
			return "", errViolation
		}
		return string(payload), nil
	}
}
