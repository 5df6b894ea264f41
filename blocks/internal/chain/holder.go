package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

const (
	conflictTries = 5
	leasePoll     = 200 * time.Millisecond
	pageBytes     = segment.PageBytes
	maxSizeBytes  = 16 << 40
)

// Holding names a holder of a disk.
type Holding struct {
	Org, Disk, Runner string
	Epoch             int64
}

// Create makes an empty disk that no runner holds.
func (d *Disks) Create(ctx context.Context, org, disk string, sizeBytes int64) (Version, error) {
	return d.create(ctx, org, disk, sizeBytes, "")
}

func (d *Disks) create(ctx context.Context, org, disk string, sizeBytes int64, source string) (Version, error) {
	if sizeBytes <= 0 || sizeBytes%pageBytes != 0 || sizeBytes > maxSizeBytes {
		return Version{}, fmt.Errorf("%w: %d bytes, must be a multiple of %d, at most %d", ErrSize, sizeBytes, pageBytes, int64(maxSizeBytes))
	}
	if err := d.Store.Put(ctx, familyKey(org, disk, disk), nil); err != nil {
		return Version{}, err
	}
	m := Manifest{Kind: kindCreate, Root: segment.Hash{}.String(), SizeBytes: sizeBytes, Family: disk, KeepFrom: 1, Source: source}
	version, err := d.appendTo(ctx, org, disk, 0, m)
	if errors.Is(err, ErrConflict) {
		return Version{}, fmt.Errorf("%w: %s/%s", ErrExists, org, disk)
	}
	return version, err
}

func familyKey(org, family, disk string) string { return "families/" + org + "/" + family + "/" + disk }

// Taken is a holding that begins.
type Taken struct {
	Version
	// Previous is the version that the holder continues from.
	Previous Version `json:"previous"`
	// IsRecovered says that an earlier holder did not release the disk; Previous names it. If that was this runner, its
	// overlays may still be here; what another one had not drained is lost.
	IsRecovered bool `json:"recovered"`
}

// Take makes a runner the holder. If another holds the disk, Take watches it for the time of its lease, on its own
// clock, and takes the disk if the other neither renewed its leases nor wrote a manifest.
func (d *Disks) Take(ctx context.Context, org, disk, runner string, lease time.Duration) (Taken, error) {
	if !objects.IsName(runner) || lease < 0 {
		return Taken{}, fmt.Errorf("%q with a lease of %v cannot hold a disk", runner, lease)
	}
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return Taken{}, err
	}
	if head.Runner != "" && head.Runner != runner {
		if err := d.outwait(ctx, org, disk, head); err != nil {
			return Taken{}, err
		}
	}
	m := head.next(kindTake)
	m.Epoch, m.Runner, m.LeaseMS = head.Epoch+1, runner, lease.Milliseconds()
	// VMs of this runner may have survived it, and read the versions that it kept.
	if head.Runner != runner {
		m.KeepFrom = head.Number
	}
	version, err := d.appendTo(ctx, org, disk, head.Number, m)
	return Taken{Version: version, Previous: head, IsRecovered: head.Runner != ""}, err
}

func (d *Disks) outwait(ctx context.Context, org, disk string, head Version) error {
	first, err := d.readLease(ctx, head.Runner)
	if err != nil {
		return err
	}
	for end := time.Now().Add(time.Duration(head.LeaseMS) * time.Millisecond); ; {
		now, err := d.readLease(ctx, head.Runner)
		if err != nil {
			return err
		}
		if !bytes.Equal(first, now) {
			return fmt.Errorf("%w: %s/%s by %s", ErrHeld, org, disk, head.Runner)
		}
		rest := time.Until(end)
		if rest <= 0 {
			return nil // a manifest that the holder wrote meanwhile makes the next one fail
		}
		select {
		case <-time.After(min(rest, leasePoll)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Disks) readLease(ctx context.Context, runner string) ([]byte, error) {
	content, err := d.Store.Get(ctx, "leases/"+runner, objects.Range{})
	if errors.Is(err, objects.ErrNotFound) {
		return nil, nil
	}
	return content, err
}

// Renew renews all leases of a runner.
func (d *Disks) Renew(ctx context.Context, runner string) error {
	if !objects.IsName(runner) {
		return fmt.Errorf("%q is not the id of a runner", runner)
	}
	return d.Store.Put(ctx, "leases/"+runner, []byte(segment.NewID().String()))
}

// Release ends the holding.
func (d *Disks) Release(ctx context.Context, at Holding) (Version, error) {
	return d.change(ctx, at, func(head Version) (Manifest, error) {
		m := head.next(kindRelease)
		m.Runner, m.LeaseMS, m.KeepFrom = "", 0, head.Number
		return m, nil
	})
}

// Grow makes the disk larger.
func (d *Disks) Grow(ctx context.Context, at Holding, sizeBytes int64) (Version, error) {
	return d.change(ctx, at, func(head Version) (Manifest, error) {
		if sizeBytes < head.SizeBytes || sizeBytes%pageBytes != 0 || sizeBytes > maxSizeBytes {
			return Manifest{}, fmt.Errorf("%w: a disk of %d bytes cannot have %d", ErrSize, head.SizeBytes, sizeBytes)
		}
		m := head.next(kindGrow)
		m.SizeBytes = sizeBytes
		return m, nil
	})
}

// Held returns the head, if the holder still holds the disk.
func (d *Disks) Held(ctx context.Context, at Holding) (Version, error) {
	head, err := d.open(ctx, at.Org, at.Disk)
	if err != nil {
		return Version{}, err
	}
	if head.Runner != at.Runner || at.Runner != "" && head.Epoch != at.Epoch {
		if at.Runner == "" {
			return Version{}, fmt.Errorf("%w: %s/%s", ErrHeld, at.Org, at.Disk)
		}
		return Version{}, fmt.Errorf("%w: %s/%s has epoch %d", ErrStale, at.Org, at.Disk, head.Epoch)
	}
	return head, nil
}

// change appends what build makes of the head. It repeats that after a fence of the collector.
func (d *Disks) change(ctx context.Context, at Holding, build func(head Version) (Manifest, error)) (Version, error) {
	for try := 1; ; try++ {
		head, err := d.Held(ctx, at)
		if err != nil {
			return Version{}, err
		}
		m, err := build(head)
		if err != nil {
			return Version{}, err
		}
		version, err := d.appendTo(ctx, at.Org, at.Disk, head.Number, m)
		if !errors.Is(err, ErrConflict) || try == conflictTries {
			return version, err
		}
	}
}

// open returns the head of a disk that is not deleted.
func (d *Disks) open(ctx context.Context, org, disk string) (Version, error) {
	head, err := d.Head(ctx, org, disk)
	if err == nil && head.Kind == kindDeleted {
		return Version{}, fmt.Errorf("%w: %s/%s is deleted", ErrNoDisk, org, disk)
	}
	return head, err
}
