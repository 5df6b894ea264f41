package blockmap

import (
	"encoding/binary"
	"fmt"

	"coppice/blocks/internal/segment"
)

const rootMagic = "CPBROOT1"

// Root has the names of the leaves. Leaves after its end read as zeroes.
type Root struct {
	Leaves []segment.Hash
}

// LeafKey is the object of a leaf.
func LeafKey(org string, name segment.Hash) string {
	return "blocks/" + org + "/leaves/" + name.String()
}

// RootKey is the object of a root.
func RootKey(org string, name segment.Hash) string {
	return "blocks/" + org + "/roots/" + name.String()
}

func (r *Root) leaf(index int64) segment.Hash {
	if index >= int64(len(r.Leaves)) {
		return segment.Hash{}
	}
	return r.Leaves[index]
}

func (r *Root) set(index int64, name segment.Hash) {
	for int64(len(r.Leaves)) <= index {
		r.Leaves = append(r.Leaves, segment.Hash{})
	}
	r.Leaves[index] = name
}

func (r *Root) encode(upload segment.Hash) []byte {
	stored := append([]byte(rootMagic), upload[:]...)
	stored = binary.BigEndian.AppendUint32(stored, uint32(len(r.Leaves)))
	for _, name := range r.Leaves {
		stored = append(stored, name[:]...)
	}
	return stored
}

func decodeRoot(stored []byte) (*Root, error) {
	const head = headBytes + 4
	if len(stored) < head || string(stored[:8]) != rootMagic {
		return nil, fmt.Errorf("%w: not a root", segment.ErrCorrupt)
	}
	count := int(binary.BigEndian.Uint32(stored[headBytes:]))
	if len(stored)-head != count*segment.HashBytes {
		return nil, fmt.Errorf("%w: a root of a wrong length", segment.ErrCorrupt)
	}
	root := &Root{Leaves: make([]segment.Hash, count)}
	for i := range root.Leaves {
		copy(root.Leaves[i][:], stored[head+i*segment.HashBytes:])
	}
	return root, nil
}
