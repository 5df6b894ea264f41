package serve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/segment"
)

// usualUploadTime is the time after which the collector gives up an upload.
const usualUploadTime = 24 * time.Hour

func (s *Server) act(ctx context.Context, r Request) (any, error) {
	holding := chain.Holding{Org: r.Org, Disk: r.Disk, Runner: r.Runner, Epoch: r.Epoch}
	switch r.Op {
	case "status":
		return s.status(r), nil
	case "create":
		return pass(s.Disks.Create(ctx, r.Org, r.Disk, r.SizeBytes))
	case "take":
		return pass(s.Disks.Take(ctx, r.Org, r.Disk, r.Runner, time.Duration(r.LeaseMS)*time.Millisecond))
	case "renew":
		return true, s.Disks.Renew(ctx, r.Runner)
	case "release":
		return pass(s.Disks.Release(ctx, holding))
	case "snapshot":
		return pass(s.Disks.Snapshot(ctx, holding, r.Name))
	case "remove_snapshot":
		return true, s.Disks.RemoveSnapshot(ctx, r.Org, r.Disk, r.Version)
	case "grow":
		return pass(s.Disks.Grow(ctx, holding, r.SizeBytes))
	case "revert":
		return pass(s.Disks.Revert(ctx, holding, r.Version))
	case "fork":
		return pass(s.Disks.Fork(ctx, r.Org, r.Disk, r.Version, r.To))
	case "delete":
		return true, s.Disks.Delete(ctx, r.Org, r.Disk)
	case "load":
		return s.Exports.Load(ctx, r)
	case "unload":
		s.Exports.Unload(r)
		return true, nil
	default:
		return s.actOnData(ctx, r, holding)
	}
}

func (s *Server) actOnData(ctx context.Context, r Request, holding chain.Holding) (any, error) {
	switch r.Op {
	case "drain":
		return s.drain(ctx, r, holding)
	case "import":
		return s.importImage(ctx, r)
	case "sparse":
		segments, err := s.Disks.SparseSegments(ctx, s.Source, r.Org, r.Disk)
		names := make([]string, len(segments))
		for index, id := range segments {
			names[index] = id.String()
		}
		return map[string]any{"segments": names}, err
	case "compact":
		return s.compact(ctx, r, holding)
	case "dirty":
		return s.dirty(r)
	case "stat":
		return s.stat(ctx, r)
	case "snapshots":
		snapshots, err := s.Disks.Snapshots(ctx, r.Org, r.Disk)
		return map[string]any{"snapshots": append([]chain.Version{}, snapshots...)}, err
	case "stored":
		stored, err := s.Disks.StoredBytes(ctx, s.Source, r.Org, r.Disk)
		return map[string]int64{"stored_bytes": stored}, err
	case "collect":
		collector := &chain.Collector{Disks: s.Disks, Source: s.Source, UploadTime: usualUploadTime}
		if r.UploadMS > 0 {
			collector.UploadTime = time.Duration(r.UploadMS) * time.Millisecond
		}
		return pass(collector.Collect(ctx, r.Org))
	default:
		return s.actOnCapture(ctx, r)
	}
}

func (s *Server) actOnCapture(ctx context.Context, r Request) (any, error) {
	switch r.Op {
	case "find_capture":
		found, err := s.Captures.Find(ctx, r.Org, r.Capture)
		if err != nil {
			return nil, err
		}
		files := make([]captureFile, 0, len(found.Files))
		for _, file := range found.Files {
			files = append(files, captureFile{file.Name, file.SizeBytes})
		}
		return map[string]any{"about": found.About, "files": files, "stored_bytes": found.StoredBytes, "data_bytes": found.Bytes()}, nil
	case "delete_capture":
		return true, s.Captures.Delete(ctx, r.Org, r.Capture)
	case "collect_captures":
		collector := &captures.Collector{Captures: s.Captures, UploadTime: usualUploadTime}
		if r.UploadMS > 0 {
			collector.UploadTime = time.Duration(r.UploadMS) * time.Millisecond
		}
		return pass(collector.Collect(ctx, r.Org))
	}
	return nil, fmt.Errorf("%w: %s is not implemented", errInvalid, r.Op)
}

