package chain

import (
	"context"
	"errors"
	"fmt"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/record"
	"coppice/blocks/internal/segment"
)

// announcement says that an upload runs which can only end by creating one manifest. While it exists, the collector
// deletes nothing that was listed with it.
type announcement struct {
	Disk   string `json:"disk"`
	Number int64  `json:"version"`
	TimeMS int64  `json:"time_ms"`
}

// Upload is an announced change of a disk.
type Upload struct {
	// ID is in the objects of the upload.
	ID    segment.Hash
	Base  Version
	disks *Disks
	at    Holding
	kind  string
}

func uploadKey(org string, id segment.Hash) string { return "uploads/" + org + "/" + id.String() }

// BeginUpload announces the version after the head. The caller ends it with Commit or Abort.
func (d *Disks) BeginUpload(ctx context.Context, at Holding) (*Upload, error) {
	head, err := d.Held(ctx, at)
	if err != nil {
		return nil, err
	}
	id := segment.NewID()
	err = d.announce(ctx, at.Org, id, announcement{Disk: at.Disk, Number: head.Number + 1})
	return &Upload{ID: id, Base: head, disks: d, at: at, kind: kindDrain}, err
}

func (d *Disks) announce(ctx context.Context, org string, id segment.Hash, a announcement) error {
	a.TimeMS = d.Now().UnixMilli()
	key := uploadKey(org, id)
	body, err := record.Encode(key, a)
	if err != nil {
		return err
	}
	return d.Store.Put(ctx, key, body)
}

// Commit writes the manifest with the new root. After ErrConflict all must be uploaded again: the collector may have
// given up the upload.
func (u *Upload) Commit(ctx context.Context, root segment.Hash, source string, keepFrom int64) (Version, error) {
	m := u.Base.next(u.kind)
	m.Root, m.Source, m.DrainedMS = root.String(), source, 0
	m.KeepFrom = max(m.KeepFrom, min(keepFrom, u.Base.Number+1))
	if keepFrom == 0 {
		m.KeepFrom = u.Base.Number + 1
	}
	return u.commit(ctx, m)
}

func (u *Upload) commit(ctx context.Context, m Manifest) (Version, error) {
	version, err := u.disks.appendTo(ctx, u.at.Org, u.at.Disk, u.Base.Number, m)
	if errors.Is(err, ErrConflict) {
		if _, heldErr := u.disks.Held(ctx, u.at); heldErr != nil {
			err = heldErr
		}
	}
	if err != nil {
		return Version{}, err
	}
	return version, u.Abort(ctx)
}

// Abort withdraws the announcement. An upload whose commit gave no answer must not be withdrawn.
func (u *Upload) Abort(ctx context.Context) error {
	return u.disks.Store.Delete(ctx, uploadKey(u.at.Org, u.ID))
}

// lastWrite returns the newest version that may differ in content from the one before it. It returns none if that is not
// kept any more.
func (d *Disks) lastWrite(ctx context.Context, org, disk string, head Version) (Version, error) {
	version := head
	for !version.isWrite() {
		var err error
		version, err = d.Get(ctx, org, disk, version.Number-1)
		if errors.Is(err, ErrNoData) {
			return Version{}, nil
		}
		if err != nil {
			return Version{}, err
		}
	}
	return version, nil
}

func (v Version) isWrite() bool {
	switch v.Kind {
	case kindCreate, kindFork, kindImport, kindDrain, kindRevert:
		return true
	}
	return false
}

// IsDrained reports whether an overlay was the last that was drained, and nothing changed the content since. It returns
// the version. An overlay that was drained before others is not found: when it is drained again, so must they be, because
// it hides what they wrote.
func (d *Disks) IsDrained(ctx context.Context, at Holding, head Version, source string) (Version, bool, error) {
	last, err := d.lastWrite(ctx, at.Org, at.Disk, head)
	isDrained := err == nil && source != "" && last.Kind == kindDrain && last.Source == source
	return last, isDrained, err
}

// Fork makes a new disk that begins with a version of another one. A repeated call returns the disk.
func (d *Disks) Fork(ctx context.Context, org, disk string, number int64, to string) (Version, error) {
	// Whether the data is kept counts only after the announcement; before it, this prevents needless ones.
	if _, err := d.Find(ctx, org, disk, number); err != nil {
		return Version{}, err
	}
	id := segment.NewID()
	if err := d.announce(ctx, org, id, announcement{Disk: to, Number: 1}); err != nil {
		return Version{}, err
	}
	version, err := d.forkAnnounced(ctx, org, disk, number, to)
	isUnknown := err != nil && !errors.Is(err, ErrNoData) && !errors.Is(err, ErrNoDisk) && !errors.Is(err, ErrExists)
	if isUnknown {
		// The manifest may exist, or may be about to. The collector ends the announcement.
		return Version{}, err
	}
	return version, errors.Join(err, d.Store.Delete(ctx, uploadKey(org, id)))
}

