package chain

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"coppice/blocks/internal/objects"
)

func nameKey(org, disk, name string) string { return "names/" + org + "/" + disk + "/" + name }

// Snapshot names the head, which is kept until the snapshot is removed. If no runner holds the disk, at has none. A name
// that exists already gives its snapshot again: the answer to the first request may have been lost.
func (d *Disks) Snapshot(ctx context.Context, at Holding, name string) (Version, error) {
	if !objects.IsName(name) {
		return Version{}, fmt.Errorf("%.50q is not the name of a snapshot", name)
	}
	made, err := d.findSnapshot(ctx, at.Org, at.Disk, name)
	if !errors.Is(err, ErrNoData) {
		return made, err
	}
	return d.change(ctx, at, func(head Version) (Manifest, error) {
		m := head.next(kindSnapshot)
		m.Name = name
		// Before the manifest: a name without a snapshot is harmless, a snapshot without a name would be kept for ever.
		number := strconv.FormatInt(head.Number+1, 10)
		return m, d.Store.Put(ctx, nameKey(at.Org, at.Disk, name), []byte(number))
	})
}

// findSnapshot returns ErrNoData if there is no snapshot of that name.
func (d *Disks) findSnapshot(ctx context.Context, org, disk, name string) (Version, error) {
	body, err := d.Store.Get(ctx, nameKey(org, disk, name), objects.Range{})
	if errors.Is(err, objects.ErrNotFound) {
		return Version{}, ErrNoData
	}
	if err != nil {
		return Version{}, err
	}
	number, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		return Version{}, ErrNoData
	}
	version, err := d.Get(ctx, org, disk, number)
	if err == nil && (version.Kind != kindSnapshot || version.Name != name) {
		return Version{}, ErrNoData
	}
	return version, err
}

// RemoveSnapshot allows the data of a snapshot to be collected.
func (d *Disks) RemoveSnapshot(ctx context.Context, org, disk string, number int64) error {
	version, err := d.Get(ctx, org, disk, number)
	if err != nil {
		return err
	}
	if version.Kind != kindSnapshot {
		return fmt.Errorf("version %d of %s/%s is not a snapshot", number, org, disk)
	}
	if err := d.Store.Put(ctx, removedKey(org, disk, number), []byte("removed")); err != nil {
		return err
	}
	return d.Store.Delete(ctx, nameKey(org, disk, version.Name))
}

func (d *Disks) removeNames(ctx context.Context, org, disk string) error {
	for info, err := range d.Store.List(ctx, nameKey(org, disk, ""), "") {
		if err != nil {
			return err
		}
		if err := d.Store.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}
