package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/segment"
)

const (
	streamBytes = 4 << 20
	importLease = time.Minute
)

// importDisk replaces the content of a disk by a stream of exactly its size.
func importDisk(ctx context.Context, chosen options, disks *chain.Disks, source *blockmap.Source, in io.Reader) error {
	runner := "import-" + segment.NewID().String()
	taken, err := disks.Take(ctx, chosen.org, chosen.disk, runner, importLease)
	if err != nil {
		return err
	}
	at := chain.Holding{Org: chosen.org, Disk: chosen.disk, Runner: runner, Epoch: taken.Epoch}
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go renew(renewing, disks, runner)
	isRead := false
	_, err = drain.Apply(ctx, disks, source, drain.Job{Holding: at}, taken.SizeBytes,
		func(ctx context.Context, builder *blockmap.Builder) error {
			if isRead {
				return errors.New("the collector gave up the upload, and the stream cannot be read again")
			}
			isRead = true
			return copyIn(ctx, builder, taken.SizeBytes, in)
		})
	_, releaseErr := disks.Release(context.WithoutCancel(ctx), at)
	return errors.Join(err, releaseErr)
}

// renew keeps the lease of an import that lasts. A failure shows when the manifest is written.
func renew(ctx context.Context, disks *chain.Disks, runner string) {
	for ticker := time.NewTicker(importLease / 4); ; {
		_ = disks.Renew(ctx, runner)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return
		}
	}
}

func copyIn(ctx context.Context, builder *blockmap.Builder, size int64, in io.Reader) error {
	buffer := make([]byte, streamBytes)
	for offset := int64(0); offset < size; offset += int64(len(buffer)) {
		buffer = buffer[:min(streamBytes, size-offset)]
		if _, err := io.ReadFull(in, buffer); err != nil {
			return fmt.Errorf("reading the stream, which must have %d bytes: %w", size, err)
		}
		read := func(content []byte, at int64) error {
			copy(content, buffer[at:])
			return nil
		}
		if err := builder.Apply(ctx, blockmap.Change{Offset: offset, Length: int64(len(buffer)), Read: read}); err != nil {
			return err
		}
	}
	if n, _ := in.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("the stream has more than the %d bytes of the disk", size)
	}
	return nil
}

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
