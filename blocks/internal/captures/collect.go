package captures

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/record"
)

// Collector deletes chunks that no capture names. Its safety depends on no clock, and any number of collectors, of which
// some are delayed, may run. A pass
//
//  1. reads the newest mark: the chunks that are condemned;
//  2. lists the chunks, then the announcements, then the manifests;
//  3. deletes condemned chunks that no manifest names, unless an upload runs that announced itself before that mark;
//  4. creates the next mark: the condemned chunks that exist, and those that no manifest names.
//
// A chunk that is condemned stays so, even if a manifest names it: an upload that began earlier may. Uploads that announce
// themselves later read the mark and write the content anew, under another name: a name contains the tag of its upload,
// so it is never used again. An upload that was killed or takes too long is ended by a fence, at the key of the manifest
// that it wants.
type Collector struct {
	Captures *Captures
	// UploadTime is longer than the longest upload. If it is too short, an upload fails and must be repeated.
	UploadTime time.Duration
}

// maxCondemned limits the size of a mark. A later pass condemns the rest.
const maxCondemned = 200_000

type mark struct {
	TimeMS    int64    `json:"time_ms"`
	Condemned []string `json:"condemned"`
}

func (m mark) condemned() map[string]bool {
	names := make(map[string]bool, len(m.Condemned))
	for _, name := range m.Condemned {
		names[name] = true
	}
	return names
}

// Collected is what a pass did.
type Collected struct {
	Chunks         int   `json:"chunks"`
	DeletedObjects int   `json:"deleted_objects"`
	DeletedBytes   int64 `json:"deleted_bytes"`
	// Unused are chunks that a later pass may delete.
	Unused int `json:"unused"`
	Fenced int `json:"fenced"`
}

type pass struct {
	*Captures
	uploadTime time.Duration
	org        string
	number     int64
	before     map[string]bool
	// chunks are the names and sizes, live those that manifests name.
	chunks map[string]int64
	live   map[string]bool
	// mustWait is set while an upload runs that may name condemned chunks.
	mustWait bool
	result   Collected
}

// Collect runs one pass over an organization.
func (c *Collector) Collect(ctx context.Context, org string) (Collected, error) {
	p := &pass{Captures: c.Captures, uploadTime: c.UploadTime, org: org, chunks: map[string]int64{}, live: map[string]bool{}}
	steps := []func(context.Context) error{p.readMark, p.listChunks, p.readAnnouncements, p.readManifests, p.deleteChunks, p.writeMark}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return p.result, fmt.Errorf("collecting the captures of %s: %w", org, err)
		}
	}
	return p.result, nil
}

// newestMark returns mark 0, which condemns nothing, if there is none.
func (c *Captures) newestMark(ctx context.Context, org string) (int64, mark, error) {
	for {
		key := ""
		for info, err := range c.Store.List(ctx, marksKey(org), "") {
			if err != nil {
				return 0, mark{}, err
			}
			key = info.Key
		}
		if key == "" {
			return 0, mark{}, nil
		}
		var newest mark
		body, err := c.Store.Get(ctx, key, objects.Range{})
		if errors.Is(err, objects.ErrNotFound) {
			continue // later marks replaced it
		}
		if err == nil {
			err = record.Decode(key, body, &newest)
		}
		if err != nil {
			return 0, mark{}, err
		}
		number, err := strconv.ParseInt(strings.TrimPrefix(key, marksKey(org)), 10, 64)
		return number, newest, err
	}
}

func (p *pass) readMark(ctx context.Context) error {
	number, newest, err := p.newestMark(ctx, p.org)
	p.number, p.before = number, newest.condemned()
	return err
}

func (p *pass) listChunks(ctx context.Context) error {
	for info, err := range p.Store.List(ctx, chunksKey(p.org), "") {
		if err != nil {
			return err
		}
		name := info.Key[strings.LastIndexByte(info.Key, '/')+1:]
		if _, err := parseName(name); err != nil {
			return err
		}
		p.chunks[name] = info.Size
	}
	p.result.Chunks = len(p.chunks)
	return nil
}

