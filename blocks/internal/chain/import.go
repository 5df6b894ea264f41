package chain

import (
	"context"
	"errors"
	"fmt"

	"coppice/blocks/internal/segment"
)

// Import is a disk that is made with content. The chain is
//
//	1 create ── fences of the collector, if the upload was slow ── n import
//
// Both manifests name the import, so that an import that was interrupted is completed by its repetition, and one that is
// complete is found.
type Import struct {
	Org, Disk string
	SizeBytes int64
	// Name tells imports of different content apart.
	Name string
}

func (i Import) source() string { return "import " + i.Name }

// BeginImport creates the disk, unless it exists, and announces the version with its content. If an earlier attempt made
// that version, it is returned, and no upload.
func (d *Disks) BeginImport(ctx context.Context, i Import) (*Upload, Version, error) {
	_, err := d.create(ctx, i.Org, i.Disk, i.SizeBytes, i.source())
	if err != nil && !errors.Is(err, ErrExists) {
		return nil, Version{}, err
	}
	if err != nil {
		done, err := d.findImport(ctx, i)
		if err != nil || done.Number > 0 {
			return nil, done, err
		}
	}
	upload, err := d.BeginUpload(ctx, Holding{Org: i.Org, Disk: i.Disk})
	if err != nil {
		return nil, Version{}, err
	}
	upload.kind = kindImport
	if !isUntouched(upload.Base) {
		// Another process just completed the import, or the disk was used; a repetition finds out.
		err := fmt.Errorf("%w: %s/%s", ErrConflict, i.Org, i.Disk)
		return nil, Version{}, errors.Join(err, upload.Abort(ctx))
	}
	return upload, Version{}, nil
}

// Commit of an import is that of its upload.
func (i Import) Commit(ctx context.Context, upload *Upload, root segment.Hash) (Version, error) {
	return upload.Commit(ctx, root, i.source(), 0)
}

func (i Import) exists() error { return fmt.Errorf("%w: %s/%s", ErrExists, i.Org, i.Disk) }

// findImport returns the head if it has the content that an earlier attempt imported, or none if an earlier attempt was
// interrupted. For every other disk it fails.
func (d *Disks) findImport(ctx context.Context, i Import) (Version, error) {
	head, err := d.open(ctx, i.Org, i.Disk)
	if errors.Is(err, ErrNoDisk) {
		return Version{}, i.exists() // it is deleted, and its id is not used again
	}
	if err != nil {
		return Version{}, err
	}
	last, err := d.lastWrite(ctx, i.Org, i.Disk, head)
	switch {
	case err != nil:
		return Version{}, err
	case last.Source != i.source() || head.SizeBytes != i.SizeBytes:
		return Version{}, i.exists()
	case last.Kind == kindImport:
		return head, nil
	case !isUntouched(head):
		return Version{}, i.exists()
	}
	return Version{}, nil
}

// isUntouched reports whether a disk is as it was created.
func isUntouched(head Version) bool {
	isNew := head.Kind == kindCreate || head.Kind == kindFence
	return isNew && head.Epoch == 0 && head.Runner == "" && head.Root == segment.Hash{}.String()
}
