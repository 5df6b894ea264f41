package main

import (
	"context"
	"fmt"
	"os"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/export"
	"coppice/blocks/internal/supervise"
)

// runExport writes a version. Its output is complete only if the command succeeds: a version that no snapshot keeps may
// be collected meanwhile.
func runExport(ctx context.Context, chosen options, out *os.File) error {
	if chosen.uid != 0 {
		if err := supervise.BecomeUnprivileged(chosen.uid); err != nil {
			return err
		}
	}
	chosen.cache = "" // it belongs to the server
	disks, source, _, err := open(ctx, chosen)
	if err != nil {
		return err
	}
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
	switch chosen.format {
	case drain.FormatRaw:
		return export.Raw(ctx, version, out)
	case drain.FormatQcow2:
		return export.Qcow2(ctx, version, out)
	default:
		return fmt.Errorf("--format is %.20q; must be %s or %s", chosen.format, drain.FormatRaw, drain.FormatQcow2)
	}
}
