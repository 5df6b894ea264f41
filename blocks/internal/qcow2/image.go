// Package qcow2 reads which parts of a sealed overlay have data or zeroes of their own. The guest's QEMU writes that
// file, and an escaped guest may write anything into it, also while it is read. So the reader trusts no field: it opens
// no other file, bounds every table, reads each only once, and returns an error for whatever this service does not make.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Extent is a part of the disk that the overlay covers. Parts between extents show what is below the overlay.
type Extent struct {
	Offset int64
	Length int64
	// IsZero says that the part reads as zeroes and hides what is below.
	IsZero bool
	// host is where the data is in the file.
	host int64
}

// Image is an overlay. It is not safe for concurrent use.
type Image struct {
	header
	file     io.ReaderAt
	fileSize int64
}

// Open reads the header of an overlay of fileSize bytes.
func Open(file io.ReaderAt, fileSize int64) (*Image, error) {
	h, err := readHeader(file, fileSize)
	if err != nil {
		return nil, err
	}
	return &Image{header: h, file: file, fileSize: fileSize}, nil
}

// Size is the size of the disk in bytes.
func (i *Image) Size() int64 { return i.size }

// Granularity is the alignment of all extents but the end of the last, in bytes.
func (i *Image) Granularity() int64 {
	if i.entryBytes == extendedEntry {
		return i.clusterBytes / subclusters
	}
	return i.clusterBytes
}

// Extents yields all extents in the order of their offsets. Neighbours are joined where the file has them in one piece.
// After an error it yields nothing more.
func (i *Image) Extents() iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		clusters := (i.fileSize + i.clusterBytes - 1) / i.clusterBytes
		scan := &scan{Image: i, table: make([]byte, i.clusterBytes), clusters: clusters, yield: yield}
		err := scan.run()
		if err == nil {
			err = scan.flush()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Extent{}, err)
		}
	}
}

// ReadAt reads data of an extent, from its byte at on.
func (i *Image) ReadAt(content []byte, extent Extent, at int64) error {
	if extent.IsZero || at < 0 || int64(len(content)) > extent.Length-at {
		return fmt.Errorf("reading %d bytes at %d of an extent of %d bytes", len(content), at, extent.Length)
	}
	offset := extent.host + at
	// The file may end within its last cluster; the rest of that cluster reads as zeroes.
	stored := max(0, min(int64(len(content)), i.fileSize-offset))
	clear(content[stored:])
	if stored == 0 {
		return nil
	}
	if n, err := i.file.ReadAt(content[:stored], offset); int64(n) < stored {
		return fmt.Errorf("reading the overlay at %d: %w", offset, err)
	}
	return nil
}

// errStopped says that the receiver wants no more extents.
var errStopped = errors.New("stopped")

type scan struct {
	*Image
	table []byte
	// clusters is how many of the file are not in use yet. Each is used once, so a small file is no large disk.
	clusters int64
	pending  Extent
	yield    func(Extent, error) bool
}

