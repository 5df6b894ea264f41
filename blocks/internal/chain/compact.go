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

// maxSparse limits what one compaction moves, maxPinning the disks and snapshots of which the maps are read for it.
const (
	maxSparse  = 64
	maxPinning = 32
)

// SparseSegments are segments of which the head of a disk uses less than a quarter, and that no snapshot and no other disk
// uses: the collector can delete them when their rest is moved. If there are many, they are those with the least of it. A
// disk with many snapshots or relatives has none.
func (d *Disks) SparseSegments(ctx context.Context, source *blockmap.Source, org, disk string) ([]segment.Hash, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return nil, err
	}
	pinning, areFew, err := d.pinningRoots(ctx, source, org, disk, head.Family)
	if err != nil || !areFew {
		return nil, err
	}
	pinned, err := countUsed(ctx, source, org, pinning)
	if err != nil {
		return nil, err
	}
	name, err := head.RootHash()
	if err != nil {
		return nil, err
	}
	root, err := source.Root(ctx, org, name)
	if err != nil {
		return nil, err
	}
	used, err := countUsed(ctx, source, org, []*blockmap.Root{root})
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
		if bytes := used[id]; bytes > 0 && bytes < info.Size/sparseShare && pinned[id] == 0 {
			sparse = append(sparse, id)
		}
	}
	slices.SortFunc(sparse, func(a, b segment.Hash) int { return cmp.Compare(used[a], used[b]) })
	return sparse[:min(len(sparse), maxSparse)], nil
}

// pinningRoots are those of all versions that outlive the head: of snapshots, and of the other disks of the family. It
// returns none of them if they are not few.
func (d *Disks) pinningRoots(ctx context.Context, source *blockmap.Source, org, disk, family string) (roots []*blockmap.Root, areFew bool, err error) {
	members, err := d.members(ctx, org, family)
	if err != nil || len(members) > maxPinning {
		return nil, false, err
	}
	snapshots, err := d.Snapshots(ctx, org, disk)
	if err != nil || len(snapshots) > maxPinning {
		return nil, false, err
	}
	if roots, err = d.rootsOf(ctx, source, org, snapshots); err != nil {
		return nil, false, err
	}
	for _, member := range members {
		if member == disk {
			continue
		}
		others, err := d.keptRoots(ctx, source, org, member)
		if err != nil {
			return nil, false, err
		}
		if roots = append(roots, others...); len(roots) > maxPinning {
			return nil, false, nil
		}
	}
	return roots, true, nil
}

// countUsed returns the bytes that roots use of each segment. A leaf of several roots counts once. A frame is that of one
// block, so one root names it once.
func countUsed(ctx context.Context, source *blockmap.Source, org string, roots []*blockmap.Root) (map[segment.Hash]int64, error) {
	used, counted := map[segment.Hash]int64{}, map[segment.Hash]bool{}
	for _, root := range roots {
		for _, name := range root.Leaves {
			if name == (segment.Hash{}) || counted[name] {
				continue
			}
			counted[name] = true
			leaf, err := source.Leaf(ctx, org, name)
			if err != nil {
				return nil, err
			}
			for _, pieces := range leaf.Blocks {
				for _, piece := range pieces {
					used[piece.Segment] += int64(piece.Length)
				}
			}
		}
	}
	return used, nil
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
