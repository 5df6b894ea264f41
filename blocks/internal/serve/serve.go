// Package serve answers the runner's requests as lines of JSON. Each line in has an id and an operation; each line out has
// the same id and a result, or an error with a code. Requests run concurrently, those of one disk one after the other.
//
//	{"id":1,"op":"create","org":"o","disk":"d","size_bytes":1073741824}
//	{"id":2,"op":"take","org":"o","disk":"d","runner":"r","lease_ms":30000}
//	{"id":2,"result":{"version":2,"kind":"take","root":"…","size_bytes":1073741824,"epoch":1,"runner":"r",…}}
//	{"id":3,"op":"load","org":"o","disk":"d","version":2}              {"id":3,"result":{"export":"o/d/2/…","size_bytes":…}}
//	{"id":4,"op":"drain","org":"o","disk":"d","runner":"r","epoch":1,"overlay":"vm/o1.qcow2","source":"…","keep_from":2}
//	{"id":4,"error":{"code":"stale","message":"…"}}
//
// Most results are a version: its number and its manifest. The others, and what they need besides org and disk:
//
//	import     overlay, format, size_bytes (0: that of the image), source    as drain
//	take       runner, lease_ms                     the version, and previous (a version), recovered
//	drain      runner, epoch, overlay, source, keep_from (0: the new version)  the version, and repeated, changed_bytes, …
//	sparse     nothing                              segments: those of which little is used, and that a compact can free
//	compact    runner, epoch, segments (a list,…)   as drain; repeated if there was nothing to do
//	status     nothing, or a disk                   exports, reads, oldest_read_ms, store_ok_ms, store_error_ms, store_error
//	stored                                          stored_bytes
//	snapshots                                       snapshots: versions
//	dirty      overlay                              data_bytes, zero_bytes
//	collect    upload_ms                            deleted_objects, deleted_bytes, missing, …
//
// Those of captures need org and capture. Programs of their own store and fetch them (package transfer).
//
//	find_capture                                    about, files, stored_bytes, data_bytes
//	delete_capture                                  true
//	collect_captures  upload_ms, no capture         deleted_objects, deleted_bytes, unused, …
package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/qcow2"
	"coppice/blocks/internal/segment"
)

const (
	maxLineBytes = 64 << 10
	maxWaiting   = 4096
	maxRequests  = 64
	// maxHeavyRequests limits memory: a drain holds some segments.
	maxHeavyRequests = 4
	// usualTime limits an operation that names no deadline.
	usualTime = 10 * time.Minute
)

// Request is one line in.
type Request struct {
	ID        int64  `json:"id"`
	Op        string `json:"op"`
	Org       string `json:"org"`
	Disk      string `json:"disk"`
	Capture   string `json:"capture"`
	To        string `json:"to"`
	Runner    string `json:"runner"`
	Epoch     int64  `json:"epoch"`
	Version   int64  `json:"version"`
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes"`
	Format    string `json:"format"`
	// MaxBytes and FileSystem limit what is imported.
	MaxBytes   int64  `json:"max_bytes"`
	FileSystem string `json:"file_system"`
	LeaseMS    int64  `json:"lease_ms"`
	Overlay    string `json:"overlay"`
	Source     string `json:"source"`
	KeepFrom   int64  `json:"keep_from"`
	// Segments are names, with commas between them.
	Segments string `json:"segments"`
	// TimeoutMS limits the operation.
	TimeoutMS int64 `json:"timeout_ms"`
	// UploadMS is for collect: longer than the longest upload.
	UploadMS int64 `json:"upload_ms"`
}

// Server has the state of one process: the loaded versions. All else is in the store.
type Server struct {
	Disks    *chain.Disks
	Captures *captures.Captures
	Source   *blockmap.Source
	Exports  *Exports
	Health   *objects.Health
	// Reads counts the NBD requests in progress for exports whose name begins with a prefix, and says when the oldest began.
	Reads func(prefix string) (count int, oldest time.Time)
	// Overlays opens an overlay by its name.
	Overlays Opener

	locks keyedLocks
	// slots bound what runs at a time, heavy those of them that move data, and so the memory.
	slots, heavy chan struct{}
}

// Run answers requests until in ends, and returns when all are answered.
func (s *Server) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := &lineWriter{out: out}
	waiting := make(chan struct{}, maxWaiting)
	s.slots, s.heavy = make(chan struct{}, maxRequests), make(chan struct{}, maxHeavyRequests)
	var group sync.WaitGroup
	defer group.Wait()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxLineBytes)
	for lines.Scan() {
		var asked Request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			answers.write(asked.ID, answer{err: fmt.Errorf("%w: %w", errInvalid, err)})
			continue
		}
		waiting <- struct{}{}
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() { <-waiting }()
			answers.write(asked.ID, s.answer(ctx, asked))
		}()
	}
	return lines.Err()
}

type answer struct {
	result any
	err    error
}

