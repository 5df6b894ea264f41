package chain

import (
	"context"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/segment"
)

// sparseShare is the inverse of the share of a segment below which its rest is moved.
const sparseShare = 4

// SparseSegments are the segments of which the kept versions of a disk, and of all disks that it may share data with, use
// less than a quarter. A segment of another organization's or family's disk is not among them.
func (d *Disks) SparseSegments(ctx context.Context, source *blockmap.Source, org, disk string) (map[segment.Hash]bool, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return nil, err
	}
	members, err := d.members(ctx, org, head.Family)
	if err != nil {
		return nil, err
	}
	used := &usage{bytes: map[segment.Hash]int64{}, frames: map[segment.Place]bool{}, leaves: map[segment.Hash]bool{}}
	for _, member := range members {
		roots, err := d.keptRoots(ctx, source, org, member)
		if err != nil {
			return nil, err
		}
		for _, root := range roots {
			if err := used.add(ctx, source, org, root); err != nil {
				return nil, err
			}
		}
	}
	sparse := map[segment.Hash]bool{}
	for info, err := range d.Store.List(ctx, segment.Prefix(org), "") {
		if err != nil {
			return nil, err
		}
		id, err := segment.ParseHash(info.Key[len(segment.Prefix(org)):])
		if err != nil {
			return nil, err
		}
		if bytes := used.bytes[id]; bytes > 0 && bytes < info.Size/sparseShare {
			sparse[id] = true
		}
	}
	return sparse, nil
}

// usage counts each frame once.
type usage struct {
	bytes  map[segment.Hash]int64
	frames map[segment.Place]bool
	leaves map[segment.Hash]bool
}

func (u *usage) add(ctx context.Context, source *blockmap.Source, org string, root *blockmap.Root) error {
	for _, name := range root.Leaves {
		if u.leaves[name] {
			continue
		}
		u.leaves[name] = true
		leaf, err := source.Leaf(ctx, org, name)
		if err != nil {
			return err
		}
		for _, pieces := range leaf.Blocks {
			for _, piece := range pieces {
				if !u.frames[piece.Place] {
					u.frames[piece.Place] = true
					u.bytes[piece.Segment] += int64(piece.Length)
				}
			}
		}
	}
	return nil
}

// BeginCompaction announces a version with the content of the head.
func (d *Disks) BeginCompaction(ctx context.Context, at Holding) (*Upload, error) {
	upload, err := d.BeginUpload(ctx, at)
	if err != nil {
		return nil, err
	}
	upload.kind = kindCompact
	return upload, nil
}

// CommitCompaction keeps the versions that the holder reads, and the time at which the content was written.
func (u *Upload) CommitCompaction(ctx context.Context, root segment.Hash) (Version, error) {
	m := u.Base.next(u.kind)
	m.Root = root.String()
	return u.commit(ctx, m)
}
