// Package chain keeps each disk as a chain of numbered manifests that are only ever created. Creating number n+1 is also
// the lock: a runner takes a disk by writing it with a higher epoch, and the next manifest of the earlier holder fails.
//
//	disks/<org>/<disk>/<n>          manifest, 10 digits; the highest number is the head, which is never removed
//	families/<org>/<family>/<disk>  a disk that shares data with the disk <family>, or may
//	removed/<org>/<disk>/<n>        the snapshot with that number was removed
//	names/<org>/<disk>/<name>       number of the snapshot with that name
//	uploads/<org>/<id>              announcement: an upload, or a fork, that will end with one certain manifest
//	leases/<runner>                 changes when the runner renews its leases
//	marks/<org>/<n>                 what a pass of the collector found
package chain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/record"
	"coppice/blocks/internal/segment"
)

// Errors of operations. ErrConflict means that another manifest came first and the same operation may be repeated.
var (
	ErrConflict = errors.New("another manifest was written first")
	ErrStale    = errors.New("the disk was taken by another holder")
	ErrHeld     = errors.New("the disk is held by another runner")
	ErrExists   = errors.New("the disk exists")
	ErrNoDisk   = errors.New("there is no such disk")
	ErrNoData   = errors.New("the version is no longer kept")
	ErrHasForks = errors.New("disks forked from it exist")
	ErrSize     = errors.New("a disk cannot have that size")
)

// Kinds of manifests.
const (
	kindCreate   = "create"
	kindTake     = "take"
	kindRelease  = "release"
	kindDrain    = "drain"
	kindGrow     = "grow"
	kindSnapshot = "snapshot"
	kindImport   = "import"
	kindRevert   = "revert"
	// kindCompact has the content of its predecessor, in other segments.
	kindCompact = "compact"
	kindFork    = "fork"
	// kindFence is written by the collector: the upload that announced this number can no longer end.
	kindFence = "fence"
	// kindClosing stops new forks while a delete looks for those that exist; kindReopen ends it without a delete.
	kindClosing = "closing"
	kindReopen  = "reopen"
	kindDeleted = "deleted"
)

const (
	manifestFormat = 1
	maxNumber      = 9_999_999_999
)

// Parent names the version that a disk was forked from.
type Parent struct {
	Disk    string `json:"disk"`
	Version int64  `json:"version"`
}

// Manifest is the body of a version.
type Manifest struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"`
	// Root is the name of the map; zeroes for an empty disk.
	Root      string  `json:"root"`
	SizeBytes int64   `json:"size_bytes"`
	Family    string  `json:"family"`
	Parent    *Parent `json:"parent,omitempty"`
	Epoch     int64   `json:"epoch"`
	// Runner holds the disk; empty if none does.
	Runner  string `json:"runner"`
	LeaseMS int64  `json:"lease_ms,omitempty"`
	TimeMS  int64  `json:"time_ms"`
	// DrainedMS is when the root, or that of the disk it was forked from, was written.
	DrainedMS int64 `json:"drained_ms"`
	// KeepFrom is the oldest version that the holder still reads. It never decreases.
	KeepFrom int64 `json:"keep_from"`
	// Source names the overlay that was drained, or the import, so that doing it twice gives one version.
	Source string `json:"source,omitempty"`
	Name   string `json:"name,omitempty"`
}

// Version is a manifest with its number.
type Version struct {
	Number int64 `json:"version"`
	Manifest
}

// IsDeleted reports whether the disk with this head is deleted.
func (v Version) IsDeleted() bool { return v.Kind == kindDeleted }

// RootHash parses the name of the map.
func (v Version) RootHash() (segment.Hash, error) { return segment.ParseHash(v.Root) }

// Disks reads and writes chains.
type Disks struct {
	Store objects.Store
	// Now is the time that manifests show; nothing depends on it.
	Now func() time.Time

	mutex sync.Mutex
	// known has a number of each chain that existed: lists begin there.
	known map[string]int64
}

// New makes the chains of a store.
func New(store objects.Store) *Disks {
	return &Disks{Store: store, Now: time.Now, known: map[string]int64{}}
}

func chainPrefix(org, disk string) string { return "disks/" + org + "/" + disk + "/" }

