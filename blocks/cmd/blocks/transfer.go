package main

import (
	"context"
	"os"
	"time"

	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/supervise"
	"coppice/blocks/internal/transfer"
)

// requestTime is how long a request to a store that is away is repeated, before the transfer fails.
const requestTime = 30 * time.Second

func runTransfer(ctx context.Context, chosen options, kind transfer.Kind) error {
	if chosen.uid != 0 {
		if err := supervise.BecomeUnprivileged(chosen.uid); err != nil {
			return err
		}
	}
	store, err := objects.Open(ctx, chosen.store, chosen.objects)
	if err != nil {
		return err
	}
	store = objects.Limit(store, requestTime)
	return transfer.Run(ctx, kind, captures.New(store), os.Stdin, os.Stdout)
}
