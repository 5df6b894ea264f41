// Package captures keeps captures of virtual machines in the object store: files that never change, some of them sparse.
// A file is a list of chunks of 1 MiB. A chunk is an object of its own, named by its content, so that equal chunks of one
// organization are stored once. Zeroes have no chunk.
//
//	captures/<org>/chunks/<hh>/<SHA-256>.<tag>      content; the tag is that of the upload that wrote it
//	captures/<org>/manifests/<capture>/<tag>        create-only: files, chunks and digests; the capture is stored
//	captures/<org>/uploads/<capture>/<tag>          announcement: an upload runs, or was killed
//	captures/<org>/marks/<n>                        create-only: chunks that no new manifest may name (Collector)
//
// An upload writes only what is missing, so it may be killed at any time and repeated.
package captures

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/record"
	"coppice/blocks/internal/segment"
)

var (
	// ErrNoCapture says that the store has no complete capture of that name.
	ErrNoCapture = errors.New("the capture is not in the object store")
	// ErrConflict says that the collector gave up the upload because it took too long. It must be repeated.
	ErrConflict = errors.New("the upload took too long and was given up; repeat it")
	// ErrChanged says that a file was changed while it was read.
	ErrChanged = errors.New("a file of the capture has changed")
)

// Captures are those of a store.
type Captures struct {
	Store objects.Store
	Now   func() time.Time
}

// New returns the captures of a store.
func New(store objects.Store) *Captures { return &Captures{Store: store, Now: time.Now} }

const (
	kindCapture = "capture"
	// kindFence is at the key that an upload wants, so that it cannot end.
	kindFence = "fence"
	// tagBytes is the length of the random id of an upload.
	tagBytes = 8
)

// Manifest describes a stored capture.
type Manifest struct {
	Kind   string `json:"kind"`
	TimeMS int64  `json:"time_ms"`
	// About is what the runner wrote about the capture, which only the runner interprets.
	About string `json:"about"`
	Files []File `json:"files"`
	// StoredBytes is the size of the chunks, including those that other captures name too.
	StoredBytes int64 `json:"stored_bytes"`
}

// File is one file of a capture.
type File struct {
	Name      string  `json:"name"`
	SizeBytes int64   `json:"size_bytes"`
	Chunks    []Chunk `json:"chunks"`
}

// Chunk is one MiB of a file; the last one of a file may be shorter.
type Chunk struct {
	// Index is the place in the file, in chunks.
	Index int64 `json:"at"`
	// Name is "<SHA-256>.<tag>".
	Name string `json:"name"`
}

// Bytes is the size of what the chunks contain.
func (m Manifest) Bytes() (sum int64) {
	for _, file := range m.Files {
		for _, chunk := range file.Chunks {
			sum += file.lengthAt(chunk.Index)
		}
	}
	return sum
}

func (f File) lengthAt(index int64) int64 { return min(ChunkBytes, f.SizeBytes-index*ChunkBytes) }

// Find returns the manifest of a stored capture.
func (c *Captures) Find(ctx context.Context, org, capture string) (Manifest, error) {
	for info, err := range c.Store.List(ctx, manifestKey(org, capture, ""), "") {
		if err != nil {
			return Manifest{}, err
		}
		manifest, err := c.readManifest(ctx, info.Key)
		if errors.Is(err, objects.ErrNotFound) || err == nil && manifest.Kind == kindFence {
			continue
		}
		return manifest, err
	}
	return Manifest{}, fmt.Errorf("%w: %s", ErrNoCapture, capture)
}

func (c *Captures) readManifest(ctx context.Context, key string) (manifest Manifest, err error) {
	body, err := c.Store.Get(ctx, key, objects.Range{})
	if err != nil {
		return manifest, err
	}
	if err := record.Decode(key, body, &manifest); err != nil {
		return manifest, err
	}
	if manifest.Kind != kindCapture && manifest.Kind != kindFence {
		return manifest, fmt.Errorf("%s is of the kind %.20q, which this version does not know", key, manifest.Kind)
	}
	return manifest, manifest.check(key)
}

// check refuses a manifest that would be written outside of its files.
func (m Manifest) check(key string) error {
	for _, file := range m.Files {
		for _, chunk := range file.Chunks {
			_, err := parseName(chunk.Name)
			if err != nil || chunk.Index < 0 || file.lengthAt(chunk.Index) <= 0 {
				return fmt.Errorf("%w: %s: a chunk of %.50q", segment.ErrCorrupt, key, file.Name)
			}
		}
	}
	return nil
}

// Delete removes a capture. Its chunks stay until a collector finds that no other capture names them, as do fences.
func (c *Captures) Delete(ctx context.Context, org, capture string) error {
	if err := c.endUploads(ctx, org, capture); err != nil {
		return err
	}
	for info, err := range c.Store.List(ctx, manifestKey(org, capture, ""), "") {
		if err != nil {
			return err
		}
		manifest, err := c.readManifest(ctx, info.Key)
		if err == nil && manifest.Kind == kindFence || errors.Is(err, objects.ErrNotFound) {
			continue
		}
		if err := c.Store.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}

// endUploads ends all uploads of a capture: none of them can create its manifest any more, dead or alive.
func (c *Captures) endUploads(ctx context.Context, org, capture string) error {
	for info, err := range c.Store.List(ctx, uploadKey(org, capture, ""), "") {
		if err != nil {
			return err
		}
		if err := c.endUpload(ctx, org, capture, info.Key[strings.LastIndexByte(info.Key, '/')+1:]); err != nil {
			return err
		}
	}
	return nil
}

// endUpload puts a fence in the place of the manifest, unless that exists, and withdraws the announcement.
func (c *Captures) endUpload(ctx context.Context, org, capture, tag string) error {
	key := manifestKey(org, capture, tag)
	body, err := record.Encode(key, Manifest{Kind: kindFence, TimeMS: c.Now().UnixMilli(), Files: []File{}})
	if err != nil {
		return err
	}
	if _, err := c.Store.PutIfAbsent(ctx, key, body); err != nil {
		return err
	}
	return c.Store.Delete(ctx, uploadKey(org, capture, tag))
}

func manifestKey(org, capture, tag string) string {
	return fmt.Sprintf("captures/%s/manifests/%s/%s", org, capture, tag)
}
func manifestsKey(org string) string { return "captures/" + org + "/manifests/" }
func uploadKey(org, capture, tag string) string {
	return uploadsKey(org) + capture + "/" + tag
}
func uploadsKey(org string) string       { return "captures/" + org + "/uploads/" }
func chunksKey(org string) string        { return "captures/" + org + "/chunks/" }
func chunkKey(org, name string) string   { return chunksKey(org) + name[:2] + "/" + name }
func marksKey(org string) string         { return "captures/" + org + "/marks/" }
func markKey(org string, n int64) string { return fmt.Sprintf("%s%010d", marksKey(org), n) }

func newTag() string {
	var tag [tagBytes]byte
	_, _ = rand.Read(tag[:]) // never fails
	return hex.EncodeToString(tag[:])
}
