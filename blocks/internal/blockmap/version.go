package blockmap

import (
	"context"
	"fmt"
	"math/bits"

	"coppice/blocks/internal/segment"
)

// Version reads one version of a disk. It is safe for concurrent use.
type Version struct {
	source *Source
	org    string
	root   *Root
	size   int64
}

// OpenVersion reads the root; leaves follow when they are needed.
func OpenVersion(ctx context.Context, source *Source, org string, name segment.Hash, size int64) (*Version, error) {
	root, err := source.Root(ctx, org, name)
	if err != nil {
		return nil, err
	}
	return &Version{source: source, org: org, root: root, size: size}, nil
}

// Size is the size of the disk in bytes.
func (v *Version) Size() int64 { return v.size }

// ReadAt fills content. The range must be inside of the disk.
func (v *Version) ReadAt(ctx context.Context, content []byte, offset int64) error {
	if offset < 0 || offset > v.size || int64(len(content)) > v.size-offset {
		return fmt.Errorf("a read of %d bytes at %d is outside of the disk", len(content), offset)
	}
	for len(content) > 0 {
		block, first := offset/segment.BlockBytes, offset%segment.BlockBytes
		part := content[:min(int64(len(content)), segment.BlockBytes-first)]
		pieces, err := v.pieces(ctx, block)
		if err == nil {
			err = v.readBlock(ctx, part, first, pieces)
		}
		if err != nil {
			return fmt.Errorf("reading block %d: %w", block, err)
		}
		content, offset = content[len(part):], offset+int64(len(part))
	}
	return nil
}

func (v *Version) pieces(ctx context.Context, block int64) ([]Piece, error) {
	leaf, err := v.source.Leaf(ctx, v.org, v.root.leaf(block/LeafBlocks))
	if err != nil {
		return nil, err
	}
	return leaf.Blocks[block%LeafBlocks], nil
}

// readBlock fills a part of a block, from its byte first on.
func (v *Version) readBlock(ctx context.Context, part []byte, first int64, pieces []Piece) error {
	clear(part)
	wanted := pagesOf(first, int64(len(part)))
	for _, piece := range pieces {
		if piece.Used&wanted == 0 {
			continue
		}
		frame, err := v.source.Frame(ctx, v.org, piece.Place)
		if err != nil {
			return err
		}
		if len(frame) != bits.OnesCount16(piece.Stored)*segment.PageBytes {
			return fmt.Errorf("%w: a frame of %d bytes for pages %#x", segment.ErrCorrupt, len(frame), piece.Stored)
		}
		copyPages(part, first, frame, piece.Stored, piece.Used&wanted)
	}
	return nil
}

// copyPages copies the used pages of a frame into a part of a block.
func copyPages(part []byte, first int64, frame []byte, stored, used uint16) {
	for page := range int64(pagesPerBlock) {
		if stored>>page&1 == 0 {
			continue
		}
		content := frame[:segment.PageBytes]
		frame = frame[segment.PageBytes:]
		if used>>page&1 == 0 {
			continue
		}
		if at := page*segment.PageBytes - first; at >= 0 {
			copy(part[min(at, int64(len(part))):], content)
		} else {
			copy(part, content[-at:])
		}
	}
}

// pagesOf are the pages that a range of a block touches.
func pagesOf(first, length int64) uint16 {
	if length <= 0 {
		return 0
	}
	from, to := first/segment.PageBytes, (first+length-1)/segment.PageBytes
	return uint16(allPages >> (pagesPerBlock - 1 - to) &^ (1<<from - 1))
}

// Run is a part of the disk that has data, or reads as zeroes.
type Run struct {
	Length  int64
	HasData bool
}

// maxRuns limits what one request for the allocation of blocks costs.
const maxRuns = 4096

// Runs describes a range of the disk from offset on. It may stop early, but covers at least one byte.
func (v *Version) Runs(ctx context.Context, offset, length int64) (runs []Run, err error) {
	add := func(length int64, hasData bool) {
		if last := len(runs) - 1; last >= 0 && runs[last].HasData == hasData {
			runs[last].Length += length
		} else {
			runs = append(runs, Run{length, hasData})
		}
	}
	for end := offset + length; offset < end && len(runs) < maxRuns; {
		if v.root.leaf(offset/LeafBytes) == (segment.Hash{}) {
			step := min(end, (offset/LeafBytes+1)*LeafBytes) - offset
			add(step, false)
			offset += step
			continue
		}
		pieces, err := v.pieces(ctx, offset/segment.BlockBytes)
		if err != nil {
			return nil, err
		}
		var used uint16
		for _, piece := range pieces {
			used |= piece.Used
		}
		blockEnd := min(end, (offset/segment.BlockBytes+1)*segment.BlockBytes)
		for offset < blockEnd {
			step := min(blockEnd, (offset/segment.PageBytes+1)*segment.PageBytes) - offset
			add(step, used>>(offset%segment.BlockBytes/segment.PageBytes)&1 != 0)
			offset += step
		}
	}
	return runs, nil
}

// Prefetch brings a range into the cache.
func (v *Version) Prefetch(ctx context.Context, offset, length int64) error {
	for end := min(v.size, offset+length); offset < end; offset += segment.BlockBytes {
		pieces, err := v.pieces(ctx, offset/segment.BlockBytes)
		if err != nil {
			return err
		}
		for _, piece := range pieces {
			if _, err := v.source.Frame(ctx, v.org, piece.Place); err != nil {
				return err
			}
		}
	}
	return nil
}
