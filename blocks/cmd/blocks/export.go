package main

import (
	"context"
	"io"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
)

const streamBytes = 4 << 20

// exportDisk writes a version. Its output is complete only if the command succeeds.
func exportDisk(ctx context.Context, chosen options, disks *chain.Disks, source *blockmap.Source, out io.Writer) error {
	number := chosen.version
	if number == 0 {
		head, err := disks.Head(ctx, chosen.org, chosen.disk)
		if err != nil {
			return err
		}
		number = head.Number
	}
	found, err := disks.Find(ctx, chosen.org, chosen.disk, number)
	if err != nil {
		return err
	}
	root, err := found.RootHash()
	if err != nil {
		return err
	}
	version, err := blockmap.OpenVersion(ctx, source, chosen.org, root, found.SizeBytes)
	if err != nil {
		return err
	}
	buffer := make([]byte, streamBytes)
	for offset := int64(0); offset < version.Size(); offset += int64(len(buffer)) {
		buffer = buffer[:min(streamBytes, version.Size()-offset)]
		if err := version.ReadAt(ctx, buffer, offset); err != nil {
			return err
		}
		if _, err := out.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}
