package save

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"coppice/capture/internal/fault"
	"coppice/capture/internal/vmmemory"
)

const (
	maxLineBytes = 64 << 10
	maxRAMBytes  = 1 << 40
	maxPid       = 1 << 22
)

type plan struct {
	Pid       int    `json:"pid"`
	Base      string `json:"base"`
	Target    string `json:"target"`
	SizeBytes int64  `json:"size_bytes"`
}

type request struct {
	Step string `json:"step"`
	// Sync belongs to the finish step: the content must be on the disk.
	Sync bool `json:"sync"`
}

type readyAnswer struct {
	Step       string `json:"step"`
	BaseBytes  int64  `json:"base_bytes"`
	DirtyBytes int64  `json:"dirty_bytes"`
}

type copiedAnswer struct {
	Step      string  `json:"step"`
	Pages     int64   `json:"pages"`
	Bytes     int64   `json:"bytes"`
	ElapsedMS float64 `json:"elapsed_ms"`
}

type finishedAnswer struct {
	Step           string `json:"step"`
	AllocatedBytes int64  `json:"allocated_bytes"`
	Digest         string `json:"digest"`
}

type errorAnswer struct {
	Step    string `json:"step"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func describe(err error) errorAnswer {
	return errorAnswer{Step: "error", Code: fault.Code(err), Message: err.Error()}
}

func (p plan) check() error {
	switch {
	case p.Pid <= 0 || p.Pid > maxPid:
		return fmt.Errorf("pid %d is not a process id", p.Pid)
	case !filepath.IsAbs(p.Base) || !filepath.IsAbs(p.Target):
		return errors.New("base and target must be absolute paths")
	case p.SizeBytes <= 0 || p.SizeBytes > maxRAMBytes || p.SizeBytes%vmmemory.PageSize != 0:
		return fmt.Errorf("size_bytes %d is not a valid RAM size", p.SizeBytes)
	default:
		return nil
	}
}

func decode(line []byte, request any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(request); err != nil {
		return fmt.Errorf("unknown format of a request: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unknown format of a request: more than one value")
	}
	return nil
}

// readLines passes on the lines of input. It calls ended when there are no more, or when the sender does not wait for
// answers: there are never more than a few unanswered lines.
func readLines(input io.Reader, ended func()) <-chan []byte {
	lines := make(chan []byte, 3)
	go func() {
		defer ended()
		scanner := bufio.NewScanner(input)
		scanner.Buffer(make([]byte, 0, 4096), maxLineBytes)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			default:
				return
			}
		}
	}()
	return lines
}
