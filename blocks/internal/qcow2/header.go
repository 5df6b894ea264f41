package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrRefused says that a file is not an overlay as this service makes them, or not an image that it can import.
var ErrRefused = errors.New("the qcow2 file is refused")

// Magic is what each file begins with.
const Magic = "QFI\xfb"

const (
	version     = 3
	headerBytes = 104
	// refcountsStale says that the reference counts may be wrong, as in each overlay that QEMU has not closed. Nothing here
	// reads them.
	refcountsStale  = 1 << 0
	extendedL2      = 1 << 4
	minClusterBits  = 9
	maxClusterBits  = 21
	maxL1Bytes      = 32 << 20
	subclusters     = 32
	standardEntry   = 8
	extendedEntry   = 16
	offsetMask      = 0x00fffffffffffe00
	reservedInL1    = 0x7f000000000001ff
	reservedInL2    = 0x3f000000000001fe
	compressedFlag  = 1 << 62
	readsAsZeroFlag = 1
	maxSize         = 64 << 40
	incompatibleAt  = 72
	headerLengthAt  = 100
	maxHeaderLength = 4096
)

type header struct {
	clusterBytes int64
	size         int64
	entryBytes   int64
	l1Entries    int64
	l1Offset     int64
}

func refuse(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, values...))
}

func readHeader(file io.ReaderAt, fileSize int64) (header, error) {
	raw := make([]byte, headerBytes)
	if fileSize < headerBytes {
		return header{}, refuse("the file has %d bytes", fileSize)
	}
	if _, err := file.ReadAt(raw, 0); err != nil {
		return header{}, fmt.Errorf("reading the header of the overlay: %w", err)
	}
	if err := checkFeatures(raw); err != nil {
		return header{}, err
	}
	clusterBits := binary.BigEndian.Uint32(raw[20:])
	if clusterBits < minClusterBits || clusterBits > maxClusterBits {
		return header{}, refuse("clusters of 2^%d bytes", clusterBits)
	}
	size := binary.BigEndian.Uint64(raw[24:])
	if size == 0 || size > maxSize || size%512 != 0 {
		return header{}, refuse("a size of %d bytes", size)
	}
	h := header{clusterBytes: 1 << clusterBits, size: int64(size), entryBytes: standardEntry}
	if binary.BigEndian.Uint64(raw[incompatibleAt:])&extendedL2 != 0 {
		h.entryBytes = extendedEntry
		if h.clusterBytes < subclusters*512 {
			return header{}, refuse("subclusters of less than 512 bytes")
		}
	}
	return h, h.setL1(raw, fileSize)
}

// checkFeatures refuses whatever would make another file, or bytes in another form, part of the disk.
func checkFeatures(raw []byte) error {
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(raw[at:]) }
	u64 := func(at int) uint64 { return binary.BigEndian.Uint64(raw[at:]) }
	switch length := u32(headerLengthAt); {
	case string(raw[:len(Magic)]) != Magic:
		return refuse("it is not a qcow2 file")
	case u32(4) != version:
		return refuse("it has version %d of the format, not 3", u32(4))
	case u64(8) != 0 || u32(16) != 0:
		return refuse("its header names a backing file")
	case u32(32) != 0:
		return refuse("it is encrypted")
	case u32(60) != 0:
		return refuse("it has internal snapshots")
	case u64(incompatibleAt)&^(extendedL2|refcountsStale) != 0:
		return refuse("%s", nameFeatures(u64(incompatibleAt)&^(extendedL2|refcountsStale)))
	case length < headerBytes || length > maxHeaderLength || length%8 != 0:
		return refuse("a header of %d bytes", length)
	}
	return nil
}

// nameFeatures describes incompatible features, of which there is at least one.
func nameFeatures(features uint64) string {
	known := []string{"it is marked as corrupt", "its data is in another file", "its clusters are compressed by zstd"}
	for index, name := range known {
		if features>>(index+1)&1 != 0 {
			return name
		}
	}
	return fmt.Sprintf("it has the incompatible features %#x", features)
}

func (h *header) setL1(raw []byte, fileSize int64) error {
	entries, offset := int64(binary.BigEndian.Uint32(raw[36:])), binary.BigEndian.Uint64(raw[40:])
	covered := h.clusterBytes * (h.clusterBytes / h.entryBytes)
	needed := (h.size + covered - 1) / covered
	if entries < needed || needed*8 > maxL1Bytes {
		return refuse("an L1 table of %d entries, where %d are needed", entries, needed)
	}
	h.l1Entries = needed
	if err := h.checkTable("L1 table", offset, needed*8, fileSize); err != nil {
		return err
	}
	h.l1Offset = int64(offset)
	return nil
}

func (h *header) checkTable(name string, offset uint64, length, fileSize int64) error {
	isInside := offset <= uint64(fileSize) && length <= fileSize-int64(offset)
	if offset == 0 || offset%uint64(h.clusterBytes) != 0 || !isInside {
		return refuse("the %s is at %#x, in a file of %d bytes", name, offset, fileSize)
	}
	return nil
}
