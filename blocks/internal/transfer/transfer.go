// Package transfer moves one capture between files of the runner and the object store, in a process of its own: the block
// server's stalls would be those of guests. The runner opens the files, so that this process needs no access to its
// directories. It sends one line of JSON, and keeps the input open as long as it wants the answer:
//
//	{"org":"o","capture":"c","about":"…","files":[{"name":"ram","fd":3,"seed_fd":0}],"timeout_ms":3600000}
//	{"result":{"stored_bytes":…}}    or    {"error":{"code":"corrupt","message":"…"}}
package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/serve"
)

const (
	maxLineBytes = 1 << 20
	// longest is much shorter than the time after which the collector gives up an upload.
	longest = 6 * time.Hour
	// firstDescriptor is the first that is not a standard stream.
	firstDescriptor = 3
)

// Request is the line of the runner.
type Request struct {
	Org     string `json:"org"`
	Capture string `json:"capture"`
	// About is what to keep about the capture (store).
	About     string `json:"about"`
	Files     []File `json:"files"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// File is an inherited descriptor. SeedFD is that of a local file that may have the content, or 0 (fetch).
type File struct {
	Name   string `json:"name"`
	FD     int    `json:"fd"`
	SeedFD int    `json:"seed_fd"`
}

// Kind is Store or Fetch.
type Kind func(ctx context.Context, store *captures.Captures, r Request) (any, error)

// Store stores a capture.
func Store(ctx context.Context, store *captures.Captures, r Request) (any, error) {
	lowerPriority()
	job := captures.Job{Org: r.Org, Capture: r.Capture, About: r.About}
	for _, file := range r.Files {
		job.Files = append(job.Files, captures.Source{Name: file.Name, File: os.NewFile(uintptr(file.FD), file.Name)})
	}
	return store.Upload(ctx, job)
}

// Fetch fetches a capture.
func Fetch(ctx context.Context, store *captures.Captures, r Request) (any, error) {
	var targets []captures.Target
	for _, file := range r.Files {
		target := captures.Target{Name: file.Name, File: os.NewFile(uintptr(file.FD), file.Name)}
		if file.SeedFD != 0 {
			target.Seed = os.NewFile(uintptr(file.SeedFD), "seed of "+file.Name)
		}
		targets = append(targets, target)
	}
	return store.Fetch(ctx, r.Org, r.Capture, targets)
}

// Run answers one request. It returns an error only if it cannot answer.
func Run(ctx context.Context, kind Kind, store *captures.Captures, in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(io.LimitReader(in, maxLineBytes))
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		// The runner is gone, or has given up.
		_, _ = io.Copy(io.Discard, reader)
		cancel(errors.New("the runner ended the request"))
	}()
	message := map[string]any{}
	if result, err := answer(ctx, kind, store, line); err != nil {
		message["error"] = map[string]string{"code": serve.CodeOf(err), "message": err.Error()}
	} else {
		message["result"] = result
	}
	return json.NewEncoder(out).Encode(message)
}

func answer(ctx context.Context, kind Kind, store *captures.Captures, line []byte) (any, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	limit := min(longest, time.Duration(r.TimeoutMS)*time.Millisecond)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return kind(ctx, store, r)
}

func (r Request) check() error {
	for field, name := range map[string]string{"org": r.Org, "capture": r.Capture} {
		if !objects.IsName(name) {
			return fmt.Errorf("%s: %.50q is not a name", field, name)
		}
	}
	if r.TimeoutMS <= 0 {
		return errors.New("timeout_ms: must be positive")
	}
	for _, file := range r.Files {
		if file.FD < firstDescriptor || file.SeedFD != 0 && file.SeedFD < firstDescriptor {
			return fmt.Errorf("files: %.50q has the descriptors %d and %d", file.Name, file.FD, file.SeedFD)
		}
	}
	return nil
}
