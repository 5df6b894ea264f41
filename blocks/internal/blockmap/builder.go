package blockmap

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"coppice/blocks/internal/segment"
)

// Change replaces a range of the disk with zeroes or data. Ranges are whole pages.
type Change struct {
	Offset, Length int64
	IsZero         bool
	// Read fills content with the data from byte at of the change on.
	Read func(content []byte, at int64) error
}

// Stats count the work of one upload.
type Stats struct {
	// ChangedBytes are the data of all changes, ZeroBytes those that became zeroes.
	ChangedBytes, ZeroBytes int64
	// FrameBytes are stored for the data; MapBytes for leaves and the root.
	FrameBytes, MapBytes int64
	Segments, Leaves     int
}

// Builder makes a new version from a base and changes in ascending order. It uses memory for some segments, whatever the
// size of the changes. The objects that it uploads are garbage until a manifest names the root.
type Builder struct {
	base    *Version
	root    Root
	upload  segment.Hash
	uploads *uploads
	segment *segment.Writer
	pending pipeline
	stats   Stats

	leaf      *Leaf
	leafIndex int64
	isChanged bool
	end       int64

	block      int64
	data, zero uint16
	content    *buffer
}

// NewBuilder begins an upload, whose random id is unique. The caller closes it.
func NewBuilder(ctx context.Context, base *Version, upload segment.Hash) *Builder {
	b := &Builder{
		base: base, root: Root{Leaves: append([]segment.Hash(nil), base.root.Leaves...)}, upload: upload,
		uploads: newUploads(ctx, base.source.Store), segment: segment.NewWriter(), leafIndex: -1, block: -1,
		content: newBuffer(),
	}
	b.pending = pipeline{frame: b.place, leaf: b.putLeaf}
	return b
}

// Close stops the upload, if it is not finished.
func (b *Builder) Close() { b.uploads.close() }

// Apply adds a change, which must lie after all earlier ones.
func (b *Builder) Apply(ctx context.Context, change Change) error {
	end := change.Offset + change.Length
	isAligned := change.Offset%segment.PageBytes == 0 && (change.Length%segment.PageBytes == 0 || end == b.base.size)
	if !isAligned || change.Offset < b.end || change.Length < 0 || end > b.base.size {
		return fmt.Errorf("a change of %d bytes at %d, after %d", change.Length, change.Offset, b.end)
	}
	b.end = end
	if change.IsZero {
		b.stats.ZeroBytes += change.Length
	} else {
		b.stats.ChangedBytes += change.Length
	}
	for offset := change.Offset; offset < end; {
		if isWhole := offset%LeafBytes == 0 && end-offset >= LeafBytes; isWhole && change.IsZero {
			if err := b.clearLeaf(ctx, offset/LeafBytes); err != nil {
				return err
			}
			offset += LeafBytes
			continue
		}
		step := min(end, (offset/segment.BlockBytes+1)*segment.BlockBytes) - offset
		if err := b.applyToBlock(ctx, change, offset, step); err != nil {
			return err
		}
		offset += step
	}
	return nil
}

// Move stores the blocks anew of which some frames are in one of the segments, until it has moved limit bytes. Nothing else
// may be applied.
func (b *Builder) Move(ctx context.Context, segments map[segment.Hash]bool, limit int64) error {
	for number, err := range b.base.DataBlocks(ctx) {
		if err != nil {
			return err
		}
		if b.stats.ChangedBytes >= limit {
			return nil
		}
		pieces, err := b.base.pieces(ctx, number)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pieces, func(piece Piece) bool { return segments[piece.Segment] }) {
			continue
		}
		if err := b.finishBlock(ctx); err != nil {
			return err
		}
		b.block = number
		if err := b.merge(ctx, pieces); err != nil {
			return err
		}
		b.stats.ChangedBytes += int64(bits.OnesCount16(b.data)) * segment.PageBytes
	}
	return nil
}

func (b *Builder) clearLeaf(ctx context.Context, index int64) error {
	if err := b.finishLeaf(ctx); err != nil {
		return err
	}
	if b.root.leaf(index) != (segment.Hash{}) {
		b.root.set(index, segment.Hash{})
	}
	return nil
}

func (b *Builder) applyToBlock(ctx context.Context, change Change, offset, length int64) error {
	if block := offset / segment.BlockBytes; block != b.block {
		if err := b.finishBlock(ctx); err != nil {
			return err
		}
		b.block = block
	}
	first := offset % segment.BlockBytes
	pages := pagesOf(first, length)
	if change.IsZero {
		b.zero |= pages
		return nil
	}
	part := b.content[first : first+length]
	// The last page of a disk may be partial.
	clear(b.content[first+length : (first+length+segment.PageBytes-1)/segment.PageBytes*segment.PageBytes])
	if err := change.Read(part, offset-change.Offset); err != nil {
		return err
	}
	b.data |= pages
	return nil
}

// finishBlock adds the pages of a block to its leaf.
func (b *Builder) finishBlock(ctx context.Context) error {
	if b.data|b.zero == 0 {
		return nil
	}
	index := b.block / LeafBlocks
	if err := b.openLeaf(ctx, index); err != nil {
		return err
	}
	for page := range pagesPerBlock {
		if b.data>>page&1 != 0 && isZero(b.content[page*segment.PageBytes:(page+1)*segment.PageBytes]) {
			b.data, b.zero = b.data&^(1<<page), b.zero|1<<page
		}
	}
	at := b.block % LeafBlocks
	pieces := hide(b.leaf.Blocks[at], b.data|b.zero)
	if b.data != 0 && len(pieces) >= maxPieces {
		largest, others := splitLargest(pieces)
		if err := b.merge(ctx, others); err != nil {
			return err
		}
		pieces = []Piece{largest}
	}
	data := b.data
	if data != 0 {
		pieces = append(pieces, Piece{Stored: data, Used: data})
	}
	b.leaf.Blocks[at], b.isChanged = pieces, true
	b.data, b.zero = 0, 0
	if data == 0 {
		return nil
	}
	return b.store(&pieces[len(pieces)-1])
}

