// Package blockmap maps the blocks of a disk to frames in segments. The map of one version has two levels: a root, and
// leaves of 64 MiB of the disk. Both are immutable objects, named by their hash. A new version shares all leaves that did
// not change.
//
// A root is "CPBROOT1", 16 random bytes of the upload, the number of leaves (32 bits, big endian), and 16 bytes a leaf:
// its hash, or zeroes for a leaf that reads as zeroes. A disk of 100 GiB has a root of 26 KB.
//
// A leaf is "CPBLEAF1", 16 random bytes of the upload, and a zstd frame: see encode. The random bytes make names unique
// to an upload: an object that is garbage is never named again, so the collector may delete it at any later time.
package blockmap

import (
	"encoding/binary"
	"fmt"

	"coppice/blocks/internal/segment"
)

const (
	// LeafBlocks is the number of blocks of a leaf.
	LeafBlocks = 1024
	// LeafBytes is the part of the disk that a leaf maps.
	LeafBytes     = LeafBlocks * segment.BlockBytes
	pagesPerBlock = segment.BlockBytes / segment.PageBytes
	allPages      = 1<<pagesPerBlock - 1
	// maxPieces limits the frames that a read of one block needs; then all but the largest are merged with what is written.
	maxPieces = 4

	leafMagic = "CPBLEAF1"
	headBytes = 8 + segment.HashBytes
)

// Piece is a frame of which a block shows some pages.
type Piece struct {
	segment.Place
	// Stored are the pages in the frame, in order; Used are those that no newer piece hides. Bit 0 is the first page.
	Stored, Used uint16
}

// Leaf has the pieces of each block. Pages that no piece has read as zeroes.
type Leaf struct {
	Blocks [LeafBlocks][]Piece
}

// isEmpty reports whether all of the leaf reads as zeroes.
func (l *Leaf) isEmpty() bool {
	for _, pieces := range l.Blocks {
		if len(pieces) > 0 {
			return false
		}
	}
	return true
}

// hide removes pages from the pieces of a block.
func hide(pieces []Piece, pages uint16) []Piece {
	var kept []Piece
	for _, piece := range pieces {
		if piece.Used &^= pages; piece.Used != 0 {
			kept = append(kept, piece)
		}
	}
	return kept
}

// encode writes the ids of the segments; then for each block the number of its pieces; then for each piece the number
// of its segment, its offset after the end of the piece before it (signed), its length, and both sets of pages. Numbers
// are varints, of which most are equal in a disk that was written in order, so the whole compresses well.
func (l *Leaf) encode(upload segment.Hash) []byte {
	var body, ids []byte
	numbers := map[segment.Hash]uint64{}
	var end int64
	for _, pieces := range l.Blocks {
		body = binary.AppendUvarint(body, uint64(len(pieces)))
		for _, piece := range pieces {
			number, known := numbers[piece.Segment]
			if !known {
				number = uint64(len(numbers))
				numbers[piece.Segment] = number
				ids = append(ids, piece.Segment[:]...)
			}
			body = binary.AppendUvarint(body, number)
			body = binary.AppendVarint(body, int64(piece.Offset)-end)
			body = binary.AppendUvarint(body, uint64(piece.Length))
			body = binary.AppendUvarint(body, uint64(piece.Stored))
			body = binary.AppendUvarint(body, uint64(piece.Used))
			end = int64(piece.Offset) + int64(piece.Length)
		}
	}
	plain := binary.AppendUvarint(nil, uint64(len(numbers)))
	plain = append(append(plain, ids...), body...)
	head := append([]byte(leafMagic), upload[:]...)
	return append(head, segment.Compress(plain)...)
}

// decodeLeaf decodes an object whose hash is verified; what it checks guards against errors of this program.
func decodeLeaf(stored []byte) (*Leaf, error) {
	if len(stored) < headBytes || string(stored[:8]) != leafMagic {
		return nil, fmt.Errorf("%w: not a leaf", segment.ErrCorrupt)
	}
	plain, err := segment.Decompress(stored[headBytes:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: a leaf does not decompress: %w", segment.ErrCorrupt, err)
	}
	reader := &numberReader{rest: plain}
	count := reader.next()
	if count > LeafBlocks*maxPieces || count*segment.HashBytes > uint64(len(reader.rest)) {
		return nil, fmt.Errorf("%w: a leaf with %d segments", segment.ErrCorrupt, count)
	}
	ids := reader.rest[:count*segment.HashBytes]
	reader.rest = reader.rest[len(ids):]
	leaf, end := &Leaf{}, int64(0)
	for i := range leaf.Blocks {
		pieces := reader.next()
		if pieces > maxPieces {
			return nil, fmt.Errorf("%w: a block with %d pieces", segment.ErrCorrupt, pieces)
		}
		for range pieces {
			piece := reader.piece(ids, &end)
			leaf.Blocks[i] = append(leaf.Blocks[i], piece)
		}
	}
	if reader.isBroken || len(reader.rest) > 0 {
		return nil, fmt.Errorf("%w: a leaf of a wrong length", segment.ErrCorrupt)
	}
	return leaf, nil
}

type numberReader struct {
	rest     []byte
	isBroken bool
}

func (r *numberReader) next() uint64 {
	value, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.isBroken, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return value
}

func (r *numberReader) piece(ids []byte, end *int64) (piece Piece) {
	number := r.next()
	offset, n := binary.Varint(r.rest)
	if n <= 0 || number >= uint64(len(ids)/segment.HashBytes) {
		r.isBroken, r.rest = true, nil
		return piece
	}
	r.rest = r.rest[n:]
	copy(piece.Segment[:], ids[number*segment.HashBytes:])
	piece.Offset = uint32(*end + offset)
	piece.Length = uint32(r.next())
	piece.Stored, piece.Used = uint16(r.next()), uint16(r.next())
	*end = int64(piece.Offset) + int64(piece.Length)
	return piece
}