func manifestKey(org, disk string, number int64) string {
	return chainPrefix(org, disk) + fmt.Sprintf("%010d", number)
}

func parseNumber(key string) (int64, error) {
	number, err := strconv.ParseInt(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	if err != nil || number < 1 || number > maxNumber {
		return 0, fmt.Errorf("%q is not the key of a numbered object", key)
	}
	return number, nil
}

// maxHeadAttempts bounds the times that Head lists a chain again. Each time, a whole pass of a collector was faster.
const maxHeadAttempts = 10

// Head returns the newest version of a disk, also of a deleted one.
func (d *Disks) Head(ctx context.Context, org, disk string) (Version, error) {
	for attempt := 1; ; attempt++ {
		number, err := d.lastNumber(ctx, org, disk)
		if err != nil {
			return Version{}, err
		}
		head, err := d.Get(ctx, org, disk, number)
		// A collector removes no head. So there is a newer one by now, which a slow reader has not listed.
		if !errors.Is(err, ErrNoData) || attempt == maxHeadAttempts {
			return head, err
		}
	}
}

func (d *Disks) lastNumber(ctx context.Context, org, disk string) (int64, error) {
	prefix := chainPrefix(org, disk)
	d.mutex.Lock()
	known := d.known[prefix]
	d.mutex.Unlock()
	after := ""
	if known > 1 {
		after = manifestKey(org, disk, known-1)
	}
	last := ""
	for info, err := range d.Store.List(ctx, prefix, after) {
		if err != nil {
			return 0, err
		}
		last = info.Key
	}
	if last == "" {
		return 0, fmt.Errorf("%w: %s/%s", ErrNoDisk, org, disk)
	}
	number, err := parseNumber(last)
	if err == nil {
		d.remember(prefix, number)
	}
	return number, err
}

func (d *Disks) remember(prefix string, number int64) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.known[prefix] = max(d.known[prefix], number)
}

// Get reads one version.
func (d *Disks) Get(ctx context.Context, org, disk string, number int64) (Version, error) {
	key := manifestKey(org, disk, number)
	body, err := d.Store.Get(ctx, key, objects.Range{})
	if errors.Is(err, objects.ErrNotFound) {
		return Version{}, fmt.Errorf("%w: %s/%s version %d", ErrNoData, org, disk, number)
	}
	if err != nil {
		return Version{}, err
	}
	version := Version{Number: number}
	if err := record.Decode(key, body, &version.Manifest); err != nil {
		return Version{}, err
	}
	if version.Format != manifestFormat {
		return Version{}, fmt.Errorf("%s has the format %d: a newer program wrote it", key, version.Format)
	}
	return version, nil
}

// appendTo writes the manifest after a head. A writer that was away for long may find its number free again, because the
// collector removed old manifests. So the write counts only if it made the head.
func (d *Disks) appendTo(ctx context.Context, org, disk string, head int64, m Manifest) (Version, error) {
	m.Format, m.TimeMS = manifestFormat, d.Now().UnixMilli()
	if m.DrainedMS == 0 {
		m.DrainedMS = m.TimeMS
	}
	number := head + 1
	key := manifestKey(org, disk, number)
	body, err := record.Encode(key, m)
	if err != nil {
		return Version{}, err
	}
	isWritten, err := d.Store.PutIfAbsent(ctx, key, body)
	if err != nil {
		return Version{}, err
	}
	if !isWritten {
		return Version{}, fmt.Errorf("%w: %s/%s version %d", ErrConflict, org, disk, number)
	}
	for _, err := range d.Store.List(ctx, chainPrefix(org, disk), key) {
		if err != nil {
			return Version{}, err
		}
		// The caller gets an error, so if this is a snapshot, it must not be kept.
		err := d.Store.Put(ctx, removedKey(org, disk, number), []byte("overtaken"))
		return Version{}, errors.Join(fmt.Errorf("%w: %s/%s is beyond version %d", ErrConflict, org, disk, number), err)
	}
	d.remember(chainPrefix(org, disk), number)
	return Version{Number: number, Manifest: m}, nil
}

// next is the manifest that changes nothing.
func (v Version) next(kind string) Manifest {
	m := v.Manifest
	m.Kind, m.Source, m.Name = kind, "", ""
	return m
}