// splitLargest keeps the piece with most pages apart, so that small writes do not store all of a block again and again.
func splitLargest(pieces []Piece) (largest Piece, others []Piece) {
	at := 0
	for index, piece := range pieces {
		if bits.OnesCount16(piece.Used) > bits.OnesCount16(pieces[at].Used) {
			at = index
		}
	}
	return pieces[at], append(append([]Piece(nil), pieces[:at]...), pieces[at+1:]...)
}

// merge adds older pages of the block to the new ones.
func (b *Builder) merge(ctx context.Context, pieces []Piece) error {
	var older [segment.BlockBytes]byte
	if err := b.base.readBlock(ctx, older[:], 0, pieces); err != nil {
		return err
	}
	for _, piece := range pieces {
		copyPages(b.content[:], 0, packPages(older[:], piece.Used), piece.Used, piece.Used)
		b.data |= piece.Used
	}
	return nil
}

// packPages returns some pages of a block, without the others.
func packPages(block []byte, pages uint16) []byte {
	packed := make([]byte, 0, bits.OnesCount16(pages)*segment.PageBytes)
	for page := range pagesPerBlock {
		if pages>>page&1 != 0 {
			packed = append(packed, block[page*segment.PageBytes:(page+1)*segment.PageBytes]...)
		}
	}
	return packed
}

// store begins to encode the pages of a piece.
func (b *Builder) store(piece *Piece) error {
	pages := b.content
	b.content = newBuffer()
	length := 0
	for page := range pagesPerBlock {
		if piece.Stored>>page&1 == 0 {
			continue
		}
		if from := page * segment.PageBytes; from != length {
			copy(pages[length:], pages[from:from+segment.PageBytes])
		}
		length += segment.PageBytes
	}
	return b.pending.addFrame(piece, pages, length)
}

// place stores a frame that is encoded.
func (b *Builder) place(piece *Piece, frame segment.Frame) error {
	piece.Place = b.segment.Append(frame)
	b.stats.FrameBytes += int64(piece.Length)
	if b.segment.IsFull() {
		return b.finishSegment()
	}
	return nil
}

func (b *Builder) finishSegment() error {
	if b.segment.IsEmpty() {
		return nil
	}
	full := b.segment
	b.segment = segment.NewWriter()
	b.stats.Segments++
	return b.uploads.put(b.uploads.segments, segment.Key(b.base.org, full.ID()), full.Bytes(), full.Free)
}

func (b *Builder) openLeaf(ctx context.Context, index int64) error {
	if index == b.leafIndex {
		return nil
	}
	if err := b.closeLeaf(); err != nil {
		return err
	}
	older, err := b.base.source.Leaf(ctx, b.base.org, b.base.root.leaf(index))
	if err != nil {
		return err
	}
	// A shallow copy: pieces of blocks are replaced, never changed.
	leaf := *older
	b.leaf, b.leafIndex, b.isChanged = &leaf, index, false
	return nil
}

func (b *Builder) finishLeaf(ctx context.Context) error {
	err := b.finishBlock(ctx)
	b.block = -1
	return errors.Join(err, b.closeLeaf())
}

func (b *Builder) closeLeaf() error {
	leaf, index := b.leaf, b.leafIndex
	b.leaf, b.leafIndex = nil, -1
	if leaf == nil || !b.isChanged {
		return nil
	}
	if leaf.isEmpty() {
		b.root.set(index, segment.Hash{})
		return nil
	}
	return b.pending.addLeaf(index, leaf)
}

// putLeaf stores a leaf whose frames have their places.
func (b *Builder) putLeaf(index int64, leaf *Leaf) error {
	stored := leaf.encode(b.upload)
	name := segment.HashOf(stored)
	b.root.set(index, name)
	b.stats.Leaves++
	b.stats.MapBytes += int64(len(stored))
	return b.uploads.put(b.uploads.slots, LeafKey(b.base.org, name), stored, func() {})
}

// Finish returns the root of the new version when all objects are durable.
func (b *Builder) Finish(ctx context.Context) (segment.Hash, Stats, error) {
	if err := b.finishLeaf(ctx); err != nil {
		return segment.Hash{}, b.stats, err
	}
	if err := b.pending.reduce(0); err != nil {
		return segment.Hash{}, b.stats, err
	}
	if err := b.finishSegment(); err != nil {
		return segment.Hash{}, b.stats, err
	}
	for len(b.root.Leaves) > 0 && b.root.Leaves[len(b.root.Leaves)-1] == (segment.Hash{}) {
		b.root.Leaves = b.root.Leaves[:len(b.root.Leaves)-1]
	}
	if len(b.root.Leaves) == 0 {
		return segment.Hash{}, b.stats, b.uploads.wait()
	}
	stored := b.root.encode(b.upload)
	name := segment.HashOf(stored)
	b.stats.MapBytes += int64(len(stored))
	if err := b.uploads.put(b.uploads.slots, RootKey(b.base.org, name), stored, func() {}); err != nil {
		return segment.Hash{}, b.stats, err
	}
	return name, b.stats, b.uploads.wait()
}

var zeroPage [segment.PageBytes]byte

func isZero(page []byte) bool { return [segment.PageBytes]byte(page) == zeroPage }
