// Package segment packs blocks of disks into segments: objects of up to 16 MiB that are never changed. A segment is a
// header of 24 bytes ("CPBSEG1\n" and the segment's id) and frames. A frame is one or more 4 KiB pages of one block:
//
//	hash   16 bytes  of SHA-256 over the segment's id, the frame's offset (64 bits, big endian), the codec, and the SHA-256
//	                 of the payload
//	codec   1 byte   0: the payload is the pages; 1: it is zstd
//	payload
//
// The hash is verified on every read. It covers the place, so a frame of another place is an error too. It has two steps
// so that frames are hashed, as they are compressed, before their place is known: on all CPUs at once.
package segment

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// BlockBytes is the unit of the map.
	BlockBytes = 64 << 10
	// PageBytes is the unit of writes; a frame has some of the 16 pages of a block.
	PageBytes = 4 << 10
	// MaxBytes is the size at which a segment is complete.
	MaxBytes = 16 << 20
	// frameHead is the hash and the codec.
	frameHead   = HashBytes + 1
	maxFrame    = frameHead + BlockBytes
	headerBytes = 8 + HashBytes
	// HashBytes is the length of hashes and ids.
	HashBytes = 16

	magic     = "CPBSEG1\n"
	codecRaw  = 0
	codecZstd = 1
	minSaving = 32
)

// ErrCorrupt says that stored bytes are not those that were written.
var ErrCorrupt = errors.New("stored data is corrupt")

// Hash is a truncated SHA-256, or a random id. The zero value stands for nothing.
type Hash [HashBytes]byte

// HashOf hashes an object.
func HashOf(content []byte) Hash {
	sum := sha256.Sum256(content)
	return Hash(sum[:HashBytes])
}

// NewID returns a random id.
func NewID() (id Hash) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// String returns the name that keys contain.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses a name.
func ParseHash(text string) (hash Hash, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != HashBytes {
		return hash, fmt.Errorf("%.40q is not the name of an object", text)
	}
	return Hash(raw), nil
}

// Place is where a frame is stored.
type Place struct {
	Segment        Hash
	Offset, Length uint32
}

// Prefix is that of the keys of an organization's segments.
func Prefix(org string) string { return "blocks/" + org + "/segments/" }

// Key is the object of a segment.
func Key(org string, id Hash) string { return Prefix(org) + id.String() }

var (
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(BlockBytes), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0))))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4<<20)))
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // only an invalid option
	}
	return value
}

// Compress compresses with zstd.
func Compress(content []byte) []byte { return encoder.EncodeAll(content, nil) }

// Decompress fails if the content is larger than 4 MiB.
func Decompress(content, into []byte) ([]byte, error) { return decoder.DecodeAll(content, into) }

// Frame is content that has no place yet.
type Frame struct {
	codec   byte
	payload []byte
	digest  [sha256.Size]byte
}

// Encode compresses and hashes some pages of one block. The frame may refer to the pages, and to the scratch buffer.
func Encode(pages, scratch []byte) Frame {
	f := Frame{codec: codecZstd, payload: encoder.EncodeAll(pages, scratch[:0])}
	// A saving of less than this is not worth the time of its readers.
	if len(f.payload) > len(pages)-len(pages)/minSaving {
		f.codec, f.payload = codecRaw, pages
	}
	f.digest = sha256.Sum256(f.payload)
	return f
}

// Writer builds one segment.
type Writer struct {
	id      Hash
	content []byte
	buffer  *[]byte
}

// contents are the buffers of segments, which Free returns: memory that is new to a process costs more than copying.
var contents = sync.Pool{New: func() any { return new([]byte) }}

// NewWriter begins a segment with a new random id.
func NewWriter() *Writer {
	w := &Writer{id: NewID(), buffer: contents.Get().(*[]byte)}
	w.content = (*w.buffer)[:0]
	w.content = append(w.content, magic...)
	w.content = append(w.content, w.id[:]...)
	return w
}

// Append adds a frame.
func (w *Writer) Append(f Frame) Place {
	offset := len(w.content)
	hash := frameHash(w.id, uint32(offset), f.codec, f.digest)
	w.content = append(w.content, hash[:]...)
	w.content = append(w.content, f.codec)
	w.content = append(w.content, f.payload...)
	return Place{Segment: w.id, Offset: uint32(offset), Length: uint32(len(w.content) - offset)}
}

// IsFull reports whether another frame might not fit.
func (w *Writer) IsFull() bool { return len(w.content)+maxFrame > MaxBytes }

// IsEmpty reports whether the segment has no frame.
func (w *Writer) IsEmpty() bool { return len(w.content) == headerBytes }

// ID is the name of the segment.
func (w *Writer) ID() Hash { return w.id }

// Bytes is the object. Nothing may be added after it.
func (w *Writer) Bytes() []byte { return w.content }

// Free lets later segments use the memory. Neither the writer nor its bytes may be used any more.
func (w *Writer) Free() {
	*w.buffer, w.content = w.content, nil
	contents.Put(w.buffer)
}

// Decode verifies a stored frame and returns its pages.
func Decode(at Place, stored []byte) ([]byte, error) {
	if len(stored) != int(at.Length) || len(stored) <= frameHead || len(stored) > maxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes in segment %s at %d", ErrCorrupt, len(stored), at.Segment, at.Offset)
	}
	codec, payload := stored[HashBytes], stored[frameHead:]
	hash := frameHash(at.Segment, at.Offset, codec, sha256.Sum256(payload))
	if !bytes.Equal(hash[:], stored[:HashBytes]) {
		return nil, fmt.Errorf("%w: the hash of segment %s at %d differs", ErrCorrupt, at.Segment, at.Offset)
	}
	if codec == codecRaw {
		return payload, nil
	}
	pages, err := Decompress(payload, make([]byte, 0, BlockBytes))
	if err != nil || codec != codecZstd || len(pages) > BlockBytes {
		return nil, fmt.Errorf("%w: segment %s at %d does not decompress", ErrCorrupt, at.Segment, at.Offset)
	}
	return pages, nil
}

func frameHash(id Hash, offset uint32, codec byte, digest [sha256.Size]byte) Hash {
	var content [HashBytes + 9 + sha256.Size]byte
	copy(content[:], id[:])
	binary.BigEndian.PutUint64(content[HashBytes:], uint64(offset))
	content[HashBytes+8] = codec
	copy(content[HashBytes+9:], digest[:])
	return HashOf(content[:])
}
