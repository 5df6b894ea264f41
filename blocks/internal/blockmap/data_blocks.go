package blockmap

import (
	"context"
	"iter"

	"coppice/blocks/internal/segment"
)

// DataBlocks yields the numbers of the blocks that have data, in ascending order. After an error it yields nothing more.
func (v *Version) DataBlocks(ctx context.Context) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		end := (v.size + segment.BlockBytes - 1) / segment.BlockBytes
		for index, name := range v.root.Leaves {
			leaf, err := v.source.Leaf(ctx, v.org, name)
			if err != nil {
				yield(0, err)
				return
			}
			for at, pieces := range leaf.Blocks {
				block := int64(index)*LeafBlocks + int64(at)
				if len(pieces) > 0 && block < end && !yield(block, nil) {
					return
				}
			}
		}
	}
}
