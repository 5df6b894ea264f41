package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/record"
	"coppice/blocks/internal/segment"
)

// Collector deletes objects that no version refers to. Its safety depends on no clock, and any number of collectors, of
// which some are delayed, may run. A pass
//
//  1. lists the objects, then the announcements, then the manifests;
//  2. takes as live whatever manifests refer to. A manifest is left out only if the pass before found it dead too: a fork,
//     announced after this pass listed the announcements, may just be copying its root;
//  3. deletes objects that the pass before also found unused, if all announcements that existed then have ended;
//  4. creates its mark: the dead manifests, the announcements and the unused objects that it saw.
//
// An object is named by one upload and referred to only by manifests that descend from that upload's. So once it is
// unused, and no upload or fork runs that began before, it is never used again. An announcement that is too old is
// ended by a fence: a manifest with the number that the upload wants.
type Collector struct {
	Disks  *Disks
	Source *blockmap.Source
	// UploadTime is longer than the longest upload. If it is too short, an upload fails and must be repeated.
	UploadTime time.Duration
}

type mark struct {
	TimeMS    int64    `json:"time_ms"`
	Dead      []string `json:"dead"`
	Announced []string `json:"announced"`
	Unused    []string `json:"unused"`
}

// Collected is what a pass did.
type Collected struct {
	Pass             int64 `json:"pass"`
	Objects          int   `json:"objects"`
	Unused           int   `json:"unused"`
	DeletedObjects   int   `json:"deleted_objects"`
	DeletedBytes     int64 `json:"deleted_bytes"`
	DeletedManifests int   `json:"deleted_manifests"`
	Fenced           int   `json:"fenced"`
	// Missing are objects that a version names but that do not exist: a stale writer's manifest, or lost data.
	Missing int `json:"missing"`
}

type pass struct {
	*Collector
	org     string
	before  mark
	now     mark
	objects map[string]int64
	live    map[string]bool
	result  Collected
}

// Collect runs one pass over an organization.
func (c *Collector) Collect(ctx context.Context, org string) (Collected, error) {
	p := &pass{Collector: c, org: org, objects: map[string]int64{}, live: map[string]bool{}}
	steps := []func(context.Context) error{p.readMark, p.listObjects, p.readAnnouncements, p.readManifests,
		p.deleteObjects, p.deleteManifests, p.writeMark}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return p.result, fmt.Errorf("collecting %s: %w", org, err)
		}
	}
	return p.result, nil
}

func (p *pass) markKey(number int64) string { return fmt.Sprintf("marks/%s/%010d", p.org, number) }

func (p *pass) readMark(ctx context.Context) error {
	p.result.Pass = 1
	p.now.TimeMS = p.Disks.Now().UnixMilli()
	last := ""
	for info, err := range p.Disks.Store.List(ctx, "marks/"+p.org+"/", "") {
		if err != nil {
			return err
		}
		last = info.Key
	}
	if last == "" {
		return nil
	}
	number, err := parseNumber(last)
	if err != nil {
		return err
	}
	p.result.Pass = number + 1
	body, err := p.Disks.Store.Get(ctx, last, objects.Range{})
	if err != nil {
		return err
	}
	return record.Decode(last, body, &p.before)
}

func (p *pass) listObjects(ctx context.Context) error {
	for info, err := range p.Disks.Store.List(ctx, "blocks/"+p.org+"/", "") {
		if err != nil {
			return err
		}
		p.objects[info.Key] = info.Size
	}
	p.result.Objects = len(p.objects)
	return nil
}

func (p *pass) readAnnouncements(ctx context.Context) error {
	for info, err := range p.Disks.Store.List(ctx, "uploads/"+p.org+"/", "") {
		if err != nil {
			return err
		}
		body, err := p.Disks.Store.Get(ctx, info.Key, objects.Range{})
		if errors.Is(err, objects.ErrNotFound) {
			// It ended; its manifest is read later.
			continue
		}
		if err != nil {
			return err
		}
		var a announcement
		if err := record.Decode(info.Key, body, &a); err != nil {
			return err
		}
		p.now.Announced = append(p.now.Announced, info.Key)
		if err := p.endUpload(ctx, info.Key, a); err != nil {
			return err
		}
	}
	return nil
}

// endUpload removes an announcement whose manifest exists, or can no longer be created. Later passes miss it then.
func (p *pass) endUpload(ctx context.Context, key string, a announcement) error {
	head, err := p.Disks.Head(ctx, p.org, a.Disk)
	if err != nil && !errors.Is(err, ErrNoDisk) {
		return err
	}
	isOld := p.now.TimeMS-a.TimeMS > p.UploadTime.Milliseconds()
	if head.Number < a.Number {
		if !isOld {
			return nil
		}
		m := head.next(kindFence)
		if head.Number == 0 {
			m = Manifest{Kind: kindDeleted, Root: segment.Hash{}.String(), Family: a.Disk, KeepFrom: 1}
		}
		_, err := p.Disks.appendTo(ctx, p.org, a.Disk, a.Number-1, m)
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		p.result.Fenced++
	}
	return p.Disks.Store.Delete(ctx, key)
}

func (p *pass) deleteObjects(ctx context.Context) error {
	mayDelete := map[string]bool{}
	// An upload that ran then and still runs may have written any of them.
	if !slices.ContainsFunc(p.before.Announced, func(key string) bool { return slices.Contains(p.now.Announced, key) }) {
		for _, key := range p.before.Unused {
			mayDelete[key] = true
		}
	}
	for key, size := range p.objects {
		if p.live[key] {
			continue
		}
		p.result.Unused++
		if !mayDelete[key] {
			p.now.Unused = append(p.now.Unused, key)
			continue
		}
		if err := p.Disks.Store.Delete(ctx, key); err != nil {
			return err
		}
		p.result.DeletedObjects++
		p.result.DeletedBytes += size
	}
	slices.Sort(p.now.Unused)
	return nil
}

// deleteManifests removes the dead manifests of the pass before. The head stays: its number must never be free again.
func (p *pass) deleteManifests(ctx context.Context) error {
	for _, key := range p.now.Dead {
		parts := strings.Split(key, "/")
		number, err := parseNumber(key)
		if err != nil {
			return err
		}
		head, err := p.Disks.Head(ctx, p.org, parts[2])
		if err != nil {
			return err
		}
		if number == head.Number || !slices.Contains(p.before.Dead, key) {
			continue
		}
		if err := p.Disks.Store.Delete(ctx, key); err != nil {
			return err
		}
		if err := p.Disks.Store.Delete(ctx, removedKey(p.org, parts[2], number)); err != nil {
			return err
		}
		p.result.DeletedManifests++
	}
	return nil
}

func (p *pass) writeMark(ctx context.Context) error {
	key := p.markKey(p.result.Pass)
	body, err := record.Encode(key, p.now)
	if err != nil {
		return err
	}
	isWritten, err := p.Disks.Store.PutIfAbsent(ctx, key, body)
	if err != nil || !isWritten || p.result.Pass < 3 {
		return err
	}
	return p.Disks.Store.Delete(ctx, p.markKey(p.result.Pass-2))
}
