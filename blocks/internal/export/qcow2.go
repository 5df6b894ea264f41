package export

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/segment"
)

// A cluster is a block of the map. The image has no other features than those that every reader of version 3 knows.
const (
	clusterBits  = 16
	clusterBytes = segment.BlockBytes
	// tableBlocks is the number of blocks that an L2 table maps.
	tableBlocks   = clusterBytes / 8
	refcountsEach = clusterBytes / 2
	headerBytes   = 104
	isCopied      = 1 << 63
)

// layout is the order of an image: header, refcount table, refcount blocks, L1 table, L2 tables, data; all in whole
// clusters. It follows from the map alone, so nothing that was written needs to be changed later.
type layout struct {
	size int64
	// tables has, for each L2 table, which of its blocks have data.
	tables map[int64]*[tableBlocks / 64]uint64
	// Numbers of clusters.
	refcountTable, refcountBlocks, l1, l2, data int64
}

func (l *layout) l1Entries() int64 {
	return divideUp(l.size, clusterBytes*tableBlocks)
}

func (l *layout) clusters() int64 {
	return 1 + l.refcountTable + l.refcountBlocks + l.l1 + l.l2 + l.data
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }

func planLayout(ctx context.Context, version *blockmap.Version) (*layout, error) {
	l := &layout{size: version.Size(), tables: map[int64]*[tableBlocks / 64]uint64{}}
	for block, err := range version.DataBlocks(ctx) {
		if err != nil {
			return nil, err
		}
		table := l.tables[block/tableBlocks]
		if table == nil {
			table = &[tableBlocks / 64]uint64{}
			l.tables[block/tableBlocks] = table
		}
		at := block % tableBlocks
		table[at/64] |= 1 << (at % 64)
		l.data++
	}
	l.l1, l.l2 = divideUp(l.l1Entries()*8, clusterBytes), int64(len(l.tables))
	// The refcounts count their own clusters too.
	for before := int64(-1); before != l.clusters(); {
		before = l.clusters()
		l.refcountBlocks = divideUp(before, refcountsEach)
		l.refcountTable = divideUp(l.refcountBlocks*8, clusterBytes)
	}
	return l, nil
}

// Qcow2 writes a version as a qcow2 image without holes and without compression.
func Qcow2(ctx context.Context, version *blockmap.Version, out io.Writer) error {
	l, err := planLayout(ctx, version)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	w := &clusterWriter{out: buffered}
	l.writeTables(w)
	err = w.err
	if err == nil {
		err = eachBlock(ctx, version, func(_ int64, content []byte) error {
			_, err := buffered.Write(content)
			return err
		})
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return nil
}

func (l *layout) writeTables(w *clusterWriter) {
	refcountTable := int64(1)
	refcounts := refcountTable + l.refcountTable
	l1 := refcounts + l.refcountBlocks
	l2 := l1 + l.l1
	_, _ = w.Write(l.header(refcountTable*clusterBytes, l1*clusterBytes))
	w.fill()
	for i := range l.refcountBlocks {
		w.entry(uint64((refcounts + i) * clusterBytes))
	}
	w.fill()
	for range l.clusters() {
		_, _ = w.Write([]byte{0, 1})
	}
	w.fill()
	numbers := slices.Sorted(maps.Keys(l.tables))
	for i, number := range numbers {
		before := int64(-1)
		if i > 0 {
			before = numbers[i-1]
		}
		for range number - before - 1 {
			w.entry(0)
		}
		w.entry(isCopied | uint64((l2+int64(i))*clusterBytes))
	}
	w.fill()
	for ; w.clusters() < l2; w.fill() {
		w.entry(0)
	}
	next := (l2 + l.l2) * clusterBytes
	for _, number := range numbers {
		for at := range int64(tableBlocks) {
			if l.tables[number][at/64]>>(at%64)&1 == 0 {
				w.entry(0)
				continue
			}
			w.entry(isCopied | uint64(next))
			next += clusterBytes
		}
	}
}

func (l *layout) header(refcountTable, l1 int64) []byte {
	be := binary.BigEndian
	header := make([]byte, headerBytes)
	copy(header, "QFI\xfb")
	be.PutUint32(header[4:], 3)
	be.PutUint32(header[20:], clusterBits)
	be.PutUint64(header[24:], uint64(l.size))
	be.PutUint32(header[36:], uint32(l.l1Entries()))
	be.PutUint64(header[40:], uint64(l1))
	be.PutUint64(header[48:], uint64(refcountTable))
	be.PutUint32(header[56:], uint32(l.refcountTable))
	be.PutUint32(header[96:], 4) // refcounts of 2^4 bits
	be.PutUint32(header[100:], headerBytes)
	return header
}

// clusterWriter counts what it writes, and keeps its first failure.
type clusterWriter struct {
	out     io.Writer
	written int64
	err     error
}

func (w *clusterWriter) Write(content []byte) (int, error) {
	if w.err == nil {
		_, w.err = w.out.Write(content)
	}
	w.written += int64(len(content))
	return len(content), w.err
}

func (w *clusterWriter) entry(value uint64) {
	_, _ = w.Write(binary.BigEndian.AppendUint64(nil, value))
}

// fill completes a cluster.
func (w *clusterWriter) fill() {
	_, _ = w.Write(zeroes[:w.clusters()*clusterBytes-w.written])
}

// clusters is the number of clusters that are begun.
func (w *clusterWriter) clusters() int64 { return divideUp(w.written, clusterBytes) }
