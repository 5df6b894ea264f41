package drain

import (
	"context"
	"errors"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
)

// Compact moves the data of a disk out of segments that are mostly unused, so that the collector can delete them. It makes
// no version if there are none.
func Compact(ctx context.Context, disks *chain.Disks, source *blockmap.Source, at chain.Holding) (Result, error) {
	head, err := disks.Held(ctx, at)
	if err != nil {
		return Result{}, err
	}
	sparse, err := disks.SparseSegments(ctx, source, at.Org, at.Disk)
	if err != nil || len(sparse) == 0 {
		return Result{Version: head, IsRepeated: err == nil}, err
	}
	upload, err := disks.BeginCompaction(ctx, at)
	if err != nil {
		return Result{}, err
	}
	move := func(ctx context.Context, builder *blockmap.Builder) error { return builder.Move(ctx, sparse) }
	root, stats, err := build(ctx, source, at.Org, upload, move)
	if err == nil && stats.ChangedBytes == 0 {
		// Only older versions use them.
		return Result{Version: head, IsRepeated: true}, upload.Abort(ctx)
	}
	if err != nil {
		return Result{}, errors.Join(err, upload.Abort(context.WithoutCancel(ctx)))
	}
	version, err := upload.CommitCompaction(ctx, root)
	return Result{Version: version, Stats: stats}, err
}
