// Package drain uploads a sealed overlay as the next version of its disk.
package drain

import (
	"context"
	"errors"
	"fmt"
	"os"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/qcow2"
	"coppice/blocks/internal/segment"
)

// conflictTries is how often all is uploaded again after a fence of the collector.
const conflictTries = 3

// Job is an overlay and the disk that it belongs to.
type Job struct {
	chain.Holding
	// Source is a name that only this overlay ever has. Draining it twice in a row gives the version of the first time. After
	// a crash, all overlays that are left are drained in ascending order.
	Source string
	// KeepFrom is the oldest version that is still read; 0: none but the new one.
	KeepFrom int64
}

// Result describes the version. Of a version that an earlier attempt made, the statistics are zero.
type Result struct {
	Version chain.Version
	Stats   blockmap.Stats
	// IsRepeated says that an earlier attempt made the version.
	IsRepeated bool
}

// Run drains an overlay of a disk that the job's runner holds.
func Run(ctx context.Context, disks *chain.Disks, source *blockmap.Source, job Job, overlay *os.File) (Result, error) {
	image, err := openImage(overlay)
	if err != nil {
		return Result{}, err
	}
	return Apply(ctx, disks, source, job, image.Size(), func(ctx context.Context, builder *blockmap.Builder) error {
		for extent, err := range image.Extents() {
			if err != nil {
				return err
			}
			change := blockmap.Change{Offset: extent.Offset, Length: extent.Length, IsZero: extent.IsZero}
			change.Read = func(content []byte, at int64) error { return image.ReadAt(content, extent, at) }
			if err := builder.Apply(ctx, change); err != nil {
				return err
			}
		}
		return nil
	})
}

// Apply makes a version from changes that fill adds in ascending order. It may call fill again.
func Apply(ctx context.Context, disks *chain.Disks, source *blockmap.Source, job Job, size int64,
	fill func(context.Context, *blockmap.Builder) error) (Result, error) {
	head, err := disks.Held(ctx, job.Holding)
	if err != nil {
		return Result{}, err
	}
	for try, root := 1, head.Root; ; try++ {
		result, err := applyOnce(ctx, disks, source, head, job, size, fill)
		if !errors.Is(err, chain.ErrConflict) || try == conflictTries {
			return result, err
		}
		if head, err = disks.Held(ctx, job.Holding); err != nil {
			return Result{}, err
		}
		if head.Root == root {
			continue
		}
		// A process of the same runner drained meanwhile. Unless that was this overlay, it may have been a later one, which
		// this one must not hide.
		version, isDrained, err := disks.IsDrained(ctx, job.Holding, head, job.Source)
		if err == nil && !isDrained {
			err = fmt.Errorf("%w: the content of %s/%s changed", chain.ErrConflict, job.Org, job.Disk)
		}
		return Result{Version: version, IsRepeated: isDrained}, err
	}
}

func applyOnce(ctx context.Context, disks *chain.Disks, source *blockmap.Source, head chain.Version, job Job, size int64,
	fill func(context.Context, *blockmap.Builder) error) (Result, error) {
	// An overlay may be smaller: the disk has grown since.
	if size > head.SizeBytes {
		return Result{}, fmt.Errorf("the overlay has %d bytes, the disk %d", size, head.SizeBytes)
	}
	version, isDrained, err := disks.IsDrained(ctx, job.Holding, head, job.Source)
	if isDrained || err != nil {
		return Result{Version: version, IsRepeated: isDrained}, err
	}
	upload, err := disks.BeginUpload(ctx, job.Holding)
	if err != nil {
		return Result{}, err
	}
	if upload.Base.Root != head.Root {
		err := fmt.Errorf("%w: %s/%s is written by another process", chain.ErrConflict, job.Org, job.Disk)
		return Result{}, errors.Join(err, upload.Abort(ctx))
	}
	root, stats, err := build(ctx, source, job.Org, upload, fill)
	if err != nil {
		// Nothing can create the manifest any more, so the collector need not wait for it.
		return Result{}, errors.Join(err, upload.Abort(context.WithoutCancel(ctx)))
	}
	version, err = upload.Commit(ctx, root, job.Source, job.KeepFrom)
	return Result{Version: version, Stats: stats}, err
}

func build(ctx context.Context, source *blockmap.Source, org string, upload *chain.Upload,
	fill func(context.Context, *blockmap.Builder) error) (root segment.Hash, stats blockmap.Stats, err error) {
	base, err := upload.Base.RootHash()
	if err != nil {
		return root, stats, err
	}
	version, err := blockmap.OpenVersion(ctx, source, org, base, upload.Base.SizeBytes)
	if err != nil {
		return root, stats, err
	}
	builder := blockmap.NewBuilder(ctx, version, upload.ID)
	defer builder.Close()
	if err := fill(ctx, builder); err != nil {
		return root, stats, err
	}
	if root, stats, err = builder.Finish(ctx); err == nil && stats.ChangedBytes+stats.ZeroBytes == 0 {
		// The same content keeps its name: a guest that has the former version mounted may continue on this one.
		root = base
	}
	return root, stats, err
}

// Dirty counts the bytes of an overlay that a drain would upload.
func Dirty(overlay *os.File) (dataBytes, zeroBytes int64, err error) {
	image, err := openImage(overlay)
	if err != nil {
		return 0, 0, err
	}
	for extent, err := range image.Extents() {
		if err != nil {
			return 0, 0, err
		}
		if extent.IsZero {
			zeroBytes += extent.Length
		} else {
			dataBytes += extent.Length
		}
	}
	return dataBytes, zeroBytes, nil
}

func openImage(overlay *os.File) (*qcow2.Image, error) {
	info, err := overlay.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the overlay: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a file", qcow2.ErrRefused)
	}
	image, err := qcow2.Open(overlay, info.Size())
	if err == nil && image.Granularity() < segment.PageBytes {
		return nil, fmt.Errorf("%w: parts of %d bytes", qcow2.ErrRefused, image.Granularity())
	}
	return image, err
}
