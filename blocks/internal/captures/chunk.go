package captures

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"

	"coppice/blocks/internal/segment"
)

const (
	// ChunkBytes is the unit in which content is shared and fetched. Smaller ones would find more equal content, and need
	// more requests.
	ChunkBytes = 1 << 20
	// pageBytes is the unit of holes.
	pageBytes = 4 << 10

	codecRaw  = 0
	codecZstd = 1
	// minSaving is the part of a chunk that compression must save to be worth the time of readers.
	minSaving = 32
)

// Sum is the SHA-256 of the content of a chunk.
type Sum [sha256.Size]byte

var (
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(ChunkBytes), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0))))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(ChunkBytes)))
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // only an invalid option
	}
	return value
}

// encodeChunk returns an object: a codec and the content, as it is or as a zstd frame. It uses the memory of into.
func encodeChunk(content, into []byte) []byte {
	object := encoder.EncodeAll(content, append(into[:0], codecZstd))
	if len(object) <= len(content)-len(content)/minSaving {
		return object
	}
	return append(append(object[:0], codecRaw), content...)
}

// decodeChunk returns the content of a verified object, in the memory of the object or of into.
func decodeChunk(sum Sum, object, into []byte) ([]byte, error) {
	if len(object) < 2 {
		return nil, fmt.Errorf("%w: a chunk of %d bytes", segment.ErrCorrupt, len(object))
	}
	content := object[1:]
	if object[0] == codecZstd {
		var err error
		if content, err = decoder.DecodeAll(content, into[:0]); err != nil {
			return nil, fmt.Errorf("%w: a chunk does not decompress", segment.ErrCorrupt)
		}
	} else if object[0] != codecRaw {
		return nil, fmt.Errorf("%w: a chunk of the codec %d", segment.ErrCorrupt, object[0])
	}
	if sha256.Sum256(content) != sum {
		return nil, fmt.Errorf("%w: the digest of a chunk differs", segment.ErrCorrupt)
	}
	return content, nil
}

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// parseName returns the digest in the name of a chunk.
func parseName(name string) (sum Sum, err error) {
	digest, tag, _ := strings.Cut(name, ".")
	raw, err := hex.DecodeString(digest)
	if tagged, tagErr := hex.DecodeString(tag); err != nil || tagErr != nil || len(raw) != len(sum) || len(tagged) != tagBytes {
		return sum, fmt.Errorf("%.100q is not the name of a chunk", name)
	}
	return Sum(raw), nil
}

var zeroes [ChunkBytes]byte

func isZero(content []byte) bool { return bytes.Equal(content, zeroes[:len(content)]) }