func (d *Disks) forkAnnounced(ctx context.Context, org, disk string, number int64, to string) (Version, error) {
	source, err := d.Find(ctx, org, disk, number)
	if err != nil {
		return Version{}, err
	}
	if err := d.Store.Put(ctx, familyKey(org, source.Family, to), nil); err != nil {
		return Version{}, err
	}
	m := Manifest{Kind: kindFork, Root: source.Root, SizeBytes: source.SizeBytes, Family: source.Family,
		Parent: &Parent{Disk: disk, Version: number}, KeepFrom: 1, DrainedMS: source.DrainedMS}
	version, err := d.appendTo(ctx, org, to, 0, m)
	if errors.Is(err, ErrConflict) {
		return d.findFork(ctx, org, to, *m.Parent)
	}
	return version, err
}

// findFork returns the head of a disk that an earlier attempt made.
func (d *Disks) findFork(ctx context.Context, org, disk string, parent Parent) (Version, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil && !errors.Is(err, ErrNoDisk) {
		return Version{}, err
	}
	if err != nil || head.Parent == nil || *head.Parent != parent {
		return Version{}, fmt.Errorf("%w: %s/%s", ErrExists, org, disk)
	}
	return head, nil
}

// Find returns a version whose data is kept.
func (d *Disks) Find(ctx context.Context, org, disk string, number int64) (Version, error) {
	head, err := d.open(ctx, org, disk)
	if err != nil {
		return Version{}, err
	}
	if head.Kind == kindClosing {
		return Version{}, fmt.Errorf("%w: %s/%s is being deleted", ErrNoDisk, org, disk)
	}
	// In this order: a collector deletes the manifest first, so without a mark and with a manifest it is not removed.
	isRemoved, err := d.isRemoved(ctx, org, disk, number)
	if err != nil {
		return Version{}, err
	}
	version, err := d.Get(ctx, org, disk, number)
	if err != nil {
		return Version{}, err
	}
	if isDead(head, version, isRemoved) {
		return Version{}, fmt.Errorf("%w: %s/%s version %d", ErrNoData, org, disk, number)
	}
	return version, nil
}

// isDead reports whether the data of a version need not be kept for its disk. A dead version stays dead.
func isDead(head, version Version, isRemoved bool) bool {
	switch {
	case head.Kind == kindDeleted:
		return true
	case version.Number >= head.KeepFrom:
		return false
	default:
		return version.Kind != kindSnapshot || isRemoved
	}
}

func removedKey(org, disk string, number int64) string {
	return fmt.Sprintf("removed/%s/%s/%010d", org, disk, number)
}

func (d *Disks) isRemoved(ctx context.Context, org, disk string, number int64) (bool, error) {
	_, err := d.Store.Get(ctx, removedKey(org, disk, number), objects.Range{})
	if errors.Is(err, objects.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Delete deletes a disk that no runner holds. Two deletes and forks may meet: the manifest "closing" stops new forks
// before the existing ones are counted.
func (d *Disks) Delete(ctx context.Context, org, disk string) error {
	closing, err := d.change(ctx, Holding{Org: org, Disk: disk}, func(head Version) (Manifest, error) {
		return head.next(kindClosing), nil
	})
	if err != nil {
		return err
	}
	forks, err := d.Forks(ctx, org, disk, closing.Family)
	kind := kindDeleted
	if err != nil || len(forks) > 0 {
		kind = kindReopen
	}
	if _, appendErr := d.appendTo(ctx, org, disk, closing.Number, closing.next(kind)); appendErr != nil {
		return errors.Join(err, appendErr)
	}
	if len(forks) > 0 {
		return fmt.Errorf("%w: %v", ErrHasForks, forks)
	}
	if err != nil {
		return err
	}
	return d.removeNames(ctx, org, disk)
}

// Forks lists the disks that were forked from a disk and exist.
func (d *Disks) Forks(ctx context.Context, org, disk, family string) (forks []string, err error) {
	members, err := d.members(ctx, org, family)
	for _, member := range members {
		head, err := d.open(ctx, org, member)
		if errors.Is(err, ErrNoDisk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if head.Parent != nil && head.Parent.Disk == disk {
			forks = append(forks, member)
		}
	}
	return forks, err
}

func (d *Disks) members(ctx context.Context, org, family string) (members []string, err error) {
	prefix := familyKey(org, family, "")
	for info, err := range d.Store.List(ctx, prefix, "") {
		if err != nil {
			return nil, err
		}
		members = append(members, info.Key[len(prefix):])
	}
	return members, nil
}
