package chain

import (
	"context"
	"errors"
)

// Revert makes the content of a version that is kept that of the disk, which keeps its size. Versions between stay as they are:
// a snapshot among them is kept until it is removed.
func (d *Disks) Revert(ctx context.Context, at Holding, number int64) (Version, error) {
	for try := 1; ; try++ {
		version, err := d.revertOnce(ctx, at, number)
		if !errors.Is(err, ErrConflict) || try == conflictTries {
			return version, err
		}
	}
}

func (d *Disks) revertOnce(ctx context.Context, at Holding, number int64) (Version, error) {
	upload, err := d.BeginUpload(ctx, at)
	if err != nil {
		return Version{}, err
	}
	// After the announcement: so the data of a version that is kept now is safe.
	target, err := d.Find(ctx, at.Org, at.Disk, number)
	if err != nil {
		return Version{}, errors.Join(err, upload.Abort(ctx))
	}
	m := upload.Base.next(kindRevert)
	m.Root, m.DrainedMS = target.Root, target.DrainedMS
	return upload.commit(ctx, m)
}
