package drain

import (
	"context"
	"errors"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/segment"
)

// maxMoved limits the time of a compaction: whole blocks are moved, also those with frames in other segments.
const maxMoved = 64 << 20

// Compact moves data of a disk out of segments that are mostly unused, so that the collector can delete them. It makes no
// version if there is none.
func Compact(ctx context.Context, disks *chain.Disks, source *blockmap.Source, at chain.Holding, sparse []segment.Hash) (Result, error) {
	chosen := map[segment.Hash]bool{}
	for _, id := range sparse {
		chosen[id] = true
	}
	upload, err := disks.BeginCompaction(ctx, at)
	if err != nil {
		return Result{}, err
	}
	move := func(ctx context.Context, builder *blockmap.Builder) error { return builder.Move(ctx, chosen, maxMoved) }
	root, stats, err := build(ctx, source, at.Org, upload, move)
	if err == nil && stats.ChangedBytes == 0 {
		return Result{Version: upload.Base, IsRepeated: true}, upload.Abort(ctx)
	}
	if err != nil {
		return Result{}, errors.Join(err, upload.Abort(context.WithoutCancel(ctx)))
	}
	version, err := upload.CommitCompaction(ctx, root)
	return Result{Version: version, Stats: stats}, err
}