func (s *scan) run() error {
	// The L1 table is read in pieces, as large as a cluster.
	piece := make([]byte, min(s.l1Entries*8, 64<<10))
	covered := s.clusterBytes * (s.clusterBytes / s.entryBytes)
	for first := int64(0); first < s.l1Entries; first += int64(len(piece)) / 8 {
		part := piece[:min(int64(len(piece)), (s.l1Entries-first)*8)]
		if _, err := s.file.ReadAt(part, s.l1Offset+first*8); err != nil {
			return fmt.Errorf("reading the L1 table: %w", err)
		}
		for n := int64(0); n < int64(len(part))/8; n++ {
			entry := binary.BigEndian.Uint64(part[n*8:])
			if err := s.visitL1(entry, (first+n)*covered); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scan) visitL1(entry uint64, offset int64) error {
	if entry&reservedInL1 != 0 {
		return refuse("reserved bits in an L1 entry: %#x", entry)
	}
	if entry&offsetMask == 0 {
		return nil
	}
	if err := s.checkTable("L2 table", entry&offsetMask, s.clusterBytes, s.fileSize); err != nil {
		return err
	}
	if err := s.useCluster(); err != nil {
		return err
	}
	if _, err := s.file.ReadAt(s.table, int64(entry&offsetMask)); err != nil {
		return fmt.Errorf("reading an L2 table: %w", err)
	}
	for at := int64(0); at < s.clusterBytes && offset < s.size; at += s.entryBytes {
		var bitmap uint64
		entry := binary.BigEndian.Uint64(s.table[at:])
		if s.entryBytes == extendedEntry {
			bitmap = binary.BigEndian.Uint64(s.table[at+8:])
		}
		if err := s.visitL2(entry, bitmap, offset); err != nil {
			return err
		}
		offset += s.clusterBytes
	}
	return nil
}

func (s *scan) visitL2(entry, bitmap uint64, offset int64) error {
	if entry|bitmap == 0 {
		return nil
	}
	isExtended := s.entryBytes == extendedEntry
	if entry&compressedFlag != 0 {
		return refuse("it has compressed clusters")
	}
	if entry&reservedInL2 != 0 || isExtended && entry&readsAsZeroFlag != 0 {
		return refuse("reserved bits in an L2 entry: %#x", entry)
	}
	host, err := s.checkHost(entry & offsetMask)
	if err == nil && host != 0 {
		err = s.useCluster()
	}
	if err != nil {
		return err
	}
	if isExtended {
		return s.visitSubclusters(host, bitmap, offset)
	}
	if entry&readsAsZeroFlag != 0 {
		return s.add(Extent{Offset: offset, Length: s.clusterBytes, IsZero: true})
	}
	if host == 0 {
		return nil
	}
	return s.add(Extent{Offset: offset, Length: s.clusterBytes, host: host})
}

// visitSubclusters reads the bitmap: its low half marks subclusters with data, its high half those that read as zeroes.
func (s *scan) visitSubclusters(host int64, bitmap uint64, offset int64) error {
	data, zero := uint32(bitmap), uint32(bitmap>>32)
	if data&zero != 0 || data != 0 && host == 0 {
		return refuse("an L2 entry at %#x with the bitmap %#x", host, bitmap)
	}
	length := s.clusterBytes / subclusters
	for k := int64(0); k < subclusters; k++ {
		extent := Extent{Offset: offset + k*length, Length: length, IsZero: zero>>k&1 != 0}
		if !extent.IsZero {
			extent.host = host + k*length
		}
		if (data|zero)>>k&1 == 0 {
			continue
		}
		if err := s.add(extent); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) useCluster() error {
	if s.clusters--; s.clusters < 0 {
		return refuse("its tables name more clusters than it has")
	}
	return nil
}

func (s *scan) checkHost(offset uint64) (int64, error) {
	end := (s.fileSize + s.clusterBytes - 1) / s.clusterBytes * s.clusterBytes
	if offset%uint64(s.clusterBytes) != 0 || offset > uint64(end) || int64(offset) > end-s.clusterBytes {
		return 0, refuse("a cluster at %#x, in a file of %d bytes", offset, s.fileSize)
	}
	return int64(offset), nil
}

// add joins an extent with the one before it, or yields that one.
func (s *scan) add(extent Extent) error {
	if extent.Offset >= s.size {
		return nil
	}
	extent.Length = min(extent.Length, s.size-extent.Offset)
	last := &s.pending
	isNext := last.Length > 0 && last.Offset+last.Length == extent.Offset && last.IsZero == extent.IsZero
	if isNext && (extent.IsZero || last.host+last.Length == extent.host) {
		last.Length += extent.Length
		return nil
	}
	err := s.flush()
	s.pending = extent
	return err
}

func (s *scan) flush() error {
	if s.pending.Length > 0 && !s.yield(s.pending, nil) {
		return errStopped
	}
	s.pending = Extent{}
	return nil
}
