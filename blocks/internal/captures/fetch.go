package captures

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"

	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

// fetchWorkers bound the memory of a fetch, about 2 MiB each, and its requests at a time.
const fetchWorkers = 16

// Target is an empty file that a file of a capture is written to.
type Target struct {
	Name string
	File *os.File
	// Seed is a local file that may have the same content; nil for none. If it has, the target stays empty.
	Seed *os.File
}

// Fetched is what a fetch did.
type Fetched struct {
	FetchedBytes int64 `json:"fetched_bytes"`
	// Same are the names of the targets whose seed has the content.
	Same []string `json:"same"`
}

// Fetch writes the files of a stored capture and syncs them. Every chunk is verified by its digest.
func (c *Captures) Fetch(ctx context.Context, org, capture string, targets []Target) (Fetched, error) {
	result := Fetched{Same: []string{}}
	manifest, err := c.Find(ctx, org, capture)
	if err != nil {
		return result, err
	}
	if len(targets) != len(manifest.Files) {
		return result, fmt.Errorf("%w: it has %d files, not %d", ErrChanged, len(manifest.Files), len(targets))
	}
	isSame := make([]bool, len(targets))
	for number, file := range manifest.Files {
		if targets[number].Name != file.Name {
			return result, fmt.Errorf("%w: it has the file %.50q, not %.50q", ErrChanged, file.Name, targets[number].Name)
		}
		if isSame[number], err = isEqual(ctx, targets[number].Seed, file); err != nil {
			return result, err
		}
		if isSame[number] {
			result.Same = append(result.Same, file.Name)
		} else if err := targets[number].File.Truncate(file.SizeBytes); err != nil {
			return result, err
		}
	}
	err = inParallel(ctx, fetchWorkers, listPlaces(manifest, isSame), func(ctx context.Context, at place, memory *buffers) error {
		file := manifest.Files[at.file]
		if err := c.fetchChunk(ctx, org, file, at, targets[at.file].File, memory); err != nil {
			return fmt.Errorf("fetching %s of %s: %w", file.Name, capture, err)
		}
		return nil
	})
	if err != nil {
		return result, err
	}
	for number, target := range targets {
		if isSame[number] {
			continue
		}
		if err := target.File.Sync(); err != nil {
			return result, fmt.Errorf("syncing %s: %w", target.Name, err)
		}
	}
	result.FetchedBytes = manifest.StoredBytes
	return result, nil
}

func listPlaces(manifest Manifest, isLeftOut []bool) iter.Seq2[place, error] {
	return func(yield func(place, error) bool) {
		for number, file := range manifest.Files {
			if isLeftOut[number] {
				continue
			}
			for position, chunk := range file.Chunks {
				if !yield(place{file: number, index: chunk.Index, chunk: position}, nil) {
					return
				}
			}
		}
	}
}

func (c *Captures) fetchChunk(ctx context.Context, org string, file File, at place, target *os.File, memory *buffers) error {
	name := file.Chunks[at.chunk].Name
	sum, err := parseName(name)
	if err != nil {
		return err
	}
	stored, err := c.Store.Get(ctx, chunkKey(org, name), objects.Range{})
	if errors.Is(err, objects.ErrNotFound) {
		return fmt.Errorf("%w: the chunk %s is missing", segment.ErrCorrupt, name)
	}
	if err != nil {
		return err
	}
	content, err := decodeChunk(sum, stored, memory.content[:0])
	if err == nil && int64(len(content)) != file.lengthAt(at.index) {
		err = fmt.Errorf("%w: a chunk of %d bytes", segment.ErrCorrupt, len(content))
	}
	if err != nil {
		return fmt.Errorf("the chunk %s: %w", name, err)
	}
	return writeSparse(target, content, at.index*ChunkBytes)
}

// isEqual reports whether a local file has the content of a stored one.
func isEqual(ctx context.Context, seed *os.File, file File) (bool, error) {
	if seed == nil {
		return false, nil
	}
	info, err := seed.Stat()
	if err != nil || info.Size() != file.SizeBytes {
		return false, err
	}
	content, next := make([]byte, ChunkBytes), 0
	for index := int64(0); index*ChunkBytes < file.SizeBytes; index++ {
		part := content[:file.lengthAt(index)]
		if err := errors.Join(ctx.Err(), readChunk(seed, part, index)); err != nil {
			return false, err
		}
		if next == len(file.Chunks) || file.Chunks[next].Index != index {
			if !isZero(part) {
				return false, nil
			}
			continue
		}
		sum, err := parseName(file.Chunks[next].Name)
		if found := sha256.Sum256(part); err != nil || !bytes.Equal(found[:], sum[:]) {
			return false, err
		}
		next++
	}
	return next == len(file.Chunks), nil
}