type captureFile struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"size_bytes"`
}

func pass[T any](result T, err error) (any, error) { return result, err }

type drained struct {
	chain.Version
	IsRepeated   bool  `json:"repeated"`
	ChangedBytes int64 `json:"changed_bytes"`
	ZeroBytes    int64 `json:"zero_bytes"`
	FrameBytes   int64 `json:"frame_bytes"`
	MapBytes     int64 `json:"map_bytes"`
	Segments     int   `json:"segments"`
	Leaves       int   `json:"leaves"`
	// Amplification is stored bytes per changed byte.
	Amplification float64 `json:"amplification"`
	DurationMS    int64   `json:"duration_ms"`
}

func (s *Server) compact(ctx context.Context, r Request, holding chain.Holding) (any, error) {
	start := time.Now()
	var sparse []segment.Hash
	for _, name := range strings.Split(r.Segments, ",") {
		id, err := segment.ParseHash(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %.50q is no name of a segment", errInvalid, name)
		}
		sparse = append(sparse, id)
	}
	result, err := drain.Compact(ctx, s.Disks, s.Source, holding, sparse)
	if err != nil {
		return nil, err
	}
	return describe(result, start), nil
}

func (s *Server) drain(ctx context.Context, r Request, holding chain.Holding) (any, error) {
	start := time.Now()
	overlay, err := s.Overlays.Open(r.Overlay)
	if err != nil {
		return nil, err
	}
	defer overlay.Close()
	job := drain.Job{Holding: holding, Source: r.Source, KeepFrom: r.KeepFrom}
	result, err := drain.Run(ctx, s.Disks, s.Source, job, overlay)
	if err != nil {
		return nil, err
	}
	return describe(result, start), nil
}

func (s *Server) importImage(ctx context.Context, r Request) (any, error) {
	start := time.Now()
	image, err := s.Overlays.Open(r.Overlay)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	job := chain.Import{Org: r.Org, Disk: r.Disk, SizeBytes: r.SizeBytes, Name: r.Source}
	result, err := drain.Import(ctx, s.Disks, s.Source, job,
		drain.Image{Format: r.Format, File: image, MaxBytes: r.MaxBytes, FileSystem: r.FileSystem})
	if err != nil {
		return nil, err
	}
	return describe(result, start), nil
}

func describe(result drain.Result, start time.Time) drained {
	stats := result.Stats
	answer := drained{Version: result.Version, IsRepeated: result.IsRepeated, ChangedBytes: stats.ChangedBytes,
		ZeroBytes: stats.ZeroBytes, FrameBytes: stats.FrameBytes, MapBytes: stats.MapBytes, Segments: stats.Segments,
		Leaves: stats.Leaves, DurationMS: time.Since(start).Milliseconds()}
	if stats.ChangedBytes > 0 {
		answer.Amplification = float64(stats.FrameBytes+stats.MapBytes) / float64(stats.ChangedBytes)
	}
	return answer
}

func (s *Server) dirty(r Request) (any, error) {
	overlay, err := s.Overlays.Open(r.Overlay)
	if err != nil {
		return nil, err
	}
	defer overlay.Close()
	data, zero, err := drain.Dirty(overlay)
	return map[string]int64{"data_bytes": data, "zero_bytes": zero}, err
}

// stat describes the newest version; a deleted disk has none.
func (s *Server) stat(ctx context.Context, r Request) (any, error) {
	head, err := s.Disks.Head(ctx, r.Org, r.Disk)
	if err == nil && head.IsDeleted() {
		return nil, fmt.Errorf("%w: %s/%s is deleted", chain.ErrNoDisk, r.Org, r.Disk)
	}
	return head, err
}

// status tells whether reads proceed. While one waits for the store, the runner must not change the graph of its VM: QEMU
// would wait for it, and stop the guest meanwhile.
type status struct {
	Exports int `json:"exports"`
	// Reads are the NBD requests in progress, of one disk if the request names one.
	Reads        int   `json:"reads"`
	OldestReadMS int64 `json:"oldest_read_ms"`
	// The times are since the last success and the last failure of the store; null before the first.
	StoreOKMS    *int64 `json:"store_ok_ms"`
	StoreErrorMS *int64 `json:"store_error_ms"`
	StoreError   string `json:"store_error"`
}

func (s *Server) status(r Request) status {
	prefix := ""
	if r.Disk != "" {
		prefix = r.Org + "/" + r.Disk + "/"
	}
	now := time.Now()
	reads, oldest := s.Reads(prefix)
	answer := status{Exports: s.Exports.Count(), Reads: reads}
	if reads > 0 {
		answer.OldestReadMS = now.Sub(oldest).Milliseconds()
	}
	since := func(at time.Time) *int64 {
		if at.IsZero() {
			return nil
		}
		ms := now.Sub(at).Milliseconds()
		return &ms
	}
	health := s.Health.Last()
	answer.StoreOKMS, answer.StoreErrorMS, answer.StoreError = since(health.Success), since(health.Failure), health.Error
	return answer
}