func (s *Server) answer(ctx context.Context, r Request) answer {
	limit := usualTime
	if r.TimeoutMS > 0 {
		limit = time.Duration(r.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := r.check(); err != nil {
		return answer{err: err}
	}
	end, err := s.begin(ctx, r)
	defer end()
	if err != nil {
		return answer{err: err}
	}
	result, err := s.act(ctx, r)
	return answer{result, err}
}

// begin waits until the request may run. Changes of a disk run one after the other; questions, and the renewal of leases,
// wait for nothing.
func (s *Server) begin(ctx context.Context, r Request) (end func(), err error) {
	var undo []func()
	end = func() {
		for _, each := range slices.Backward(undo) {
			each()
		}
	}
	needs := operations[r.Op]
	if needs.isChange && r.Disk != "" {
		unlock, err := s.locks.lock(ctx, r.Org+"/"+r.Disk)
		if err != nil {
			return end, err
		}
		undo = append(undo, unlock)
	}
	slots := s.slots
	switch {
	case needs.isHeavy:
		slots = s.heavy
	case !needs.isChange:
		return end, nil
	}
	select {
	case slots <- struct{}{}:
		undo = append(undo, func() { <-slots })
		return end, nil
	case <-ctx.Done():
		return end, ctx.Err()
	}
}

func (r Request) check() error {
	for _, name := range []string{r.Org, r.Disk, r.Capture, r.To, r.Runner} {
		if name != "" && !objects.IsName(name) {
			return fmt.Errorf("%w: %.50q is not a name", errInvalid, name)
		}
	}
	needs, known := operations[r.Op]
	if !known {
		return fmt.Errorf("%w: there is no operation %q", errInvalid, r.Op)
	}
	values := map[string]string{"org": r.Org, "disk": r.Disk, "to": r.To, "runner": r.Runner, "overlay": r.Overlay,
		"segments": r.Segments, "capture": r.Capture}
	for _, field := range needs.fields {
		if values[field] == "" {
			return fmt.Errorf("%w: %s needs %s", errInvalid, r.Op, field)
		}
	}
	return nil
}

// operation is what a request with its name needs.
type operation struct {
	fields []string
	// isChange is set for changes of a disk; isHeavy for what moves data, or reads all maps of a disk.
	isChange, isHeavy bool
}

var (
	errInvalid = errors.New("the request is invalid")

	operations = map[string]operation{
		"status":          {},
		"renew":           {fields: []string{"runner"}},
		"stat":            {fields: ofDisk},
		"load":            {fields: ofDisk},
		"unload":          {fields: ofDisk},
		"dirty":           {fields: []string{"overlay"}},
		"snapshots":       {fields: ofDisk, isHeavy: true},
		"stored":          {fields: ofDisk, isHeavy: true},
		"sparse":          {fields: ofDisk, isHeavy: true},
		"collect":         {fields: []string{"org"}, isHeavy: true},
		"create":          {fields: ofDisk, isChange: true},
		"take":            {fields: ofRunner, isChange: true},
		"release":         {fields: ofRunner, isChange: true},
		"snapshot":        {fields: ofDisk, isChange: true},
		"remove_snapshot": {fields: ofDisk, isChange: true},
		"grow":            {fields: ofDisk, isChange: true},
		"revert":          {fields: ofDisk, isChange: true},
		"delete":          {fields: ofDisk, isChange: true},
		"fork":            {fields: []string{"org", "disk", "to"}, isChange: true},
		"import":          {fields: []string{"org", "disk", "overlay"}, isChange: true, isHeavy: true},
		"compact":         {fields: []string{"org", "disk", "runner", "segments"}, isChange: true, isHeavy: true},
		"drain":           {fields: []string{"org", "disk", "runner", "overlay"}, isChange: true, isHeavy: true},

		"find_capture":     {fields: ofCapture},
		"delete_capture":   {fields: ofCapture, isChange: true},
		"collect_captures": {fields: []string{"org"}, isHeavy: true},
	}
	ofDisk    = []string{"org", "disk"}
	ofRunner  = []string{"org", "disk", "runner"}
	ofCapture = []string{"org", "capture"}
)

// codes are in the errors of answers; everything else is "failed".
var codes = []struct {
	err  error
	code string
}{
	{errInvalid, "invalid"},
	{chain.ErrSize, "invalid"},
	{chain.ErrStale, "stale"},
	{chain.ErrHeld, "held"},
	{chain.ErrExists, "exists"},
	{chain.ErrHasForks, "has_forks"},
	{chain.ErrNoDisk, "no_disk"},
	{chain.ErrNoData, "no_data"},
	{chain.ErrConflict, "conflict"},
	{captures.ErrNoCapture, "no_capture"},
	{captures.ErrConflict, "conflict"},
	{captures.ErrChanged, "changed"},
	{qcow2.ErrRefused, "refused"},
	{drain.ErrImage, "refused"},
	{drain.ErrTooLarge, "too_large"},
	{segment.ErrCorrupt, "corrupt"},
	{objects.ErrFull, "store_full"},
	{objects.ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
}

// CodeOf returns the code of an error in an answer.
func CodeOf(err error) string {
	for _, each := range codes {
		if errors.Is(err, each.err) {
			return each.code
		}
	}
	return "failed"
}

type lineWriter struct {
	mutex sync.Mutex
	out   io.Writer
}

func (w *lineWriter) write(id int64, a answer) {
	message := map[string]any{"id": id, "result": a.result}
	if a.err != nil {
		message = map[string]any{"id": id, "error": map[string]string{"code": CodeOf(a.err), "message": a.err.Error()}}
	}
	line, err := json.Marshal(message)
	if err != nil {
		line = fmt.Appendf(nil, `{"id":%d,"error":{"code":"failed","message":"the answer cannot be encoded"}}`, id)
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	// A peer that is gone needs no answer.
	_, _ = w.out.Write(append(line, '\n'))
}

// keyedLocks lets one request a disk run. An entry of a disk stays, which is small.
type keyedLocks struct {
	mutex sync.Mutex
	locks map[string]chan struct{}
}

func (k *keyedLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mutex.Lock()
	if k.locks == nil {
		k.locks = map[string]chan struct{}{}
	}
	held, ok := k.locks[key]
	if !ok {
		held = make(chan struct{}, 1)
		k.locks[key] = held
	}
	k.mutex.Unlock()
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
