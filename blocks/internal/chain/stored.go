package chain

import (
	"context"
	"errors"
	"slices"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

// StoredBytes counts the frames that a disk is charged for, in all versions that are kept. A frame that several disks
// refer to is charged to one of them: to the one with the fewest ancestors, and so to a parent before its forks; among
// equals to the one with the lowest id. Disks share frames only within a family, and only at the same place, so leaves
// are compared one place after the other.
func (d *Disks) StoredBytes(ctx context.Context, source *blockmap.Source, org, disk string) (int64, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return 0, err
	}
	members, err := d.members(ctx, org, head.Family)
	if err != nil {
		return 0, err
	}
	own, err := d.keptRoots(ctx, source, org, disk)
	if err != nil {
		return 0, err
	}
	ranks, err := d.ranks(ctx, org, members)
	if err != nil {
		return 0, err
	}
	var others []*blockmap.Root
	for _, member := range members {
		rank, exists := ranks[member]
		isBefore := rank < ranks[disk] || rank == ranks[disk] && member < disk
		if !exists || !isBefore {
			continue
		}
		roots, err := d.keptRoots(ctx, source, org, member)
		if err != nil {
			return 0, err
		}
		others = append(others, roots...)
	}
	var total int64
	for index := 0; ; index++ {
		bytes, isEnd, err := storedInLeaf(ctx, source, org, index, own, others)
		total += bytes
		if isEnd || err != nil {
			return total, err
		}
	}
}

// ranks returns the number of ancestors of each member that exists.
func (d *Disks) ranks(ctx context.Context, org string, members []string) (map[string]int, error) {
	parents := map[string]string{}
	for _, member := range members {
		head, err := d.open(ctx, org, member)
		if errors.Is(err, ErrNoDisk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parents[member] = ""
		if head.Parent != nil {
			parents[member] = head.Parent.Disk
		}
	}
	ranks := map[string]int{}
	for member := range parents {
		ranks[member] = 0
		for at := parents[member]; at != "" && ranks[member] <= len(parents); at = parents[at] {
			ranks[member]++
		}
	}
	return ranks, nil
}

func (d *Disks) keptRoots(ctx context.Context, source *blockmap.Source, org, disk string) (roots []*blockmap.Root, err error) {
	versions, err := d.kept(ctx, org, disk)
	if errors.Is(err, ErrNoDisk) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d.rootsOf(ctx, source, org, versions)
}

// rootsOf returns each root once. A version that was given up meanwhile has none.
func (d *Disks) rootsOf(ctx context.Context, source *blockmap.Source, org string, versions []Version) (roots []*blockmap.Root, err error) {
	known := map[string]bool{}
	for _, version := range versions {
		if known[version.Root] {
			continue
		}
		known[version.Root] = true
		name, err := version.RootHash()
		if err != nil {
			return nil, err
		}
		root, err := source.Root(ctx, org, name)
		if errors.Is(err, objects.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	return roots, err
}

// Snapshots lists the snapshots of a disk that are not removed, in ascending order.
func (d *Disks) Snapshots(ctx context.Context, org, disk string) ([]Version, error) {
	versions, err := d.kept(ctx, org, disk)
	return slices.DeleteFunc(versions, func(v Version) bool { return v.Kind != kindSnapshot }), err
}

// kept lists the versions of a disk whose data is kept, but not snapshots above KeepFrom that are removed.
func (d *Disks) kept(ctx context.Context, org, disk string) (versions []Version, err error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return nil, err
	}
	for info, err := range d.Store.List(ctx, chainPrefix(org, disk), "") {
		if err != nil {
			return nil, err
		}
		number, err := parseNumber(info.Key)
		if err != nil {
			return nil, err
		}
		version, err := d.Get(ctx, org, disk, number)
		if errors.Is(err, ErrNoData) {
			continue
		}
		if err != nil {
			return nil, err
		}
		isRemoved := false
		if version.Kind == kindSnapshot {
			if isRemoved, err = d.isRemoved(ctx, org, disk, number); err != nil {
				return nil, err
			}
		}
		if !isRemoved && !isDead(head, version, false) {
			versions = append(versions, version)
		}
	}
	return versions, nil
}

// storedInLeaf counts the frames of one place of the map. It reports the end of all own roots.
func storedInLeaf(ctx context.Context, source *blockmap.Source, org string, index int, own, others []*blockmap.Root) (int64, bool, error) {
	ownNames, otherNames := leavesAt(own, index), leavesAt(others, index)
	frames := map[segment.Place]bool{}
	for name := range ownNames {
		if otherNames[name] {
			delete(ownNames, name)
		}
	}
	for name := range ownNames {
		if err := addFrames(ctx, source, org, name, frames, true); err != nil {
			return 0, false, err
		}
	}
	for name := range otherNames {
		if len(frames) == 0 {
			break
		}
		if err := addFrames(ctx, source, org, name, frames, false); err != nil {
			return 0, false, err
		}
	}
	var total int64
	for place, isOwn := range frames {
		if isOwn {
			total += int64(place.Length)
		}
	}
	isEnd := true
	for _, root := range own {
		isEnd = isEnd && index >= len(root.Leaves)
	}
	return total, isEnd, nil
}

func leavesAt(roots []*blockmap.Root, index int) map[segment.Hash]bool {
	names := map[segment.Hash]bool{}
	for _, root := range roots {
		if index < len(root.Leaves) && root.Leaves[index] != (segment.Hash{}) {
			names[root.Leaves[index]] = true
		}
	}
	return names
}

func addFrames(ctx context.Context, source *blockmap.Source, org string, name segment.Hash, frames map[segment.Place]bool, isOwn bool) error {
	leaf, err := source.Leaf(ctx, org, name)
	if err != nil {
		return err
	}
	for _, pieces := range leaf.Blocks {
		for _, piece := range pieces {
			frames[piece.Place] = isOwn
		}
	}
	return nil
}
