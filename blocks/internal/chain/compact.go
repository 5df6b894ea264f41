package chain

import (
	"cmp"
	"context"
	"slices"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/segment"
)

// sparseShare is the inverse of the share of a segment below which its rest is moved.
const sparseShare = 4

// maxSparse limits what one compaction moves, and so how long drains wait for it.
const maxSparse = 64

// SparseSegments are segments that the head of a disk uses, and of which the kept versions of it, and of all disks that it
// may share data with, use less than a quarter; those with the least of it, if there are many. A segment of another
// organization's or family's disk is not among them.
func (d *Disks) SparseSegments(ctx context.Context, source *blockmap.Source, org, disk string) (map[segment.Hash]bool, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return nil, err
	}
	members, err := d.members(ctx, org, head.Family)
	if err != nil {
		return nil, err
	}
	used := newUsage()
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
	byHead, err := d.usageOf(ctx, source, org, head)
	if err != nil {
		return nil, err
	}
	var sparse []segment.Hash
	for info, err := range d.Store.List(ctx, segment.Prefix(org), "") {
		if err != nil {
			return nil, err
		}
		id, err := segment.ParseHash(info.Key[len(segment.Prefix(org)):])
		if err != nil {
			return nil, err
		}
		if byHead.bytes[id] > 0 && used.bytes[id] < info.Size/sparseShare {
			sparse = append(sparse, id)
		}
	}
	slices.SortFunc(sparse, func(a, b segment.Hash) int { return cmp.Compare(used.bytes[a], used.bytes[b]) })
	chosen := map[segment.Hash]bool{}
	for _, id := range sparse[:min(len(sparse), maxSparse)] {
		chosen[id] = true
	}
	return chosen, nil
}

func (d *Disks) usageOf(ctx context.Context, source *blockmap.Source, org string, version Version) (*usage, error) {
	hash, err := version.RootHash()
	if err != nil {
		return nil, err
	}
	root, err := source.Root(ctx, org, hash)
	if err != nil {
		return nil, err
	}
	used := newUsage()
	return used, used.add(ctx, source, org, root)
}

// usage counts each frame once.
type usage struct {
	bytes  map[segment.Hash]int64
	frames map[segment.Place]bool
	leaves map[segment.Hash]bool
}

func newUsage() *usage {
	return &usage{bytes: map[segment.Hash]int64{}, frames: map[segment.Place]bool{}, leaves: map[segment.Hash]bool{}}
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