func (p *pass) readAnnouncements(ctx context.Context) error {
	for info, err := range p.Store.List(ctx, uploadsKey(p.org), "") {
		if err != nil {
			return err
		}
		body, err := p.Store.Get(ctx, info.Key, objects.Range{})
		if errors.Is(err, objects.ErrNotFound) {
			continue // it ended; its manifest is read later
		}
		var a announcement
		if err == nil {
			err = record.Decode(info.Key, body, &a)
		}
		if err != nil {
			return err
		}
		hasEnded, err := p.endIfOver(ctx, a, info.Key)
		if err != nil {
			return err
		}
		p.mustWait = p.mustWait || !hasEnded && a.Seen < p.number
	}
	return nil
}

// endIfOver ends an upload whose manifest exists, or that takes too long.
func (p *pass) endIfOver(ctx context.Context, a announcement, key string) (bool, error) {
	capture, tag, _ := strings.Cut(strings.TrimPrefix(key, uploadsKey(p.org)), "/")
	_, err := p.Store.Get(ctx, manifestKey(p.org, capture, tag), objects.Range{Length: 1})
	isMissing := errors.Is(err, objects.ErrNotFound)
	if err != nil && !isMissing {
		return false, err
	}
	if isMissing && !p.isOld(a.TimeMS) {
		return false, nil
	}
	if isMissing {
		p.result.Fenced++
	}
	return true, p.endUpload(ctx, p.org, capture, tag)
}

// isOld reports whether an upload that began then has ended.
func (p *pass) isOld(timeMS int64) bool {
	return p.Now().UnixMilli()-timeMS > p.uploadTime.Milliseconds()
}

func (p *pass) readManifests(ctx context.Context) error {
	for info, err := range p.Store.List(ctx, manifestsKey(p.org), "") {
		if err != nil {
			return err
		}
		manifest, err := p.readManifest(ctx, info.Key)
		if errors.Is(err, objects.ErrNotFound) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		if manifest.Kind == kindFence && p.isOld(manifest.TimeMS) {
			if err := p.Store.Delete(ctx, info.Key); err != nil {
				return err
			}
		}
		for _, file := range manifest.Files {
			for _, chunk := range file.Chunks {
				p.live[chunk.Name] = true
			}
		}
	}
	return nil
}

func (p *pass) deleteChunks(ctx context.Context) error {
	for name, size := range p.chunks {
		if p.live[name] || !p.before[name] || p.mustWait {
			continue
		}
		if err := p.Store.Delete(ctx, chunkKey(p.org, name)); err != nil {
			return err
		}
		delete(p.chunks, name)
		p.result.DeletedObjects++
		p.result.DeletedBytes += size
	}
	return nil
}

func (p *pass) writeMark(ctx context.Context) error {
	now := mark{TimeMS: p.Now().UnixMilli(), Condemned: []string{}}
	isNew := false
	for name := range p.chunks {
		if p.before[name] {
			now.Condemned = append(now.Condemned, name)
		}
		if !p.live[name] {
			p.result.Unused++
		}
	}
	for name := range p.chunks {
		if !p.before[name] && !p.live[name] && len(now.Condemned) < maxCondemned {
			now.Condemned = append(now.Condemned, name)
			isNew = true
		}
	}
	if !isNew && p.result.DeletedObjects == 0 {
		return nil
	}
	slices.Sort(now.Condemned)
	key := markKey(p.org, p.number+1)
	body, err := record.Encode(key, now)
	if err != nil {
		return err
	}
	isWritten, err := p.Store.PutIfAbsent(ctx, key, body)
	if err != nil || !isWritten || p.number < 2 {
		return err
	}
	return p.Store.Delete(ctx, markKey(p.org, p.number-1))
}
